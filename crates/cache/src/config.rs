//! The parameters of a cache. Every limit is a parameter, so that tests can run tiny caches.

use core::fmt;

use forebay_block::{BlockSize, Nanos};
use forebay_flash::Geometry;
use forebay_replacement::{
    AdmissionParameters, Kind as ReplacementKind, Parameters, Popularity, QueueParameters,
};

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
    /// Frames for data that are read to be merged or destaged, for blocks without a frame; at least
    /// 1 for each shard.
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
    /// log2 of the bytes of an extent, which is at least a block. An extent belongs to one shard,
    /// and a trim handles it as a whole if none of it is cached.
    pub extent_shift: u32,
    /// Most requests in flight; a driver holds back more.
    pub requests_max: u32,
    /// Transfers that can be in progress in a shard on blocks without a frame; at least one.
    pub transfers_spare: u32,
    /// Pieces of requests, of one block each, that can wait at once; at least the blocks of the
    /// largest request that touches one extent.
    pub waiters_max: u32,
    /// Blocks of a request that are handed out in one step before other requests get their turn; at
    /// least 1.
    pub step_blocks: u32,
    /// Most blocks of a request that are in progress or wait. The next step of the request follows
    /// when so few are left that it fits. At least a step.
    pub request_blocks_max: u32,
    /// Most steps of work on whole regions and batches, of one record each, that a call takes while
    /// requests are served; the rest waits for the next call. At least 1.
    pub call_steps: u32,
    /// Most writes of a destage from flash in flight, for each shard.
    pub destage_depth: u32,
    /// How long writes wait for a failing backing store; then they fail, and its volume is suspended
    /// until the store works again. 0 means without limit.
    pub give_up_after: Nanos,
}

/// Which requests bypass the cache, on volumes that [allow it](VolumeConfig::bypass). A request
/// never bypasses a block that the cache holds: reads hit it there, and writes update it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bypass {
    /// Bytes: a read bypasses the cache if it continues a sequential stream at least this long. 0: no read does.
    pub reads: u64,
    /// Bytes: a write bypasses the cache if it continues a sequential stream at least this long. 0: no write does.
    pub writes: u64,
    /// Blocks: a write bypasses the cache if at least this many blocks of its volume are dirty. 0: no write does.
    pub dirty_blocks: u64,
}

/// The parameters of the flash tier.
#[derive(Clone, Debug)]
pub struct FlashConfig {
    /// Geometry of the log.
    pub geometry: Geometry,
    /// Blocks the index can hold on flash; the log is reclaimed early when it is full. In the
    /// slots layout: all cells.
    pub entries_max: u32,
    /// Slots layout: blocks on flash by the accounting of the replacement policy, fewer than there
    /// are cells; the other cells are for records in flight. Unused in the log layout.
    pub blocks: u32,
    /// Regions kept free for writing while others are reclaimed.
    pub regions_reserved: u32,
    /// Most pages that recovery reads at once when it verifies payloads.
    pub recovery_chunk_pages: u32,
    /// Log layout: which records of a region are inserted again when it is reclaimed.
    pub replacement: LogReplacement,
    /// Slots layout: the policy that chooses which block is evicted; it must [order
    /// cells](forebay_replacement::Tier::Slots).
    pub cells: Parameters,
    /// Blocks of a line, which the relations [that have lines](Relation::has_lines) bring to flash
    /// together: a power of two, at most the blocks of an extent; 1 disables lines.
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
    /// `promote_after` for a block with a dirty record, if larger and [in
    /// effect](CacheConfig::dirty_waits), while many of the blocks that leave flash return, and for
    /// a while after (`returns.rs`): such a record stays when the block moves to DRAM.
    pub promote_dirty_after: u8,
    /// Slots layout: dirty records of blocks that are also in DRAM are evicted early while many of
    /// the blocks that leave flash return (`returns.rs`).
    pub give_up_copies: bool,
}

impl FlashConfig {
    /// The most reads from flash that the slots layout counts.
    pub const SLOTS_READINGS_MAX: u8 = 31;
}

/// Which dirty blocks may enter flash if flash does not hold the block and, under write-back
/// acknowledged by flash, which writes.
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

