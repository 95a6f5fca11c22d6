//! Writes libCacheSim's oracleGeneral, with the next access of every record.
//!
//! An object is the address in sectors of 512 B or, with `block=N`, the number of a block of `N`
//! bytes; then each request becomes one record for each of its blocks. The file does not show which
//! of the two an object is, so [`TraceWriter::read_as`] does. A request that does not begin on a
//! sector boundary is extended to begin on one. Volumes take the bits from 44 up. Operations are
//! lost; flushes, trims and requests of 0 bytes are left out. A second pass over the file,
//! backwards, fills in the next accesses. It keeps a map of all objects, which takes about 24 bytes
//! of memory for each.

use std::{
    collections::HashMap,
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
};

use super::file::PartialFile;
use super::writer::{LeftOut, TraceWriter};
use crate::formats::text::END_MAX;
use crate::{Batch, Metadata, Result, TraceError, Written, long_zeroing::is_long_zeroing};
use forebay_block::{Op, Request, SECTOR_BYTES};

const RECORD_BYTES: usize = 24;
const VOLUME_SHIFT: u32 = 44;
/// Number of records per step of the second pass.
const STEP: u64 = 64 << 10;

pub(super) struct Writer {
    file: PartialFile,
    /// Size of the blocks that requests are split into, if they are.
    block: Option<u64>,
    records: u64,
    left_out: LeftOut,
}

impl Writer {
    pub(super) fn create(path: &Path, block: Option<u64>) -> Result<Self> {
        let file = PartialFile::create(path)?;
        if !file.is_regular() {
            return Err(TraceError::Options(format!(
                "{}: oracleGeneral needs a regular file, because Forebay writes it in two passes",
                path.display()
            )));
        }
        Ok(Writer { file, block, records: 0, left_out: LeftOut::default() })
    }

    fn record(&mut self, r: &Request, address: u64, size: u64) -> Result<()> {
        let cannot = |what: &str| {
            TraceError::Options(format!(
                "{}: oracleGeneral cannot represent a request {what}",
                self.file.path().display()
            ))
        };
        let time = u32::try_from(r.time.0 / 1_000_000_000)
            .map_err(|_| cannot("more than 136 years after the first"))?;
        let size = u32::try_from(size).map_err(|_| cannot("of 4 GiB or more"))?;
        if address >> VOLUME_SHIFT != 0 || r.volume.0 >> (63 - VOLUME_SHIFT) != 0 {
            return Err(cannot("beyond address 2^44 or volume 2^19"));
        }
        let object = u64::from(r.volume.0) << VOLUME_SHIFT | address;
        let unit = self.block.unwrap_or(SECTOR_BYTES);
        let end = object.checked_mul(unit).and_then(|offset| offset.checked_add(size.into()));
        if end.is_none_or(|end| end > END_MAX) {
            // Readers multiply the bits of the volume by the unit, too.
            let volumes = ((END_MAX / unit) >> VOLUME_SHIFT) + 1;
            return Err(cannot(&format!(
                "whose object, in units of {unit} B, is beyond an offset of 2^63 bytes: this unit \
                 leaves room for {volumes} volumes, and this request is to volume {} (counted from \
                 0)",
                r.volume.0
            )));
        }
        let mut bytes = [0xff; RECORD_BYTES];
        bytes[..4].copy_from_slice(&time.to_le_bytes());
        bytes[4..12].copy_from_slice(&object.to_le_bytes());
        bytes[12..16].copy_from_slice(&size.to_le_bytes());
        self.records += 1;
        self.file.write_all(&bytes).map_err(|e| self.file.error(e))
    }

    /// Goes backwards over the file and fills in the next accesses.
    fn fill_in(&mut self) -> std::io::Result<()> {
        let records = self.records;
        let file = self.file.flushed()?;
        let mut next: HashMap<u64, u64> = HashMap::new();
        let mut end = records;
        let mut buffer = Vec::new();
        while end > 0 {
            let start = end.saturating_sub(STEP);
            buffer.resize((end - start) as usize * RECORD_BYTES, 0);
            file.seek(SeekFrom::Start(start * RECORD_BYTES as u64))?;
            file.read_exact(&mut buffer)?;
            let chunks = buffer.chunks_exact_mut(RECORD_BYTES);
            for (i, record) in chunks.enumerate().rev() {
                let mut object = [0; 8];
                object.copy_from_slice(&record[4..12]);
                // Counted from 1, as in the published traces.
                let number = start + i as u64 + 1;
                if let Some(later) = next.insert(u64::from_le_bytes(object), number) {
                    record[16..].copy_from_slice(&later.to_le_bytes());
                }
            }
            file.seek(SeekFrom::Start(start * RECORD_BYTES as u64))?;
            file.write_all(&buffer)?;
            end = start;
        }
        Ok(())
    }
}

impl TraceWriter for Writer {
    fn write_batch(&mut self, batch: &Batch, _: &Metadata) -> Result<()> {
        for r in batch.requests() {
            if r.op == Op::Flush {
                self.left_out.flushes += 1;
                continue;
            }
            if r.op == Op::Trim || is_long_zeroing(r.op, r.length) {
                self.left_out.trims += 1;
                continue;
            }
            if r.length == 0 {
                self.left_out.empty += 1;
                continue;
            }
            let Some(size) = self.block else {
                let within = r.offset % SECTOR_BYTES;
                self.record(&r, r.offset / SECTOR_BYTES, r.length + within)?;
                continue;
            };
            for block in r.offset / size..=(r.offset.saturating_add(r.length) - 1) / size {
                self.record(&r, block, size)?;
            }
        }
        Ok(())
    }

    fn read_as(&self) -> Option<String> {
        self.block.map(|block| format!("oracleGeneral:unit={block}"))
    }

    fn left_out(&self) -> LeftOut {
        self.left_out
    }

    fn finish(mut self: Box<Self>, _: &Metadata) -> Result<Written> {
        self.fill_in().map_err(|e| self.file.error(e))?;
        let Writer { file, records, .. } = *self;
        Ok(Written { requests: records, bytes: file.finish()? })
    }
}
