//! The parameters of a cache. Every limit is a parameter, so that tests can run tiny caches.

mod check;

pub use check::ConfigError;

use forebay_block::{BlockSize, Nanos};
use forebay_flash::Geometry;
use forebay_replacement::{
    AdmissionParameters, Kind as ReplacementKind, Parameters, Popularity, QueueParameters,
};

#[cfg(doc)]
use crate::combination::Combination;
use crate::place::Relation;
use crate::policy::{Acknowledge, Partial, WritePolicy};

/// Parameters of a [`crate::Cache`].
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Size of a cached block: 4 to 64 KiB, in tests from 512 B.
    pub block_size: BlockSize,
    /// Blocks in DRAM, by the accounting of the replacement policy.
    pub dram_blocks: u32,
    /// Frames beyond `dram_blocks`, for blocks that are leaving DRAM; at least 1 for each shard.
    pub spare_frames: u32,
    /// Frames into which data are read to be merged, or to be destaged from a block without a
    /// frame; at least 1 for each shard.
    pub bounce_frames: u32,
    /// Where reads and writes go.
    pub write_policy: WritePolicy,
    /// When a write is answered under write-back.
    pub acknowledge: Acknowledge,
    /// What a write of part of a block does.
    pub partial: Partial,
    /// How memory and flash share the blocks. Any relation but the default needs flash, and must
    /// match the [write policy](Combination).
    pub relation: Relation,
    /// Which requests bypass the cache.
    pub bypass: Bypass,
    /// Replacement in DRAM.
    pub replacement: Parameters,
    /// The flash tier, if there is one.
    pub flash: Option<FlashConfig>,
    /// Number of shards, 1 to 64.
    pub shards: u8,
    /// log2 of the bytes of a stripe, which is at least a block. A stripe belongs to one shard,
    /// and a trim handles it as a whole if none of it is cached.
    pub stripe_shift: u32,
    /// Largest number of requests in flight; a driver holds any others back.
    pub requests_max: u32,
    /// Largest number of transfers in progress in a shard on blocks without a frame; at least 1.
    pub transfers_spare: u32,
    /// Largest number of pieces of requests, of one block each, that can wait at once; at least the
    /// number of blocks of the largest request that touches one stripe.
    pub waiters_max: u32,
    /// Blocks of a request that are handed out in one step before other requests get their turn; at
    /// least 1.
    pub step_blocks: u32,
    /// Largest number of blocks of a request that are in progress or wait. The request takes its
    /// next step when few enough are left for it. At least the blocks of one step.
    pub request_blocks_max: u32,
    /// Most steps of work on whole regions and batches, of one record each, that a call takes while
    /// requests are served; the rest waits for the next call. At least 1.
    pub call_steps: u32,
    /// Most writes of a destage from flash in flight, for each shard.
    pub destage_depth: u32,
    /// How long writes wait for a failing backing store; then they fail, and its volume is
    /// suspended until the store works again. 0 means without limit.
    pub give_up_after: Nanos,
}

/// Which requests bypass the cache, on volumes that [allow it](VolumeConfig::bypass). A request
/// never bypasses a block that the cache holds: reads hit it there, and writes do to it what they
/// would do without a bypass. One exception: under write-back, a write that bypasses the cache
/// drops a clean block that is only in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bypass {
    /// Bytes: a read bypasses the cache if it continues a sequential stream at least this long. 0:
    /// no read does.
    pub reads: u64,
    /// Bytes: a write bypasses the cache if it continues a sequential stream at least this long. 0:
    /// no write does.
    pub writes: u64,
    /// Blocks: a write bypasses the cache if at least this many blocks of its volume are dirty. 0:
    /// no write does.
    pub dirty_blocks: u64,
}

