//! What a cache is built from: every number a parameter, so that a tiny one can be tested hard.

use forebay_block::{BlockSize, Nanos};
use forebay_flash::Geometry;
use forebay_replacement::{AdmissionParameters, Kind, Parameters, Popularity, QueueParameters};

use crate::combination::Combination;
use crate::place::Relation;
use crate::policy::{Acknowledge, Partial, WritePolicy};

/// Parameters of a [`crate::Cache`].
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Size of a cached block: 4 to 64 KiB (512 B and up in tests).
    pub block_size: BlockSize,
    /// Blocks that DRAM holds by the accounting of the replacement policy.
    pub dram_blocks: u32,
    /// Frames beyond `dram_blocks`, for blocks that are leaving DRAM; at least 1 a shard.
    pub spare_frames: u32,
    /// Frames for data that is read to be merged or destaged, of blocks without a frame of their own; at least 1 a
    /// shard.
    pub bounce_frames: u32,
    /// Where reads and writes go.
    pub write_policy: WritePolicy,
    /// When a write is answered under write-back.
    pub acknowledge: Acknowledge,
    /// What a write of part of a block does.
    pub partial: Partial,
    /// How memory and flash share the blocks; any but the default needs flash, and has to go together with the
    /// [write policy](Combination).
    pub relation: Relation,
    /// What goes past the cache.
    pub bypass: Bypass,
    /// Replacement in DRAM.
    pub replacement: Parameters,
    /// The flash tier, if there is one.
    pub flash: Option<FlashConfig>,
    /// Number of shards, 1 to 64.
    pub shards: u8,
    /// log2 of the bytes of an extent, at least of a block: what belongs to one shard, and what a
    /// trim takes as one where nothing of it is cached.
    pub extent_shift: u32,
    /// Requests in flight at most; a driver holds back more.
    pub requests_max: u32,
    /// Transfers that can be under way in a shard on blocks that have no frame; at least one.
    pub transfers_spare: u32,
    /// Pieces of requests (a block each) that can wait at once; at least the blocks of the
    /// largest request that touches one extent.
    pub waiters_max: u32,
    /// Blocks of a request that are handed out in one go before others get their turn; at least 1.
    pub step_blocks: u32,
    /// Blocks of a request that are under way at most, or wait; the next step of the request comes
    /// when so few are left that it fits. At least a step.
    pub request_blocks_max: u32,
    /// Steps of work on whole regions and batches that a call takes at most while requests are served (a record
    /// each); the rest waits for the next call. At least 1.
    pub call_steps: u32,
    /// Writes of a destage from flash that are in flight at most, a shard.
    pub destage_depth: u32,
    /// When the log has waited for so long for a backing store that fails, it is given up until
    /// the next start: requests that wait fail. 0 means never.
    pub give_up_after: Nanos,
}

/// Which requests bypass the cache, on volumes that [allow it](VolumeConfig::bypass). A request never bypasses
/// a block that the cache holds: reads find it there, and writes update it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bypass {
    /// Bytes: a read bypasses the cache if it continues a sequential stream at least this long. 0: no read does.
    pub reads: u64,
    /// Bytes: a write bypasses the cache if it continues a sequential stream at least this long. 0: no write does.
    pub writes: u64,
    /// Blocks: a write bypasses the cache if at least this many blocks of its volume are dirty. 0: no write does.
    pub dirty_blocks: u64,
}

