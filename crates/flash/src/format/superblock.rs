//! The superblock: what must be remembered about the log as a whole. Two copies lie at the start of
//! the device.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 20 | prefix, magic `FOREBAY\n`, small number = layout (0: log, 1: slots), covering whole pages |
//! | 20 | 4 | flags: 1 = stopped cleanly |
//! | 24 | 16 | UUID of the log |
//! | 40 | 8 | generation: +1 for each update |
//! | 48 | 8 | epoch: +1 for each start |
//! | 56 | 4 | block size in bytes |
//! | 60 | 4 | page size in bytes |
//! | 64 | 4 | pages of a region |
//! | 68 | 4 | number of regions |
//! | 72 | 4 | pages of a superblock copy |
//! | 76 | 4 | number of cells; 0 in the log layout |
//! | 80 | 8 | bytes of an extent of the activity log |
//! | 88 | 8 | tail: sequence of the oldest region that counts |
//! | 96 | 8 | sequence of the tail region's first batch |
//! | 104 | 8 | highest batch sequence known to be durable |
//! | 112 | 8 | `clean_before`: records of batches up to and including this one are clean |
//! | 120 | 2 | number of epochs |
//! | 122 | 2 | number of active extents |
//! | 124 | 2 | number of bound volumes |
//! | 126 | 2 | zeroes |
//! | 128 | 16 each | epochs: sequence of the first batch (8), epoch (8); ascending |
//! | | 8 each | active extents: key of the first block |
//! | | 96 each | bound volumes: index (2), size (6), UUID (16), generation (8), distrusted (8), seal (32), stamp (8), voided (8), logged (8) |
//!
//! The size of a volume counts units of 512 bytes; 0 means that it is unknown, because earlier
//! releases wrote zeroes there. In version 1, bound volumes took 32 bytes each, and ended with the
//! generation. A stamp of 0 means none, because earlier releases wrote zeroes there, too.

use super::{
    FormatError, array_at, batch_at, generation_at, open, put, region_at, seal, sequence_at,
    stamp_at, u16_at, u32_at, u64_at, version_of,
};
use crate::binding::Binding;
use crate::epochs::{self, EPOCHS_MAX, EpochStart, FIRST_EPOCH};
use crate::geometry::Geometry;
use crate::identity::{StoreId, TierId};
use crate::key::BlockKey;
use crate::sequence::{BatchSequence, RegionSequence, SuperblockGeneration};
use forebay_block::Volume;

/// Magic number of a superblock.
pub const MAGIC: [u8; 8] = *b"FOREBAY\n";
/// Possible offsets of the second copy, in bytes, for all page sizes: 16 pages of 4 KiB to 64 KiB
/// after the first, or as many smaller ones as take 64 KiB.
pub const SECOND_COPIES_AT: [u64; 5] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
const TABLES_AT: usize = 128;
const EPOCH_BYTES: usize = 16;
const ACTIVE_BYTES: usize = 8;
const BINDING_BYTES: usize = 96;
const BINDING_BYTES_V1: usize = 32;
const CLEAN: u32 = 1;
/// The size of a volume is a multiple of this.
const SIZE_UNIT: u64 = 512;
const SIZE_BYTES: usize = 6;

/// Most volumes that can be bound under this geometry.
pub fn bindings_max(geometry: &Geometry) -> u32 {
    let room = geometry.superblock_pages as usize * geometry.page_size as usize;
    let used =
        TABLES_AT + EPOCHS_MAX * EPOCH_BYTES + geometry.active_extents_max as usize * ACTIVE_BYTES;
    (room.saturating_sub(used) / BINDING_BYTES).min(usize::from(u16::MAX)) as u32
}

/// A superblock, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// How records are placed: 0 = log, 1 = slots.
    pub layout: u16,
    /// Whether the last run stopped cleanly.
    pub clean: bool,
    /// UUID of the log.
    pub uuid: TierId,
    /// Number of this update.
    pub generation: SuperblockGeneration,
    /// Number of the run that wrote it.
    pub epoch: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a page.
    pub page_size: u32,
    /// Pages of a region.
    pub region_pages: u32,
    /// Number of regions.
    pub regions: u32,
    /// Pages of a superblock copy.
    pub superblock_pages: u32,
    /// Number of cells; 0 in the log layout.
    pub slots: u32,
    /// Bytes of an extent of the activity log.
    pub extent_bytes: u64,
    /// Sequence of the oldest region that counts.
    pub tail_region: RegionSequence,
    /// Sequence of the tail region's first batch.
    pub tail_batch: BatchSequence,
    /// Highest batch sequence known to be durable.
    pub synced: BatchSequence,
    /// Records of batches up to and including this one are clean.
    pub clean_before: BatchSequence,
    /// Which epoch wrote which batches.
    pub epochs: Vec<EpochStart>,
    /// First blocks of the extents that are open for direct writes.
    pub active: Vec<BlockKey>,
    /// The bound volumes.
    pub bindings: Vec<Binding>,
}

