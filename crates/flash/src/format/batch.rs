//! The header page of a batch; the payloads follow it, each from a page boundary on. In the
//! slots layout nothing follows: payloads lie in cells.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 20 | prefix, magic `FBATCH\r\n`, small number = number of entries, covering the page |
//! | 20 | 4 | page number of this page on the device |
//! | 24 | 16 | UUID of the log |
//! | 40 | 8 | epoch |
//! | 48 | 8 | batch sequence: +1 each, across regions |
//! | 56 | 8 | region sequence |
//! | 64 | 8 | highest batch sequence known to be durable |
//! | 72 | 8 | superblock generation known to be durable |
//! | 80 | 4 | pages of the batch, this one included |
//! | 84 | 12 | zeroes |
//! | 96 | 24 each | entries |
//!
//! An entry: key (8), valid granules (2), dirty granules (2), kind (1: 0 data, 1 tombstone, 2
//! lost), a zero (1), pages from this page to its payload (2; 0 in the slots layout), CRC-32C of
//! its payload (4), number of its cell (4; 0 in the log layout). The payload is the valid granules,
//! one after another. Granules that are dirty and not valid are *lost*: their newest data could no
//! longer be read when the entry was written.

use super::{
    FormatError, batch_at, generation_at, open, put, region_at, seal, sequence_at, tier_at, u16_at,
    u32_at, u64_at,
};
use crate::geometry::Geometry;
use crate::granules::Granules;
use crate::identity::TierId;
use crate::key::BlockKey;
use crate::sequence::{BatchSequence, RegionSequence, SuperblockGeneration};

/// Magic number of a batch header.
pub const MAGIC: [u8; 8] = *b"FBATCH\r\n";
const ENTRIES_AT: usize = 96;
pub(super) const ENTRY_BYTES: usize = 24;

/// Largest number of entries that a header page holds.
pub const fn entries_max(page_size: u32) -> u32 {
    page_size.saturating_sub(ENTRIES_AT as u32) / ENTRY_BYTES as u32
}

/// A batch header, decoded, without its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// UUID of the log.
    pub uuid: TierId,
    /// Page number of the header on the device.
    pub page: u32,
    /// Epoch in which it was written.
    pub epoch: u64,
    /// Batch sequence.
    pub sequence: BatchSequence,
    /// Sequence of the region it was written into.
    pub region_sequence: RegionSequence,
    /// Highest batch sequence known to be durable when it was written.
    pub synced: BatchSequence,
    /// Superblock generation known to be durable when it was written.
    pub generation: SuperblockGeneration,
    /// Pages, the header's included.
    pub pages: u32,
}

/// The meaning of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// Holds granules of its block.
    Data,
    /// Voids every older record of its block.
    Tombstone,
    /// Like a tombstone, and says that the newest data of its dirty granules are lost; only in the
    /// log layout.
    Lost,
}

/// The offset of an entry, in the slots layout, that only repeats the location of a payload.
pub const MOVED: u16 = 1;

/// An entry of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchEntry {
    /// The block.
    pub key: BlockKey,
    /// The meaning.
    pub kind: EntryKind,
    /// Valid granules; 0 without a payload.
    pub valid: Granules,
    /// Dirty granules; those that are not valid are lost.
    pub dirty: Granules,
    /// Pages from the header to the payload; 0 without one. In the slots layout 0 if the batch
    /// wrote the payload, [`MOVED`] if the payload was already in its cell.
    pub offset: u16,
    /// Number of the cell that holds the payload, in the slots layout; else 0.
    pub cell: u32,
    /// CRC-32C of the payload; 0 without one.
    pub checksum: u32,
}

impl BatchHeader {
    /// Fills `page` with the header and its entries.
    ///
    /// # Panics
    /// If there are more entries than [`entries_max`].
    pub fn encode(&self, entries: impl Iterator<Item = BatchEntry>, page: &mut [u8]) {
        page.fill(0);
        put(page, 20, &self.page.to_le_bytes());
        put(page, 24, self.uuid.bytes());
        for (at, value) in [
            (40, self.epoch),
            (48, self.sequence.0),
            (56, self.region_sequence.0),
            (64, self.synced.0),
            (72, self.generation.0),
        ] {
            put(page, at, &value.to_le_bytes());
        }
        put(page, 80, &self.pages.to_le_bytes());
        let mut count = 0;
        for entry in entries {
            entry.encode(&mut page[ENTRIES_AT + usize::from(count) * ENTRY_BYTES..][..ENTRY_BYTES]);
            count += 1;
        }
        seal(page, &MAGIC, count);
    }