/// Which clean records of a reclaimed log region are inserted again. They take at most half a
/// region, and only room that nothing else needs.
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
    /// Popularity that makes a record worth keeping: that of one read at a distance below three
    /// sixteenths of the size of flash. With a lower value, more is written, and loops over blocks have
    /// fewer hits; a higher value is like [`FREQUENT`](LogReplacement::FREQUENT). `docs/policies.md` says more.
    pub const POPULAR: u8 = Popularity::ONE / 8 * 7;
    /// All values.
    pub const ALL: [LogReplacement; 4] = [
        LogReplacement::Fifo,
        LogReplacement::SecondChance,
        LogReplacement::Frequency,
        LogReplacement::Popularity,
    ];

    /// Reads from flash, or popularity, that a record needs to be inserted again; `None` for FIFO.
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

    /// The number of reads that a record keeps when it is inserted again.
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
    /// Checks whether a cache can have these parameters. [`Cache::new`](crate::Cache::new) panics if not. The
    /// geometry of the flash tier has a check of its own, [`Geometry::validate`].
    ///
    /// # Errors
    /// The first parameter that is impossible, or does not fit the others.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse_unless = |fits, error| if fits { Ok(()) } else { Err(error) };
        refuse_unless((1..=64).contains(&self.shards), ConfigError::Shards)?;
        let steps = 1..=self.request_blocks_max;
        refuse_unless(steps.contains(&self.step_blocks), ConfigError::StepBlocks)?;
        refuse_unless(self.call_steps >= 1, ConfigError::CallSteps)?;
        let extents = self.block_size.shift()..=63;
        refuse_unless(extents.contains(&self.extent_shift), ConfigError::ExtentShift)?;
        let slots = self.flash.as_ref().is_some_and(|f| f.geometry.slots != 0);
        refuse_unless(!slots || self.shards == 1, ConfigError::SlotsShards)?;
        let (relation, combination) = (self.relation, Combination::from_config(self));
        combination.check().map_err(|why| ConfigError::Combination { relation, why })?;

        for shard in 0..self.shards {
            let dram = self.share(shard, self.dram_blocks);
            let frames = self.share(shard, self.dram_blocks + self.spare_frames);
            refuse_unless(dram > 0, ConfigError::DramBlocks)?;
            refuse_unless(frames > dram, ConfigError::SpareFrames)?;
            refuse_unless(self.share(shard, self.bounce_frames) > 0, ConfigError::BounceFrames)?;
        }
        refuse_unless(self.transfers_spare > 0, ConfigError::TransfersSpare)?;
        let transfers = self.transfers();
        refuse_unless(transfers <= Self::TRANSFERS_MAX, ConfigError::Transfers { transfers })
    }

    /// A shard's share of a total number.
    pub(crate) fn share(&self, shard: u8, total: u32) -> u32 {
        let n = u32::from(self.shards);
        total / n + u32::from(u32::from(shard) < total % n)
    }

    /// Whether [`promote_dirty_after`](FlashConfig::promote_dirty_after) is in effect: in the slots
    /// layout, under the relation exclusive, with at most a quarter as many blocks in DRAM as on
    /// flash, as configured. A block that is read from flash is remembered as long as flash
    /// remembers it, not as long as both tiers do, so the cost grows with the size of DRAM.
    pub fn dirty_waits(&self) -> bool {
        let in_slots = self.flash.as_ref().filter(|flash| flash.geometry.slots != 0);
        self.relation == Relation::Exclusive
            && in_slots.is_some_and(|flash| {
                flash.promote_dirty_after > flash.promote_after
                    && self.dram_blocks <= flash.blocks / 4
            })
    }

    /// Default [`extent_shift`](Self::extent_shift): 1 MiB.
    pub const EXTENT_SHIFT: u32 = 20;
    /// Default [`transfers_spare`](Self::transfers_spare).
    pub const TRANSFERS_SPARE: u32 = 1024;
    /// Most frames, bounce frames and spare transfers of a shard together: each may have a transfer
    /// in progress, and an index entry has 24 bits for the number of its transfer.
    pub const TRANSFERS_MAX: u32 = crate::shard::entry::TRANSFERS_MAX;
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

    /// Most transfers of a shard; for shards of different sizes, of the largest.
    pub fn transfers(&self) -> u32 {
        let n = u32::from(self.shards);
        let frames = (self.dram_blocks + self.spare_frames).div_ceil(n);
        frames + self.bounce_frames.div_ceil(n) + self.transfers_spare
    }

    /// Number of DRAM frames that the driver provides, numbered from 0.
    pub fn frames(&self) -> u32 {
        self.dram_blocks + self.spare_frames + self.bounce_frames
    }
}

