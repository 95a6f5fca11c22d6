//! The binary records of blktrace: the output of `blktrace -d DEV -o -`, one of the per-CPU files,
//! or all of these files merged in order by `blkparse -i DEV -d FILE -O`.
//!
//! A record has 48 bytes in the byte order of the machine that wrote it, which the magic number
//! shows. `pdu_len` bytes of further data follow each record. The reader supports version 7 of the
//! format, the only one since 2006. Each request has several events, of which the reader takes one,
//! by default Q (parameter `event`, as for `blkparse`). It ignores notes from the tracer and from
//! drivers.

use super::params::Params;
use super::{
    format::{Format, open_records},
    records::{RecordParser, le16, le32, le64},
    text::Out,
};
use crate::TraceError;
use forebay_block::{Flags, Op, SECTOR_BYTES};

/// Registration.
pub(crate) const FORMAT: Format = Format {
    name: "blktrace",
    summary: "blktrace's binary records (event=Q)",
    detect: |head| match head.bytes.get(..4) {
        Some([VERSION, 0x74, 0x61, 0x65] | [0x65, 0x61, 0x74, VERSION]) => 95,
        _ => 0,
    },
    open: |source, options, mut params| {
        let event = event(&mut params)?;
        params.finish("event")?;
        open_records(source, options, Blktrace { event })
    },
};

const VERSION: u8 = 7;
const MAGIC: u32 = 0x6561_7400;

/// The letters that blkparse prints for events, starting with event number 1.
const EVENTS: &[u8] = b"QMFGSRDCPUTIXBA";

/// Bits of the category, the upper half of an action.
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const NOTIFY: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;
const DRIVER: u32 = 1 << 14;
const FUA: u32 = 1 << 15;

fn event(params: &mut Params) -> Result<u16, TraceError> {
    let text = params.take("event").unwrap_or_else(|| "Q".to_owned());
    let number = match text.as_bytes() {
        [letter] => EVENTS.iter().position(|e| e == letter),
        _ => None,
    };
    number
        .map(|n| n as u16 + 1)
        .ok_or_else(|| params.bad("event", &text, "a letter such as Q, D or C"))
}

struct Blktrace {
    event: u16,
}

/// The fields of a record that this reader uses.
struct Fields {
    time_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
    pdu_bytes: u16,
}

/// Reads the fields. Returns `None` if the record has no magic number in either byte order.
fn fields(r: &[u8]) -> Option<Fields> {
    let magic = le32(r, 0);
    let wanted = MAGIC | u32::from(VERSION);
    let swap = match magic {
        m if m == wanted => false,
        m if m.swap_bytes() == wanted => true,
        _ => return None,
    };
    let u64_at = |at| if swap { le64(r, at).swap_bytes() } else { le64(r, at) };
    let u32_at = |at| if swap { le32(r, at).swap_bytes() } else { le32(r, at) };
    let u16_at = |at| if swap { le16(r, at).swap_bytes() } else { le16(r, at) };
    Some(Fields {
        time_ns: u64_at(8),
        sector: u64_at(16),
        bytes: u32_at(24),
        action: u32_at(28),
        device: u32_at(36),
        pdu_bytes: u16_at(46),
    })
}

impl RecordParser for Blktrace {
    const NAME: &'static str = "blktrace";
    const EXPECTED: &'static str = "a version 7 blktrace record";
    const NUMBERED_VOLUMES: bool = true;

    fn record_bytes(&self) -> usize {
        48
    }

    fn following_bytes(&self, r: &[u8]) -> usize {
        fields(r).map_or(0, |f| f.pdu_bytes.into())
    }

    fn record(&mut self, r: &[u8], out: &mut Out<'_>) -> Option<bool> {
        let f = fields(r)?;
        let category = f.action >> 16;
        if category & (NOTIFY | DRIVER) != 0 || f.action as u16 != self.event {
            return Some(false);
        }
        let op = match category {
            c if c & DISCARD != 0 => Op::Trim,
            c if c & FLUSH != 0 && f.bytes == 0 => Op::Flush,
            c if c & WRITE != 0 => Op::Write,
            _ => Op::Read,
        };
        // The kernel's device number: 12 bits of major, 20 bits of minor.
        let name = |_: &[u8]| format!("{}:{}", f.device >> 20, f.device & 0xf_ffff);
        let volume = out.volumes.id(&f.device.to_le_bytes(), name);
        let offset = if op == Op::Flush { 0 } else { f.sector.saturating_mul(SECTOR_BYTES) };
        out.push(f.time_ns, volume, op, offset, f.bytes.into())?;
        if category & FUA != 0 && op == Op::Write {
            out.batch.set_flags_of_last(Flags::FUA);
        }
        Some(true)
    }
}