    /// Decodes the header in `page`, which was read from page number `number` of the log `uuid`.
    /// Its entries replace the contents of `entries` (ignore these after an error).
    ///
    /// # Errors
    /// If the page holds no batch header of this log written for this place, or one that is invalid
    /// under `geometry`.
    pub fn decode(
        page: &[u8],
        uuid: TierId,
        number: u32,
        geometry: &Geometry,
        entries: &mut Vec<BatchEntry>,
    ) -> Result<Self, FormatError> {
        entries.clear();
        let (count, bytes) = open(page, &MAGIC)?;
        let count = usize::from(count);
        if bytes.len() < ENTRIES_AT + count * ENTRY_BYTES {
            return Err(FormatError::Invalid("length"));
        }
        let header = BatchHeader {
            uuid: tier_at(bytes)?,
            page: u32_at(bytes, 20),
            epoch: sequence_at(bytes, 40)?,
            sequence: batch_at(bytes, 48)?,
            region_sequence: region_at(bytes, 56)?,
            synced: batch_at(bytes, 64)?,
            generation: generation_at(bytes, 72)?,
            pages: u32_at(bytes, 80),
        };
        if header.uuid != uuid {
            return Err(FormatError::Foreign);
        }
        if header.page != number {
            return Err(FormatError::Misplaced);
        }
        let mut next = 1;
        for at in (0..count).map(|n| ENTRIES_AT + n * ENTRY_BYTES) {
            let entry = BatchEntry::decode(&bytes[at..at + ENTRY_BYTES], geometry)?;
            let slots = geometry.has_slots();
            let most = if entry.kind == EntryKind::Data { MOVED } else { 0 };
            let lost = entry.kind == EntryKind::Lost || !(entry.dirty & !entry.valid).is_empty();
            if slots && (entry.offset > most || lost) || entry.cell >= geometry.slots.max(1) {
                return Err(FormatError::Invalid("location of a payload"));
            }
            if entry.kind == EntryKind::Data && !slots {
                if u32::from(entry.offset) != next {
                    return Err(FormatError::Invalid("payload offset"));
                }
                next += geometry.payload_pages(entry.valid);
            }
            entries.push(entry);
        }
        if count == 0 || header.pages != next {
            return Err(FormatError::Invalid("number of pages"));
        }
        Ok(header)
    }
}

impl BatchEntry {
    pub(super) fn encode(&self, bytes: &mut [u8]) {
        put(bytes, 0, &self.key.0.to_le_bytes());
        put(bytes, 8, &self.valid.0.to_le_bytes());
        put(bytes, 10, &self.dirty.0.to_le_bytes());
        bytes[12] = match self.kind {
            EntryKind::Data => 0,
            EntryKind::Tombstone => 1,
            EntryKind::Lost => 2,
        };
        put(bytes, 14, &self.offset.to_le_bytes());
        put(bytes, 16, &self.checksum.to_le_bytes());
        put(bytes, 20, &self.cell.to_le_bytes());
    }

    pub(super) fn decode(bytes: &[u8], geometry: &Geometry) -> Result<BatchEntry, FormatError> {
        let entry = BatchEntry {
            key: BlockKey(u64_at(bytes, 0)),
            kind: match bytes[12] {
                0 => EntryKind::Data,
                1 => EntryKind::Tombstone,
                2 => EntryKind::Lost,
                _ => return Err(FormatError::Invalid("entry kind")),
            },
            valid: Granules(u16_at(bytes, 8)),
            dirty: Granules(u16_at(bytes, 10)),
            offset: u16_at(bytes, 14),
            checksum: u32_at(bytes, 16),
            cell: u32_at(bytes, 20),
        };
        let granules_ok = ((entry.valid | entry.dirty) & !geometry.all_granules()).is_empty();
        let bare =
            entry.valid.is_empty() && entry.offset == 0 && entry.checksum == 0 && entry.cell == 0;
        let kind_ok = match entry.kind {
            EntryKind::Data => !entry.valid.is_empty(),
            EntryKind::Tombstone => bare && entry.dirty.is_empty(),
            EntryKind::Lost => bare && !entry.dirty.is_empty(),
        };
        if granules_ok && kind_ok { Ok(entry) } else { Err(FormatError::Invalid("entry")) }
    }
}