/// The parameters of the flash tier.
#[derive(Clone, Debug)]
pub struct FlashConfig {
    /// Geometry of the log. For an existing tier it must be the one that the tier was formatted
    /// with, because the cache is built for it: read the tier's superblock and convert the geometry
    /// ([`Geometry::as_stored`]) before [`Cache::new`](crate::Cache::new). Otherwise the start is
    /// [refused](forebay_flash::LogError::Geometry).
    pub geometry: Geometry,
    /// The layout, which must be that of the geometry, with the parameters that only it has.
    pub layout: FlashLayout,
    /// Blocks the index can hold on flash; the log is reclaimed early when it is full. In the
    /// slots layout: all cells.
    pub entries_max: u32,
    /// Regions kept free for writing while others are reclaimed.
    pub regions_reserved: u32,
    /// Largest number of pages that recovery reads at once when it verifies payloads.
    pub recovery_chunk_pages: u32,
    /// Blocks of a line, which the relations [that have lines](Relation::has_lines) bring to flash
    /// together: a power of two, at most the blocks of a stripe; 1 disables lines.
    pub line_blocks: u32,
    /// Which blocks may enter flash.
    pub admission: AdmissionParameters,
    /// Whether the admission policy also applies to dirty blocks.
    pub written: Written,
    /// The parameters of the queues, under the relation that [has them](Relation::has_queues).
    pub queues: QueueParameters,
    /// The number of the read from flash at which a block moves to DRAM: at least 1, and in the
    /// slots layout at most [`SLOTS_READINGS_MAX`](FlashConfig::SLOTS_READINGS_MAX). Until then it
    /// is read from flash each time.
    pub promote_after: u8,
}

impl FlashConfig {
    /// A flash tier for unit tests, of `entries_max` entries: it admits everything, and reads
    /// single blocks.
    #[cfg(test)]
    pub(crate) fn plain(geometry: Geometry, layout: FlashLayout, entries_max: u32) -> FlashConfig {
        FlashConfig {
            geometry,
            layout,
            entries_max,
            regions_reserved: 1,
            recovery_chunk_pages: 1,
            admission: AdmissionParameters::default(),
            promote_after: 1,
            line_blocks: 1,
            queues: Default::default(),
            written: Default::default(),
        }
    }

    /// The most reads from flash that the slots layout counts.
    pub const SLOTS_READINGS_MAX: u8 = 31;

    /// The parameters of the slots layout, if that is the layout.
    pub fn slots(&self) -> Option<&SlotsConfig> {
        match &self.layout {
            FlashLayout::Log { .. } => None,
            FlashLayout::Slots(slots) => Some(slots),
        }
    }

    /// As [`slots`](FlashConfig::slots), to be changed.
    pub fn slots_mut(&mut self) -> Option<&mut SlotsConfig> {
        match &mut self.layout {
            FlashLayout::Log { .. } => None,
            FlashLayout::Slots(slots) => Some(slots),
        }
    }

    /// Blocks on flash by the accounting of replacement: in the log layout, all that the index can
    /// hold.
    pub fn blocks(&self) -> u32 {
        self.slots().map_or(self.entries_max, |slots| slots.blocks)
    }
}

/// How the flash tier stores blocks.
#[derive(Clone, Copy, Debug)]
pub enum FlashLayout {
    /// Records follow one another in a log, which is reclaimed region by region.
    Log {
        /// Which records of a region are reinserted when it is reclaimed.
        replacement: LogReplacement,
    },
    /// Each block has a cell, and is evicted alone.
    Slots(SlotsConfig),
}

/// The parameters of the slots layout.
#[derive(Clone, Copy, Debug)]
pub struct SlotsConfig {
    /// Blocks on flash by the accounting of the replacement policy, fewer than there are cells; the
    /// other cells are for records in flight.
    pub blocks: u32,
    /// The policy that chooses which block is evicted; it must [order
    /// cells](forebay_replacement::Tier::Slots).
    pub cells: Parameters,
    /// Takes the place of [`promote_after`](FlashConfig::promote_after) for a block with a dirty
    /// record, if it is larger and [in effect](CacheConfig::dirty_waits), while many of the blocks
    /// that leave flash return, and for a while after (`returns.rs`): such a record stays on flash
    /// when the block moves to DRAM.
    pub promote_dirty_after: u8,
    /// Whether dirty records of blocks that are also in DRAM are evicted early while many of the
    /// blocks that leave flash return (`returns.rs`).
    pub give_up_copies: bool,
}

