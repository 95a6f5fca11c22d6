//! VMware vscsiStats captures, such as the CloudPhysics traces.
//!
//! Two binary layouts, little-endian without padding, distinguished by the high byte of their
//! version field: v1 has `sn u32, length u32 bytes, segments u32, command u16, version u16,
//! lbn u64, time u64 us`; v2 has `command u16, version u16, sn u32, length u32, segments u32,
//! lbn u64, time u64 us, response u64 us`. Blocks are of 512 B.
//!
//! There is also a text form with a header line, `version,time,op,size,lbn`, with the SCSI
//! operation in hexadecimal and the time in *seconds* (all 113,872 rows of CloudPhysics' sample
//! agree on this with the binary form of the same trace).

use super::{
    format::{Format, Head, open_records, open_text},
    records::{RecordParser, le16, le32, le64},
    scan::Scan,
    text::{Line, LineParser, Out},
};
use crate::metadata::VolumeTable;
use forebay_block::{Flags, Nanos, Op, Request, SECTOR_BYTES, Volume};

/// Registration of the older binary layout.
pub(crate) const V1: Format = Format {
    name: "vscsi-v1",
    summary: "VMware vscsi, 32-byte records (CloudPhysics)",
    detect: |head| detect::<Binary<1>>(head, Binary),
    open: |source, options, params| {
        params.finish("")?;
        open_records(source, options, Binary::<1>)
    },
};

/// Registration of the newer binary layout.
pub(crate) const V2: Format = Format {
    name: "vscsi-v2",
    summary: "VMware vscsi, 40-byte records with response times",
    detect: |head| detect::<Binary<2>>(head, Binary),
    open: |source, options, params| {
        params.finish("")?;
        open_records(source, options, Binary::<2>)
    },
};

/// Registration of the text form.
pub(crate) const CSV: Format = Format {
    name: "vscsi-csv",
    summary: "vscsi as CSV: version,time,op,size,lbn",
    detect: |head| {
        if head.lines().next() == Some(HEADER) { 95 } else { 0 }
    },
    open: |source, options, params| {
        params.finish("")?;
        open_text(source, options, Text)
    },
};

const HEADER: &[u8] = b"version,time,op,size,lbn";

/// Maps a SCSI operation code to an operation. Commands that differ only in their size, such as
/// READ(6) and READ(16), map to the same operation.
fn scsi_op(code: u64) -> Option<Scsi> {
    Some(match code {
        0x08 | 0x28 | 0xa8 | 0x88 => Scsi::Block(Op::Read),
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0x8e | 0xae => Scsi::Block(Op::Write),
        0x41 | 0x93 => Scsi::Block(Op::WriteZeroes),
        0x35 | 0x91 => Scsi::Block(Op::Flush),
        0..=0xff => Scsi::Other,
        _ => return None,
    })
}

enum Scsi {
    Block(Op),
    Other,
}

/// Converts one command. Returns `Some(None)` for a command that is not a request, and `None` for
/// an impossible one.
#[inline]
fn command(code: u64, time_ns: u64, lbn: u64, length: u64) -> Option<Option<Request>> {
    let Scsi::Block(op) = scsi_op(code)? else { return Some(None) };
    let offset = lbn.saturating_mul(SECTOR_BYTES);
    let (offset, length) = if op == Op::Flush { (0, 0) } else { (offset, length) };
    let (time, volume, flags) = (Nanos(time_ns), Volume(0), Flags::NONE);
    Some(Some(Request { time, volume, op, flags, offset, length }))
}

pub(super) struct Binary<const VERSION: u8>;

impl<const VERSION: u8> Binary<VERSION> {
    /// Parses a record and returns what [`command`] returns, or `None` if the version differs.
    #[inline]
    fn parse(r: &[u8]) -> Option<Option<Request>> {
        let (code, version, length) = if VERSION == 1 {
            (le16(r, 12), le16(r, 14), le32(r, 4))
        } else {
            (le16(r, 0), le16(r, 2), le32(r, 8))
        };
        if version >> 8 != u16::from(VERSION) {
            return None;
        }
        let time_ns = le64(r, 24).saturating_mul(1_000);
        command(code.into(), time_ns, le64(r, 16), length.into())
    }
}

impl<const VERSION: u8> RecordParser for Binary<VERSION> {
    const NAME: &'static str = if VERSION == 1 { "vscsi-v1" } else { "vscsi-v2" };
    const EXPECTED: &'static str = "a vscsi record: its version, a SCSI command, an LBN, a time";

    #[inline]
    fn record_bytes(&self) -> usize {
        if VERSION == 1 { 32 } else { 40 }
    }

    #[inline]
    fn request(&mut self, r: &[u8], _: &mut VolumeTable) -> Option<Request> {
        // Version 2 has latencies.
        if VERSION == 1 { Self::parse(r)? } else { None }
    }

    #[inline]
    fn record(&mut self, r: &[u8], out: &mut Out<'_>) -> Option<bool> {
        let Some(request) = Self::parse(r)? else { return Some(false) };
        out.push_request(request)?;
        if VERSION == 2 {
            out.batch.set_latency_of_last(Nanos(le64(r, 32).saturating_mul(1_000)));
        }
        Some(true)
    }
}

/// Requires that each of the first 100 records has this version, a one-byte command and, if it
/// moves data, a possible range.
fn detect<P: RecordParser>(head: &Head<'_>, mut parser: P) -> u8 {
    let size = parser.record_bytes();
    if head.text || head.bytes.len() < size {
        return 0;
    }
    let (mut batch, mut volumes) = Default::default();
    let mut out = Out::new(&mut batch, &mut volumes, None);
    let ours =
        head.bytes.chunks_exact(size).take(100).all(|r| parser.record(r, &mut out).is_some());
    if ours { 90 } else { 0 }
}

struct Text;

impl LineParser for Text {
    const NAME: &'static str = "vscsi-csv";
    const EXPECTED: &'static str =
        "version,time (s),SCSI operation (hexadecimal),size (bytes),lbn (512 B)";

    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Option<Line> {
        if line == HEADER {
            return Some(Line::Other);
        }
        let mut s = Scan::new(line);
        s.number()?;
        s.byte(b',')?;
        let time_ns = s.decimal(1_000_000_000)?;
        s.byte(b',')?;
        let code = super::scan::hex(s.field(b','))?;
        let length = s.number()?;
        s.byte(b',')?;
        let lbn = s.number()?;
        if !s.at_end() {
            return None;
        }
        let Some(request) = command(code, time_ns, lbn, length)? else { return Some(Line::Other) };
        out.push_request(request)?;
        Some(Line::Request)
    }
}
