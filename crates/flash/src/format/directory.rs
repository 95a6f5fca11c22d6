//! The directory of a region: a second copy of the entries of all its batches, in the last pages of
//! the region, written when the last of these batches is complete.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 20 | prefix, magic `FBDIRECT`, small number 0, covering all pages written |
//! | 20 | 4 | page number of its first page on the device |
//! | 24 | 16 | UUID of the log |
//! | 40 | 8 | epoch |
//! | 48 | 8 | region sequence |
//! | 56 | 8 | sequence of the region's first batch |
//! | 64 | 4 | number of batches |
//! | 68 | 4 | number of entries |
//! | 72 | 24 | zeroes |
//! | 96 | 24 each | entries, as in the batches' headers, in the order of the log |
//! | then | 2 each | number of entries of each batch |
//!
//! The first batch begins after the region's header, and each other batch where the one before it
//! ends, so the pages of the batches follow from the entries.

use super::batch::{BatchEntry, ENTRY_BYTES, EntryKind};
use super::{
    FormatError, batch_at, open, put, region_at, seal, sequence_at, tier_at, u16_at, u32_at,
};
use crate::geometry::Geometry;
use crate::identity::TierId;
use crate::sequence::{BatchSequence, RegionSequence};

/// Magic number of a directory.
pub const MAGIC: [u8; 8] = *b"FBDIRECT";
const ENTRIES_AT: usize = 96;
const COUNT_BYTES: usize = 2;

/// Bytes of a directory of `batches` batches and `entries` entries, excluding the rest of its last
/// page.
pub const fn bytes(batches: usize, entries: usize) -> usize {
    ENTRIES_AT + ENTRY_BYTES * entries + COUNT_BYTES * batches
}

/// A directory, decoded, without its batches and entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryHeader {
    /// UUID of the log.
    pub uuid: TierId,
    /// Page number of its first page on the device.
    pub page: u32,
    /// Epoch in which the region was written.
    pub epoch: u64,
    /// Sequence of the region.
    pub region_sequence: RegionSequence,
    /// Sequence of its first batch.
    pub first_batch: BatchSequence,
}

/// The batches of a region, in the order of the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RegionContents {
    /// The number of entries of each batch.
    pub batches: Vec<u16>,
    /// The entries of all batches.
    pub entries: Vec<BatchEntry>,
}

impl RegionContents {
    /// Removes all batches and entries.
    pub fn clear(&mut self) {
        self.batches.clear();
        self.entries.clear();
    }

    /// Each batch: its first page (counted from the region's first page), its number of pages, and
    /// its entries.
    pub fn each<'a>(
        &'a self,
        geometry: &'a Geometry,
    ) -> impl Iterator<Item = (u32, u32, &'a [BatchEntry])> {
        let (mut page, mut from) = (1, 0);
        self.batches.iter().map(move |&count| {
            let entries = &self.entries[from..from + usize::from(count)];
            let payload: u32 = entries.iter().map(|e| geometry.payload_pages(e.valid)).sum();
            let batch = (page, 1 + payload, entries);
            page += 1 + payload;
            from += entries.len();
            batch
        })
    }
}

impl DirectoryHeader {
    /// Fills the first pages of `bytes` with the directory of these batches, and returns the number
    /// of bytes filled.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn encode(&self, contents: &RegionContents, page_size: u32, bytes: &mut [u8]) -> usize {
        let (batches, entries) = (contents.batches.len(), contents.entries.len());
        let used = self::bytes(batches, entries).next_multiple_of(page_size as usize);
        let bytes = &mut bytes[..used];
        bytes.fill(0);
        put(bytes, 20, &self.page.to_le_bytes());
        put(bytes, 24, self.uuid.bytes());
        put(bytes, 40, &self.epoch.to_le_bytes());
        put(bytes, 48, &self.region_sequence.0.to_le_bytes());
        put(bytes, 56, &self.first_batch.0.to_le_bytes());
        put(bytes, 64, &(batches as u32).to_le_bytes());
        put(bytes, 68, &(entries as u32).to_le_bytes());
        let (places, counts) = bytes[ENTRIES_AT..].split_at_mut(entries * ENTRY_BYTES);
        for (entry, place) in contents.entries.iter().zip(places.chunks_exact_mut(ENTRY_BYTES)) {
            entry.encode(place);
        }
        for (count, place) in contents.batches.iter().zip(counts.chunks_exact_mut(COUNT_BYTES)) {
            put(place, 0, &count.to_le_bytes());
        }
        seal(bytes, &MAGIC, 0);
        used
    }

    /// Decodes the directory in `bytes`, which were read from page `number` on of the log `uuid`.
    /// Its batches replace the contents of `contents` (ignore these after an error).
    ///
    /// # Errors
    /// If there is no directory of this log written for this place, or one that is invalid under
    /// `geometry`.
    pub fn decode(
        bytes: &[u8],
        uuid: TierId,
        number: u32,
        geometry: &Geometry,
        contents: &mut RegionContents,
    ) -> Result<Self, FormatError> {
        contents.clear();
        let (_, bytes) = open(bytes, &MAGIC)?;
        if bytes.len() < ENTRIES_AT {
            return Err(FormatError::Invalid("length"));
        }
        let header = DirectoryHeader {
            uuid: tier_at(bytes)?,
            page: u32_at(bytes, 20),
            epoch: sequence_at(bytes, 40)?,
            region_sequence: region_at(bytes, 48)?,
            first_batch: batch_at(bytes, 56)?,
        };
        if header.uuid != uuid {
            return Err(FormatError::Foreign);
        }
        if header.page != number {
            return Err(FormatError::Misplaced);
        }
        let (batches, entries) = (u32_at(bytes, 64) as usize, u32_at(bytes, 68) as usize);
        if bytes.len() / ENTRY_BYTES < entries
            || bytes.len() / COUNT_BYTES < batches
            || bytes.len() < self::bytes(batches, entries)
        {
            return Err(FormatError::Invalid("length"));
        }
        let (places, counts) = bytes[ENTRIES_AT..].split_at(entries * ENTRY_BYTES);
        let counts = counts[..batches * COUNT_BYTES].chunks_exact(COUNT_BYTES);
        contents.batches.extend(counts.map(|count| u16_at(count, 0)));
        for place in places.chunks_exact(ENTRY_BYTES) {
            contents.entries.push(BatchEntry::decode(place, geometry)?);
        }
        let named: usize = contents.batches.iter().map(|&count| usize::from(count)).sum();
        if batches == 0 || named != entries || contents.batches.contains(&0) {
            return Err(FormatError::Invalid("number of entries"));
        }
        contents.check_places(geometry)?;
        Ok(header)
    }
}

impl RegionContents {
    /// Whether every payload is where the batch places it, and wholly in the region.
    fn check_places(&self, geometry: &Geometry) -> Result<(), FormatError> {
        for (page, pages, entries) in self.each(geometry) {
            let mut next = 1;
            for entry in entries {
                if entry.cell != 0 {
                    return Err(FormatError::Invalid("location of a payload"));
                }
                if entry.kind == EntryKind::Data {
                    if u32::from(entry.offset) != next {
                        return Err(FormatError::Invalid("payload offset"));
                    }
                    next += geometry.payload_pages(entry.valid);
                }
            }
            if page.saturating_add(pages) > geometry.region_pages {
                return Err(FormatError::Invalid("number of pages"));
            }
        }
        Ok(())
    }
}