/// Which dirty blocks that flash does not hold may enter flash and, under write-back acknowledged
/// by flash, which writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Written {
    /// Blocks that the admission policy admits.
    #[default]
    Ask,
    /// All.
    Enter,
    /// None.
    Avoid,
}

impl Written {
    /// All values.
    pub const ALL: [Written; 3] = [Written::Ask, Written::Enter, Written::Avoid];
}

/// Which clean records of a reclaimed log region are reinserted. They take at most half a region,
/// and only room that nothing else needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogReplacement {
    /// None: all are dropped.
    Fifo,
    /// Records that were read from flash since they were written; they then count as unread.
    SecondChance,
    /// Records that were read from flash at least [twice](LogReplacement::FREQUENT), the most read
    /// first; half of their reads then count.
    Frequency,
    /// Records whose [popularity](forebay_replacement::Popularity) among the blocks on flash is at
    /// least [`POPULAR`](LogReplacement::POPULAR), the most popular first; half of it then counts.
    Popularity,
}

impl LogReplacement {
    /// Reads from flash that make a record worth keeping, by frequency.
    pub const FREQUENT: u8 = 2;
    /// Popularity that makes a record worth keeping: that of a record read once at a distance below
    /// three sixteenths of the size of flash. With a lower value, more is written, and loops over
    /// blocks have fewer hits; a higher value is like [`FREQUENT`](LogReplacement::FREQUENT). See
    /// `docs/policies.md`.
    pub const POPULAR: u8 = Popularity::ONE / 8 * 7;
    /// All values.
    pub const ALL: [LogReplacement; 4] = [
        LogReplacement::Fifo,
        LogReplacement::SecondChance,
        LogReplacement::Frequency,
        LogReplacement::Popularity,
    ];

    /// Reads from flash, or popularity, that a record needs to be reinserted; `None` for FIFO.
    pub(crate) fn uses_min(self) -> Option<u8> {
        match self {
            LogReplacement::Fifo => None,
            LogReplacement::SecondChance => Some(1),
            LogReplacement::Frequency => Some(LogReplacement::FREQUENT),
            LogReplacement::Popularity => Some(LogReplacement::POPULAR),
        }
    }

    /// Whether the records with the highest worth are taken first.
    pub(crate) fn takes_hottest(self) -> bool {
        matches!(self, LogReplacement::Frequency | LogReplacement::Popularity)
    }

    /// The number of reads that a record keeps when it is reinserted.
    pub(crate) fn aged(self, uses: u8) -> u8 {
        if self.takes_hottest() { uses / 2 } else { 0 }
    }
}

/// A volume to attach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeConfig {
    /// Exported size in bytes, a multiple of 512.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Its priority, for replacement policies that use it; 1 is the highest.
    pub priority: u8,
    /// Whether its requests may [bypass](Bypass) the cache.
    pub bypass: bool,
}

impl VolumeConfig {
    /// A writable volume of the highest priority.
    pub fn new(size_bytes: u64) -> VolumeConfig {
        VolumeConfig { size_bytes, read_only: false, priority: 1, bypass: true }
    }
}

impl CacheConfig {
    /// A shard's share of a total number.
    pub(crate) fn share(&self, shard: u8, total: u32) -> u32 {
        let n = u32::from(self.shards);
        total / n + u32::from(u32::from(shard) < total % n)
    }

