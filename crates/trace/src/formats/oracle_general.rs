//! libCacheSim's oracleGeneral: 24-byte records, little-endian without padding: `time u32 s,
//! object u64, size u32 bytes, next access i64` (the number of the request that accesses the
//! object next, -1 if none).
//!
//! The format records objects, not addresses. In block traces, an object is an address in a unit
//! that the format does not specify (512 B in the published traces; parameter `unit`). The format
//! does not record operations, so all requests are reads.

use super::{
    format::{Format, Head, open_records},
    records::{RecordParser, doubt_unit, le32, le64},
};
use crate::metadata::VolumeTable;
use forebay_block::{Flags, Nanos, Op, Request, SECTOR_BYTES, Volume};

/// Registration.
pub(crate) const FORMAT: Format = Format {
    name: "oracleGeneral",
    summary: "libCacheSim oracleGeneral, 24-byte records without operations (unit=512)",
    detect,
    open: |mut source, options, mut params| {
        let told = params.has("unit");
        let unit = params.take_bytes("unit", SECTOR_BYTES)?;
        params.finish("unit")?;
        if !told {
            let head = std::mem::take(&mut source.head);
            let records = head.chunks_exact(24).map(|r| (le64(r, 4), le32(r, 12).into()));
            doubt_unit(&mut source, |unit| format!("oracleGeneral:unit={unit}"), records);
            source.head = head;
        }
        open_records(source, options, OracleGeneral { unit })
    },
};

pub(super) struct OracleGeneral {
    pub(super) unit: u64,
}

impl RecordParser for OracleGeneral {
    const NAME: &'static str = "oracleGeneral";
    const EXPECTED: &'static str =
        "a record whose object number, multiplied by the unit, is a valid address";

    fn records_operations(&self) -> bool {
        false
    }

    #[inline]
    fn record_bytes(&self) -> usize {
        24
    }

    #[inline]
    fn request(&mut self, r: &[u8], _: &mut VolumeTable) -> Option<Request> {
        let time = Nanos(u64::from(le32(r, 0)) * 1_000_000_000);
        let (volume, op, flags) = (Volume(0), Op::Read, Flags::NONE);
        let offset = le64(r, 4).saturating_mul(self.unit);
        Some(Request { time, volume, op, flags, offset, length: le32(r, 12).into() })
    }
}

/// Recognises records by their times, which must not go back, and their next accesses, which must
/// lie ahead.
fn detect(head: &Head<'_>) -> u8 {
    if head.text || head.bytes.len() < 24 {
        return 0;
    }
    let mut last_time = 0;
    for (n, r) in (0..).zip(head.bytes.chunks_exact(24).take(1000)) {
        let (time, next) = (le32(r, 0), le64(r, 16) as i64);
        let ours = time >= last_time && (next == -1 || next == i64::MAX || next > n);
        if !ours || le64(r, 4) >> 55 != 0 {
            return 0;
        }
        last_time = time;
    }
    60
}