/// Why a cache cannot have some parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// The number of shards is not from 1 to 64.
    Shards,
    /// A step of a request has no block, or more than may be in flight.
    StepBlocks,
    /// A call may take no step.
    CallSteps,
    /// An extent is shorter than a block, or longer than any volume.
    ExtentShift,
    /// The slots layout has one shard.
    SlotsShards,
    /// The policies do not go together.
    Combination {
        /// The relation of the tiers.
        relation: Relation,
        /// What is missing.
        why: &'static str,
    },
    /// A shard has no block in DRAM.
    DramBlocks,
    /// A shard has no spare frame.
    SpareFrames,
    /// A shard has no bounce frame.
    BounceFrames,
    /// Blocks without a frame have no transfer.
    TransfersSpare,
    /// A shard may have more transfers than can be numbered.
    Transfers {
        /// Their number.
        transfers: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Shards => f.write_str("the number of shards must be from 1 to 64"),
            ConfigError::StepBlocks => {
                f.write_str("step_blocks must be from 1 to `request_blocks_max`")
            }
            ConfigError::CallSteps => f.write_str("call_steps must be at least 1"),
            ConfigError::ExtentShift => f.write_str("an extent must be at least one block"),
            ConfigError::SlotsShards => f.write_str("the slots layout supports only one shard"),
            ConfigError::Combination { relation, why } => write!(f, "{relation}: {why}"),
            ConfigError::DramBlocks => f.write_str("each shard needs at least one DRAM block"),
            ConfigError::SpareFrames => f.write_str("each shard needs a spare frame"),
            ConfigError::BounceFrames => f.write_str("each shard needs a bounce frame"),
            ConfigError::TransfersSpare => f.write_str("blocks without a frame need a transfer"),
            ConfigError::Transfers { transfers } => {
                let most = CacheConfig::TRANSFERS_MAX;
                write!(f, "{transfers} transfers exceed the {most} that can be numbered")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_configuration_is_refused_with_the_parameter_that_is_wrong() {
        let good = CacheConfig::dram_only(16);
        assert_eq!(good.check(), Ok(()));
        let refuses = |error, spoil: fn(&mut CacheConfig)| {
            let mut config = good.clone();
            spoil(&mut config);
            assert_eq!(config.check(), Err(error));
        };
        refuses(ConfigError::Shards, |c| c.shards = 0);
        refuses(ConfigError::Shards, |c| c.shards = 65);
        refuses(ConfigError::StepBlocks, |c| c.step_blocks = c.request_blocks_max + 1);
        refuses(ConfigError::CallSteps, |c| c.call_steps = 0);
        refuses(ConfigError::ExtentShift, |c| c.extent_shift = c.block_size.shift() - 1);
        refuses(ConfigError::DramBlocks, |c| c.dram_blocks = 0);
        refuses(ConfigError::SpareFrames, |c| c.spare_frames = 0);
        refuses(ConfigError::BounceFrames, |c| c.bounce_frames = 0);
        refuses(ConfigError::TransfersSpare, |c| c.transfers_spare = 0);
        refuses(ConfigError::DramBlocks, |c| {
            (c.shards, c.spare_frames, c.bounce_frames) = (17, 17, 17);
        });
        let most = CacheConfig::TRANSFERS_MAX;
        let error = CacheConfig { transfers_spare: most, ..good.clone() }.check().unwrap_err();
        assert!(matches!(error, ConfigError::Transfers { .. }), "{error}");
        let relation = Relation::Inclusive;
        let error = CacheConfig { relation, ..good.clone() }.check().unwrap_err();
        assert!(error.to_string().contains("needs flash"), "{error}");
    }

    #[test]
    #[should_panic(expected = "call_steps must be at least 1")]
    fn a_cache_with_an_impossible_configuration_is_not_built() {
        crate::Cache::new(CacheConfig { call_steps: 0, ..CacheConfig::dram_only(4) });
    }
}