impl Superblock {
    /// The superblock of a new log with these volumes.
    ///
    /// # Panics
    /// If there are more volumes than the superblock has room for.
    pub fn of_new_log(uuid: TierId, bindings: Vec<Binding>, g: &Geometry) -> Superblock {
        let room = bindings_max(g) as usize;
        assert!(bindings.len() <= room, "the superblock holds at most {room} volumes");
        let mut starts = Vec::with_capacity(EPOCHS_MAX + 1);
        epochs::begin(&mut starts, BatchSequence::FIRST, BatchSequence::FIRST, FIRST_EPOCH);
        Superblock {
            layout: g.layout().number(),
            clean: false,
            uuid,
            generation: SuperblockGeneration::NONE,
            epoch: FIRST_EPOCH,
            block_size: g.block_size,
            page_size: g.page_size,
            region_pages: g.region_pages,
            regions: g.regions,
            superblock_pages: g.superblock_pages,
            slots: g.slots,
            extent_bytes: g.extent_bytes,
            tail_region: RegionSequence::FIRST,
            tail_batch: BatchSequence::FIRST,
            synced: BatchSequence::NONE,
            clean_before: BatchSequence::NONE,
            epochs: starts,
            active: Vec::with_capacity(g.active_extents_max as usize),
            bindings,
        }
    }

    /// Fills the start of `bytes`, a multiple of the page size; returns the number of bytes used,
    /// in whole pages.
    ///
    /// # Panics
    /// If the tables do not fit; their sizes are checked where they grow.
    pub fn encode(&self, bytes: &mut [u8]) -> usize {
        let length = self.bytes(self.active.len());
        let bytes = &mut bytes[..length];
        bytes.fill(0);
        put(bytes, 20, &(if self.clean { CLEAN } else { 0 }).to_le_bytes());
        put(bytes, 24, self.uuid.bytes());
        put(bytes, 40, &self.generation.0.to_le_bytes());
        put(bytes, 48, &self.epoch.to_le_bytes());
        for (at, value) in [
            (56, self.block_size),
            (60, self.page_size),
            (64, self.region_pages),
            (68, self.regions),
            (72, self.superblock_pages),
            (76, self.slots),
        ] {
            put(bytes, at, &value.to_le_bytes());
        }
        for (at, value) in [
            (80, self.extent_bytes),
            (88, self.tail_region.0),
            (96, self.tail_batch.0),
            (104, self.synced.0),
            (112, self.clean_before.0),
        ] {
            put(bytes, at, &value.to_le_bytes());
        }
        put(bytes, 120, &(self.epochs.len() as u16).to_le_bytes());
        put(bytes, 122, &(self.active.len() as u16).to_le_bytes());
        put(bytes, 124, &(self.bindings.len() as u16).to_le_bytes());
        let mut at = TABLES_AT;
        for start in &self.epochs {
            put(bytes, at, &start.first_batch.0.to_le_bytes());
            put(bytes, at + 8, &start.epoch.to_le_bytes());
            at += EPOCH_BYTES;
        }
        for key in &self.active {
            put(bytes, at, &key.0.to_le_bytes());
            at += ACTIVE_BYTES;
        }
        for binding in &self.bindings {
            put(bytes, at, &(binding.volume.0 as u16).to_le_bytes());
            let units = binding.size / SIZE_UNIT;
            let fits = units < 1 << (8 * SIZE_BYTES);
            put(bytes, at + 2, &(if fits { units } else { 0 }).to_le_bytes()[..SIZE_BYTES]);
            put(bytes, at + 8, binding.uuid.bytes());
            put(bytes, at + 24, &binding.generation.to_le_bytes());
            put(bytes, at + 32, &binding.distrusted.0.to_le_bytes());
            put(bytes, at + 40, &binding.seal);
            put(bytes, at + 72, &binding.stamp.0.to_le_bytes());
            put(bytes, at + 80, &binding.voided.0.to_le_bytes());
            put(bytes, at + 88, &binding.logged.0.to_le_bytes());
            at += BINDING_BYTES;
        }
        seal(bytes, &MAGIC, self.layout);
        length
    }

    /// The size in bytes, in whole pages, that the superblock at the start of `bytes` states for
    /// itself; nothing is verified.
    pub fn stated_bytes(bytes: &[u8]) -> usize {
        u32_at(bytes, 12) as usize
    }

    /// Bytes of the first superblock of a new log, in whole pages, if this many volumes are bound.
    pub fn first_bytes(page_size: u32, volumes: usize) -> usize {
        (TABLES_AT + EPOCH_BYTES + volumes * BINDING_BYTES).next_multiple_of(page_size as usize)
    }

