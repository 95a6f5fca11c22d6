//! What a cache is built from: every number a parameter, so that a tiny one can be tested hard.

use forebay_block::{BlockSize, Nanos};
use forebay_flash::Geometry;

use crate::policy::{Acknowledge, Partial, WritePolicy};
use crate::replacement::ReplacementKind;

/// Parameters of a [`crate::Cache`].
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Size of a cached block: 4 to 64 KiB (512 B and up in tests).
    pub block_size: BlockSize,
    /// Blocks that DRAM holds by the accounting of the replacement policy.
    pub dram_blocks: u32,
    /// Further slots for blocks on their way out; at least 1 a shard.
    pub spare_slots: u32,
    /// Slots for copies on their way between flash, backing store and DRAM; at least 1 a shard.
    pub bounce_slots: u32,
    /// Where reads and writes go.
    pub write_policy: WritePolicy,
    /// When a write is answered under write-back.
    pub acknowledge: Acknowledge,
    /// What a write of part of a block does.
    pub partial: Partial,
    /// Replacement in DRAM.
    pub replacement: ReplacementKind,
    /// The flash tier, if there is one.
    pub flash: Option<FlashConfig>,
    /// Number of shards, 1 to 64.
    pub shards: u8,
    /// Requests in flight at most; a driver holds back more.
    pub requests_max: u32,
    /// Pieces of requests (a block each) that can wait at once; at least the blocks of the
    /// largest request that touches one extent.
    pub waiters_max: u32,
    /// Writes of a destage from flash that are in flight at most, a shard.
    pub destage_depth: u32,
    /// When the log has waited for so long for a backing store that fails, it is given up until
    /// the next start: who waits is told. 0 means never.
    pub give_up_after: Nanos,
}

/// The flash tier's part.
#[derive(Clone, Debug)]
pub struct FlashConfig {
    /// Geometry of the log.
    pub geometry: Geometry,
    /// Blocks the index can hold on flash; the log is reclaimed early when it is full. In the
    /// layout slots: all cells.
    pub entries_max: u32,
    /// Layout slots: blocks that flash holds by the accounting of the replacement policy, fewer
    /// than there are cells; the others are for records on their way. Without meaning in the
    /// layout log.
    pub blocks: u32,
    /// Regions kept free for writing ahead of reclaim.
    pub regions_reserved: u32,
}

/// A volume to attach.
#[derive(Clone, Copy, Debug)]
pub struct VolumeConfig {
    /// Exported size in bytes, a multiple of 512.
    pub size_bytes: u64,
    /// Refuse writes.
    pub read_only: bool,
}

impl CacheConfig {
    /// A small cache of `dram_blocks` blocks of 4 KiB without flash, write-back.
    pub fn dram_only(dram_blocks: u32) -> Self {
        CacheConfig {
            block_size: BlockSize::KIB_4,
            dram_blocks,
            spare_slots: (dram_blocks / 8).clamp(2, 1024),
            bounce_slots: 128,
            write_policy: WritePolicy::WRITE_BACK,
            acknowledge: Acknowledge::Dram,
            partial: Partial::Granule,
            replacement: ReplacementKind::Lru,
            flash: None,
            shards: 1,
            requests_max: 1024,
            waiters_max: 16 * 1024,
            destage_depth: 32,
            give_up_after: Nanos(60_000_000_000),
        }
    }

    /// DRAM slots that the driver provides: numbers 0 to this, exclusive.
    pub fn slots(&self) -> u32 {
        self.dram_blocks + self.spare_slots + self.bounce_slots
    }
}