/// The flash tier's part.
#[derive(Clone, Debug)]
pub struct FlashConfig {
    /// Geometry of the log.
    pub geometry: Geometry,
    /// Blocks the index can hold on flash; the log is reclaimed early when it is full. In the
    /// slots layout: all cells.
    pub entries_max: u32,
    /// Slots layout: blocks that flash holds by the accounting of the replacement policy, fewer
    /// than there are cells; the others are for records in flight. Without meaning in the
    /// log layout.
    pub blocks: u32,
    /// Regions kept free for writing ahead of reclaim.
    pub regions_reserved: u32,
    /// Pages that recovery reads at once where it looks through payloads, at most.
    pub recovery_chunk_pages: u32,
    /// Log layout: which records of a region that is to be used again are inserted again.
    pub replacement: LogReplacement,
    /// Slots layout: which block gives way, by a policy that [orders cells](forebay_replacement::Tier::Slots).
    pub cells: Parameters,
    /// Blocks of a line, which the relations [that have lines](Relation::has_lines) bring to flash together: a
    /// power of two, no more than an extent has; 1 is no line.
    pub line_blocks: u32,
    /// Which blocks may enter flash.
    pub admission: AdmissionParameters,
    /// Whether that holds for what is dirty.
    pub written: Written,
    /// How the queues are set, under the relation that [has them](Relation::has_queues).
    pub queues: QueueParameters,
    /// The reading of a block from flash at which it moves to DRAM, at least 1, and in the slots layout at most
    /// [`SLOTS_READINGS_MAX`](FlashConfig::SLOTS_READINGS_MAX). Before that it is read from flash each time.
    pub promote_after: u8,
    /// `promote_after` for a block with a dirty record, if larger and [in effect](CacheConfig::dirty_waits), while
    /// many of the blocks that leave flash return, and for a while after (`returns.rs`): such a record stays
    /// when the block moves to DRAM.
    pub promote_dirty_after: u8,
    /// Slots layout: dirty records of blocks that are also in DRAM give way early while many of the blocks that
    /// leave flash return (`returns.rs`).
    pub give_up_copies: bool,
}

impl FlashConfig {
    /// The most readings from flash that the slots layout counts.
    pub const SLOTS_READINGS_MAX: u8 = 31;
}

/// Which dirty blocks, and under write-back that flash acknowledges which writes, may enter flash, if flash
/// has nothing of the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Written {
    /// Blocks that the admission policy lets in.
    #[default]
    Ask,
    /// All.
    Enter,
    /// None.
    Avoid,
}

impl Written {
    /// All of them.
    pub const ALL: [Written; 3] = [Written::Ask, Written::Enter, Written::Avoid];
}

/// What becomes of the clean records of a region of the log that is to be used again. Those that are inserted
/// again take half a region at most, and room that nothing else needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogReplacement {
    /// They are dropped.
    Fifo,
    /// Blocks that were read from flash since they were written are inserted again, and count as unread then.
    SecondChance,
    /// Blocks that were read from flash at least [twice](LogReplacement::FREQUENT) are inserted again, those that
    /// were read most first, and half of their readings are forgotten.
    Frequency,
    /// Blocks whose [popularity](forebay_replacement::Popularity) among those on flash is at least
    /// [`POPULAR`](LogReplacement::POPULAR) are inserted again, the most popular first, and half of it is forgotten.
    Popularity,
}

impl LogReplacement {
    /// Readings from flash that make a record worth keeping, by frequency.
    pub const FREQUENT: u8 = 2;
    /// Popularity that makes a record worth keeping: that of a reading at a distance below three sixteenths of what flash
    /// holds. (With less, more is written and less is hit where blocks are read in loops; with more it is
    /// [`FREQUENT`](LogReplacement::FREQUENT) again: `docs/policies.md`.)
    pub const POPULAR: u8 = Popularity::ONE / 8 * 7;
    /// All of them.
    pub const ALL: [LogReplacement; 4] = [
        LogReplacement::Fifo,
        LogReplacement::SecondChance,
        LogReplacement::Frequency,
        LogReplacement::Popularity,
    ];

    /// Readings from flash, or popularity, that a record needs to be inserted again; none is enough for FIFO.
    pub(crate) fn uses_min(self) -> Option<u8> {
        match self {
            LogReplacement::Fifo => None,
            LogReplacement::SecondChance => Some(1),
            LogReplacement::Frequency => Some(LogReplacement::FREQUENT),
            LogReplacement::Popularity => Some(LogReplacement::POPULAR),
        }
    }

    /// Whether of records that are worth it those come first that are worth most.
    pub(crate) fn takes_hottest(self) -> bool {
        matches!(self, LogReplacement::Frequency | LogReplacement::Popularity)
    }

    /// What a record that has been inserted again keeps of its readings.
    pub(crate) fn aged(self, uses: u8) -> u8 {
        if self.takes_hottest() { uses / 2 } else { 0 }
    }
}