    /// Whether `bytes` begin like a superblock of the log `uuid`; nothing is verified.
    pub fn begins_as_of(bytes: &[u8], uuid: TierId) -> bool {
        bytes.starts_with(&MAGIC) && bytes[24..].starts_with(uuid.bytes())
    }

    /// The epoch that the next start begins.
    pub const fn next_epoch(&self) -> u64 {
        self.epoch + 1
    }

    /// Offset of the second copy, in bytes.
    pub fn second_copy_at(&self) -> u64 {
        u64::from(self.superblock_pages) * u64::from(self.page_size)
    }

    /// Size of the superblock in bytes, in whole pages, if `active` extents are active.
    pub fn bytes(&self, active: usize) -> usize {
        (TABLES_AT
            + self.epochs.len() * EPOCH_BYTES
            + active * ACTIVE_BYTES
            + self.bindings.len() * BINDING_BYTES)
            .next_multiple_of(self.page_size as usize)
    }

    /// Decodes the superblock at the start of `bytes`.
    ///
    /// # Errors
    /// If there is none, or it is damaged or of a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, FormatError> {
        let (layout, bytes) = open(bytes, &MAGIC)?;
        let sealable = version_of(bytes) >= 2;
        let binding_bytes = if sealable { BINDING_BYTES } else { BINDING_BYTES_V1 };
        if bytes.len() < TABLES_AT {
            return Err(FormatError::Invalid("length"));
        }
        let [epochs, active, bindings] = [120, 122, 124].map(|at| usize::from(u16_at(bytes, at)));
        let active_at = TABLES_AT + epochs * EPOCH_BYTES;
        let bindings_at = active_at + active * ACTIVE_BYTES;
        if bytes.len() < bindings_at + bindings * binding_bytes {
            return Err(FormatError::Invalid("length of the tables"));
        }
        let epochs: Vec<_> = (0..epochs)
            .map(|n| TABLES_AT + n * EPOCH_BYTES)
            .map(|at| {
                let first_batch = BatchSequence(u64_at(bytes, at));
                EpochStart { first_batch, epoch: u64_at(bytes, at + 8) }
            })
            .collect();
        let ascending =
            |w: &[EpochStart]| w[0].first_batch < w[1].first_batch && w[0].epoch < w[1].epoch;
        let epoch = sequence_at(bytes, 48)?;
        if epochs.last().is_none_or(|last| last.epoch != epoch)
            || epochs.len() > EPOCHS_MAX
            || !epochs.windows(2).all(ascending)
        {
            return Err(FormatError::Invalid("table of epochs"));
        }
        Ok(Superblock {
            layout,
            clean: u32_at(bytes, 20) & CLEAN != 0,
            uuid: TierId::from_bytes(array_at(bytes, 24)).ok_or(FormatError::Invalid("UUID"))?,
            generation: generation_at(bytes, 40)?,
            epoch,
            block_size: u32_at(bytes, 56),
            page_size: u32_at(bytes, 60),
            region_pages: u32_at(bytes, 64),
            regions: u32_at(bytes, 68),
            superblock_pages: u32_at(bytes, 72),
            slots: u32_at(bytes, 76),
            extent_bytes: u64_at(bytes, 80),
            tail_region: region_at(bytes, 88)?,
            tail_batch: batch_at(bytes, 96)?,
            synced: batch_at(bytes, 104)?,
            clean_before: batch_at(bytes, 112)?,
            epochs,
            active: (0..active)
                .map(|n| BlockKey(u64_at(bytes, active_at + n * ACTIVE_BYTES)))
                .collect(),
            bindings: (0..bindings)
                .map(|n| &bytes[bindings_at + n * binding_bytes..][..binding_bytes])
                .map(|bytes| {
                    let volume = Volume(u16_at(bytes, 0).into());
                    let generation = u64_at(bytes, 24);
                    let store = StoreId::new(array_at(bytes, 8));
                    let binding = Binding::new(volume, store, generation);
                    if !sealable {
                        return Ok(binding);
                    }
                    let distrusted = batch_at(bytes, 32)?;
                    let (stamp, voided) = (stamp_at(bytes, 72)?, batch_at(bytes, 80)?);
                    let (seal, logged) = (array_at(bytes, 40), stamp_at(bytes, 88)?);
                    let mut size = [0; 8];
                    size[..SIZE_BYTES].copy_from_slice(&bytes[2..2 + SIZE_BYTES]);
                    let size = u64::from_le_bytes(size) * SIZE_UNIT;
                    Ok(Binding { distrusted, voided, seal, stamp, logged, size, ..binding })
                })
                .collect::<Result<_, FormatError>>()?,
        })
    }
}
