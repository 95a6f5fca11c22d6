//! libCacheSim's lcs: an 8 KiB header with a magic number, the version and statistics, then
//! packed little-endian records that grew from version to version. Version 1 is oracleGeneral's
//! record; version 2 adds operation and tenant, version 3 a 64-bit size and a time to live, the
//! later ones features at the record's end.
//!
//! As in oracleGeneral, an object is an address in a unit that the format does not specify
//! (parameter `unit`). Each tenant is a volume.

use super::{
    format::{Format, open_records},
    records::{RecordParser, doubt_unit, le32, le64},
};
use crate::{metadata::VolumeTable, source::Source};
use forebay_block::{Flags, Nanos, Op, Request, SECTOR_BYTES, Volume};

/// Registration.
pub(crate) const FORMAT: Format = Format {
    name: "lcs",
    summary: "libCacheSim lcs, versions 1 to 8 (unit=512)",
    detect: |head| if head.bytes.starts_with(&MAGIC) { 100 } else { 0 },
    open: |mut source, options, mut params| {
        let told = params.has("unit");
        let unit = params.take_bytes("unit", SECTOR_BYTES)?;
        params.finish("unit")?;
        if !told {
            doubt(&mut source);
        }
        open_records(source, options, Lcs { unit, version: 1 })
    },
};

/// Notes a doubt if the objects do not seem to be addresses in sectors.
fn doubt(source: &mut Source) {
    let head = std::mem::take(&mut source.head);
    let mut parser = Lcs { unit: 1, version: 1 };
    if let Some((header, records)) = head.split_at_checked(Lcs::HEADER_BYTES)
        && parser.header(header).is_ok()
    {
        let size = |r: &[u8]| match parser.version {
            1 | 2 => le32(r, 12).into(),
            _ => le64(r, 12),
        };
        let records = records.chunks_exact(parser.record_bytes());
        let told = |unit| format!("lcs:unit={unit}");
        doubt_unit(source, told, records.map(|r| (le64(r, 4), size(r))));
    }
    source.head = head;
}

pub(super) const MAGIC: [u8; 8] = 0x1234_5678_9abc_def0_u64.to_le_bytes();

pub(super) struct Lcs {
    pub(super) unit: u64,
    pub(super) version: u64,
}

impl RecordParser for Lcs {
    const NAME: &'static str = "lcs";
    const EXPECTED: &'static str =
        "a record whose object number, multiplied by the unit, is a valid address";
    const HEADER_BYTES: usize = 8192;

    fn header(&mut self, header: &[u8]) -> Result<(), String> {
        self.version = le64(header, 8);
        if header.starts_with(&MAGIC) && (1..=8).contains(&self.version) {
            return Ok(());
        }
        Err("the header of an lcs trace (version 1 to 8)".to_owned())
    }

    fn records_operations(&self) -> bool {
        self.version > 1
    }

    #[inline]
    fn record_bytes(&self) -> usize {
        match self.version {
            1 => 24,
            2 => 28,
            3 => 36,
            n => 36 + 4 * (1 << (n - 4)),
        }
    }

    #[inline]
    fn request(&mut self, r: &[u8], volumes: &mut VolumeTable) -> Option<Request> {
        let time = Nanos(u64::from(le32(r, 0)) * 1_000_000_000);
        let offset = le64(r, 4).saturating_mul(self.unit);
        let (length, kind) = match self.version {
            1 => (le32(r, 12).into(), 0),
            2 => (le32(r, 12).into(), le32(r, 16)),
            _ => (le64(r, 12), le32(r, 20)),
        };
        // Key-value operations that store, and the block operation WRITE.
        let op = match kind & 0xff {
            3..=8 | 10 | 11 | 13 | 14 => Op::Write,
            9 => Op::Trim,
            _ => Op::Read,
        };
        let volume = if self.version == 1 {
            0
        } else {
            volumes.id(&(kind >> 8).to_le_bytes(), |_| format!("tenant{}", kind >> 8))
        };
        let (volume, flags) = (Volume(volume), Flags::NONE);
        Some(Request { time, volume, op, flags, offset, length })
    }
}