    /// Whether [`promote_dirty_after`](SlotsConfig::promote_dirty_after) is in effect: in the slots
    /// layout, under the relation exclusive, with at most a quarter as many blocks in DRAM as on
    /// flash, as configured. A block that is read from flash is remembered as long as flash
    /// remembers it, not as long as both tiers do, so the cost grows with the size of DRAM.
    pub fn dirty_waits(&self) -> bool {
        let Some(flash) = &self.flash else { return false };
        self.relation == Relation::Exclusive
            && flash.slots().is_some_and(|slots| {
                slots.promote_dirty_after > flash.promote_after
                    && self.dram_blocks <= slots.blocks / 4
            })
    }

    /// Which dirty blocks may enter flash.
    pub(crate) fn written(&self) -> Written {
        self.flash.as_ref().map_or(Written::Ask, |flash| flash.written)
    }

    /// Default [`stripe_shift`](Self::stripe_shift): 1 MiB.
    pub const STRIPE_SHIFT: u32 = 20;
    /// Default [`transfers_spare`](Self::transfers_spare).
    pub const TRANSFERS_SPARE: u32 = 1024;
    /// Most frames, bounce frames and spare transfers of a shard together: each may have a transfer
    /// in progress, and an index entry has 24 bits for the number of its transfer.
    pub const TRANSFERS_MAX: u32 = crate::shard::entry::TRANSFERS_MAX;
    /// Most blocks that the index of a shard has room for.
    pub const ENTRIES_MAX: u32 = crate::shard::index::ENTRIES_MAX;
    /// Default [`step_blocks`](Self::step_blocks): the length of the longest transfer.
    pub const STEP_BLOCKS: u32 = 256;
    /// Default [`call_steps`](Self::call_steps): about 20 microseconds.
    pub const CALL_STEPS: u32 = 256;
    /// Default [`request_blocks_max`](Self::request_blocks_max): 32 MiB in blocks of 4 KiB, the
    /// longest read or write of a client. A trim may be as long as the volume; this limit leaves
    /// transfers and waiting places to other requests.
    pub const REQUEST_BLOCKS_MAX: u32 = 8192;

    /// A small cache of `dram_blocks` blocks of 4 KiB without flash, write-back.
    pub fn dram_only(dram_blocks: u32) -> Self {
        CacheConfig {
            block_size: BlockSize::KIB_4,
            dram_blocks,
            spare_frames: (dram_blocks / 8).clamp(2, 1024),
            bounce_frames: 128,
            write_policy: WritePolicy::WRITE_BACK,
            acknowledge: Acknowledge::Dram,
            partial: Partial::Granule,
            relation: Relation::Exclusive,
            bypass: Bypass::default(),
            replacement: Parameters::new(ReplacementKind::Lru),
            flash: None,
            shards: 1,
            stripe_shift: CacheConfig::STRIPE_SHIFT,
            requests_max: 1024,
            transfers_spare: CacheConfig::TRANSFERS_SPARE,
            waiters_max: 16 * 1024,
            step_blocks: CacheConfig::STEP_BLOCKS,
            request_blocks_max: CacheConfig::REQUEST_BLOCKS_MAX,
            call_steps: CacheConfig::CALL_STEPS,
            destage_depth: 32,
            give_up_after: Nanos(60_000_000_000),
        }
    }

    /// Largest number of transfers of a shard; of the largest shard if their sizes differ.
    pub fn transfers(&self) -> u64 {
        let n = u64::from(self.shards).max(1);
        let frames = (u64::from(self.dram_blocks) + u64::from(self.spare_frames)).div_ceil(n);
        frames + u64::from(self.bounce_frames).div_ceil(n) + u64::from(self.transfers_spare)
    }

    /// Number of DRAM frames that the driver provides, numbered from 0, in a configuration that
    /// [`check`](CacheConfig::check) accepts.
    pub fn frames(&self) -> u32 {
        self.dram_blocks + self.spare_frames + self.bounce_frames
    }
}
