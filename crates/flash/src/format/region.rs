//! The first page of a region, written together with the region's first batch.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 20 | prefix, magic `FBREGION`, small number = pages kept for the directory, covering the page |
//! | 20 | 4 | page number of this page on the device |
//! | 24 | 16 | UUID of the log |
//! | 40 | 8 | epoch |
//! | 48 | 8 | region sequence |
//! | 56 | 8 | sequence of the region's first batch |
//! | 64 | 8 | highest batch sequence known to be durable |
//! | 72 | 8 | superblock generation known to be durable |
//! | 80 | | zeroes |
//!
//! Recovery can do without it: the first batch's header says the same.

use super::{
    FormatError, batch_at, generation_at, open, put, region_at, seal, sequence_at, tier_at, u32_at,
};
use crate::identity::TierId;
use crate::sequence::{BatchSequence, RegionSequence, SuperblockGeneration};

/// Magic number of a region header.
pub const MAGIC: [u8; 8] = *b"FBREGION";

/// A region header, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionHeader {
    /// UUID of the log.
    pub uuid: TierId,
    /// Page number of the header on the device.
    pub page: u32,
    /// Epoch in which the region was opened.
    pub epoch: u64,
    /// Region sequence: +1 for each region opened.
    pub sequence: RegionSequence,
    /// Sequence of its first batch.
    pub first_batch: BatchSequence,
    /// Highest batch sequence known to be durable when it was written.
    pub synced: BatchSequence,
    /// Superblock generation known to be durable when it was written.
    pub generation: SuperblockGeneration,
    /// Pages at the end of the region that are reserved for its directory; 0 for none.
    pub directory_pages: u16,
}

impl RegionHeader {
    /// Fills `page` with the header.
    pub fn encode(&self, page: &mut [u8]) {
        page.fill(0);
        put(page, 20, &self.page.to_le_bytes());
        put(page, 24, self.uuid.bytes());
        for (at, value) in [
            (40, self.epoch),
            (48, self.sequence.0),
            (56, self.first_batch.0),
            (64, self.synced.0),
            (72, self.generation.0),
        ] {
            put(page, at, &value.to_le_bytes());
        }
        seal(page, &MAGIC, self.directory_pages);
    }

    /// Decodes the header in `page`, which was read from page number `number` of the log `uuid`.
    ///
    /// # Errors
    /// If the page holds no region header of this log written for this place.
    pub fn decode(page: &[u8], uuid: TierId, number: u32) -> Result<Self, FormatError> {
        let (directory_pages, bytes) = open(page, &MAGIC)?;
        if bytes.len() < 80 {
            return Err(FormatError::Invalid("length"));
        }
        let header = RegionHeader {
            uuid: tier_at(bytes)?,
            page: u32_at(bytes, 20),
            epoch: sequence_at(bytes, 40)?,
            sequence: region_at(bytes, 48)?,
            first_batch: batch_at(bytes, 56)?,
            synced: batch_at(bytes, 64)?,
            generation: generation_at(bytes, 72)?,
            directory_pages,
        };
        if header.uuid != uuid {
            return Err(FormatError::Foreign);
        }
        if header.page != number {
            return Err(FormatError::Misplaced);
        }
        Ok(header)
    }
}