/// A volume to attach.
#[derive(Clone, Copy, Debug)]
pub struct VolumeConfig {
    /// Exported size in bytes, a multiple of 512.
    pub size_bytes: u64,
    /// Refuse writes.
    pub read_only: bool,
    /// Its priority, for replacement policies that look at it; 1 is the highest.
    pub priority: u8,
    /// Whether its requests may [bypass](Bypass) the cache.
    pub bypass: bool,
}

impl VolumeConfig {
    /// A volume that can be written, of the highest priority.
    pub fn new(size_bytes: u64) -> VolumeConfig {
        VolumeConfig { size_bytes, read_only: false, priority: 1, bypass: true }
    }
}

impl CacheConfig {
    /// Refuses what is impossible.
    ///
    /// # Panics
    /// See [`Cache::new`](crate::Cache::new).
    pub(crate) fn check(&self) {
        assert!(self.shards >= 1 && self.shards <= 64, "1 to 64 shards");
        let steps = 1..=self.request_blocks_max;
        assert!(steps.contains(&self.step_blocks), "a step is 1 to `request_blocks_max` blocks");
        assert!(self.call_steps >= 1, "a call takes a step");
        let extents = self.block_size.shift()..=63;
        assert!(extents.contains(&self.extent_shift), "an extent is a block at least");
        let slots = self.flash.as_ref().is_some_and(|f| f.geometry.slots != 0);
        assert!(!slots || self.shards == 1, "the slots layout has one shard");
        let fits = Combination::from_config(self).check();
        assert!(fits.is_ok(), "{}: {fits:?}", self.relation);
    }

    /// Whether [`promote_dirty_after`](FlashConfig::promote_dirty_after) is in effect: in the slots layout, under the
    /// relation exclusive, with at most a quarter as many blocks in DRAM as on flash, as configured. (A block that
    /// is read from flash is remembered for as long as flash remembers, not for as long as both tiers do; so the more
    /// DRAM there is, the more that costs.)
    pub fn dirty_waits(&self) -> bool {
        let in_slots = self.flash.as_ref().filter(|flash| flash.geometry.slots != 0);
        self.relation == Relation::Exclusive
            && in_slots.is_some_and(|flash| {
                flash.promote_dirty_after > flash.promote_after
                    && self.dram_blocks <= flash.blocks / 4
            })
    }

    /// Usual [`extent_shift`](Self::extent_shift): 1 MiB.
    pub const EXTENT_SHIFT: u32 = 20;
    /// Usual [`transfers_spare`](Self::transfers_spare).
    pub const TRANSFERS_SPARE: u32 = 1024;
    /// Most frames, bounce frames and spare transfers of a shard together: each may have a transfer under
    /// way, and an entry of the index has 24 bits for the number of its own.
    pub const TRANSFERS_MAX: u32 = crate::entry::TRANSFERS_MAX;
    /// Usual [`step_blocks`](Self::step_blocks): as long as the longest transfer.
    pub const STEP_BLOCKS: u32 = 256;
    /// Usual [`call_steps`](Self::call_steps): some 20 microseconds.
    pub const CALL_STEPS: u32 = 256;
    /// Usual [`request_blocks_max`](Self::request_blocks_max): 32 MiB in blocks of 4 KiB, the
    /// longest read or write of a client. A trim, which may be as long as the volume, leaves the
    /// transfers and the places to wait to others.
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
            replacement: Parameters::new(Kind::Lru),
            flash: None,
            shards: 1,
            extent_shift: CacheConfig::EXTENT_SHIFT,
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

    /// Transfers that a shard may have under way; of shards of different sizes, the largest.
    pub fn transfers(&self) -> u32 {
        let n = u32::from(self.shards);
        let frames = (self.dram_blocks + self.spare_frames).div_ceil(n);
        frames + self.bounce_frames.div_ceil(n) + self.transfers_spare
    }

    /// DRAM frames that the driver provides: numbers 0 to this, exclusive.
    pub fn frames(&self) -> u32 {
        self.dram_blocks + self.spare_frames + self.bounce_frames
    }
}
