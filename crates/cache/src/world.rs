//! The state that the procedures of a cache share, and the operations that concern all of its
//! parts.
//!
//! Each procedure, such as a cleaning, a destage or a change of policy, has a type with private
//! state. It borrows the world for the length of a call.

use forebay_block::{Nanos, Op, Request, Volume};
use forebay_effect::{EffectQueue, Frame, IoError, Outcome, RequestId};
use forebay_flash::sabotage::{Bug, Sabotage};
use forebay_flash::{BlockKey, Log, Options, RegionIndex, Stamp, StampNumber};

use crate::budget::CallBudget;
use crate::config::CacheConfig;
use crate::flash_condition::{FlashCondition, Jam};
use crate::front::Front;
use crate::holds::Holds;
use crate::lifecycle::Lifecycle;
use crate::load::Loads;
use crate::notice::Notice;
use crate::shard::{Shard, owed};
use crate::slab::RequestIndex;
use crate::stats::CacheStats;
use crate::volume::{LogBypass, SyncWaiter};
use crate::volumes::Volumes;

/// The shared state; see the module documentation.
pub(crate) struct World {
    pub config: CacheConfig,
    pub mode: Mode,
    pub front: Front,
    pub volumes: Volumes,
    /// The latency of reads, if admission depends on it.
    pub loads: Option<Loads>,
    pub shards: Vec<Shard>,
    pub log: Option<Log>,
    pub flash: FlashCondition,
    pub effects: EffectQueue,
    pub stats: CacheStats,
    pub notices: Vec<Notice>,
    /// The remaining budget of the current call.
    pub budget: CallBudget,
    /// The region that is being forgotten. Until that is done, no more events are taken from the
    /// log.
    pub forgetting: Option<RegionIndex>,
    pub now: Nanos,
    pub lifecycle: Lifecycle,
    pub holds: Holds,
    /// When an interval of hit ratios ends, for policies that have intervals. It ends with the
    /// first call after that time; nothing waits for the end, so it needs no timeout.
    interval_ends: Nanos,
}

/// How a driver runs the cache, which it must say before the start.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Mode {
    /// Whether stores and flash take no time ([`Cache::without_time`](crate::Cache::without_time)).
    pub instant: bool,
    /// Whether there are no bytes ([`Cache::without_bytes`](crate::Cache::without_bytes)).
    pub without_bytes: bool,
    pub sabotage: Sabotage,
}

/// The result of a procedure's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Turn {
    Nothing,
    Something,
    /// Nothing can be written to flash any more: latch the log and notify all parts.
    GiveUp,
}

impl Turn {
    /// This turn's result, or `Something` if this is `Nothing` and `any` is true.
    pub fn or(self, any: bool) -> Turn {
        if self == Turn::Nothing { Turn::from(any) } else { self }
    }
}

impl From<bool> for Turn {
    fn from(any: bool) -> Turn {
        if any { Turn::Something } else { Turn::Nothing }
    }
}

/// Borrows the parts of a world that a shard needs during a call, separately from the shards.
macro_rules! shard_context {
    ($world:expr) => {
        $crate::shard::ShardContext {
            config: &$world.config,
            flash: &$world.flash,
            mode: &$world.mode,
            front: &mut $world.front,
            volumes: &mut $world.volumes,
            loads: &mut $world.loads,
            log: $crate::shard::LogAccess::new($world.log.as_mut()),
            effects: &mut $world.effects,
            stats: &mut $world.stats,
            budget: &mut $world.budget,
            now: $world.now,
        }
    };
}
pub(crate) use shard_context;

impl World {
    /// The world of a cache without volumes that is not started.
    pub fn new(config: CacheConfig) -> World {
        World {
            mode: Mode::default(),
            front: Front::new(&config),
            volumes: Volumes::new(config.stripe_shift),
            loads: config
                .flash
                .as_ref()
                .and_then(|f| f.admission.kind().goes_by_load().then(Loads::default)),
            shards: (0..config.shards).map(|n| Shard::new(&config, n)).collect(),
            log: config.flash.as_ref().map(|f| {
                let mut options = Options { frames: config.frames(), ..Options::default() };
                options.reserve_regions = f.regions_reserved;
                options.recovery_chunk_pages = f.recovery_chunk_pages;
                Log::new(f.geometry, options)
            }),
            flash: FlashCondition::new(config.flash.is_some()),
            effects: EffectQueue::default(),
            stats: CacheStats::default(),
            notices: Vec::new(),
            budget: CallBudget::UNLIMITED,
            forgetting: None,
            now: Nanos(0),
            lifecycle: Lifecycle::NEW,
            holds: Holds::NONE,
            interval_ends: Nanos(u64::MAX),
            config,
        }
    }

    /// Begins a call, after which its effects are polled. The time does not go back if `now` is
    /// earlier.
    #[inline]
    pub fn begin_call(&mut self, now: Nanos) {
        // No request is served before the start has ended or after the stop has begun, so calls
        // need not be short then.
        let limited = self.lifecycle.is_ready();
        self.budget.refill(if limited { self.config.call_steps } else { u32::MAX });
        self.advance_time(now);
    }

    /// Advances the time to `now`, unless that is earlier.
    #[inline]
    pub fn advance_time(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        if self.now >= self.interval_ends {
            self.end_interval();
        }
    }

    /// Starts the intervals of hit ratios, when the cache starts.
    pub fn start_intervals(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.tiers.dram.start_intervals(self.now));
        self.interval_ends = self.shards[0].tiers.dram.interval_ends();
    }

    #[cold]
    fn end_interval(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.tiers.dram.end_interval(self.now));
        self.interval_ends = self.shards[0].tiers.dram.interval_ends();
    }

    /// The shard and key of a byte at any offset, even one that no volume has.
    pub fn place_of(&self, volume: Volume, offset: u64) -> (usize, BlockKey) {
        let block = (offset >> self.config.block_size.shift()) & (BlockKey::BLOCKS_MAX - 1);
        let volume = Volume(volume.0 & u32::from(u16::MAX));
        (self.shard_of(volume, offset), BlockKey::new(volume, block))
    }

    /// The shard of a byte of a volume.
    pub fn shard_of(&self, volume: Volume, offset: u64) -> usize {
        shard_of(self.shards.len(), self.config.stripe_shift, volume, offset)
    }

    /// The shard of a block.
    pub fn shard_of_key(&self, key: BlockKey) -> usize {
        self.shard_of(key.volume(), self.config.block_size.offset_of(key.block()))
    }

    /// Serves a read of one block that is in memory: returns the frame and the offset of the data
    /// in it. Returns `None` and does nothing for any other read.
    #[inline]
    pub fn read_hit(&mut self, volume: Volume, offset: u64, length: u64) -> Option<(Frame, u32)> {
        if !self.lifecycle.is_ready() {
            return None;
        }
        let size = self.config.block_size;
        let start = size.within(offset);
        let v = self.volumes.get_mut(volume)?;
        let fits = length > 0 && length <= size.bytes() - start && (offset | length) & 511 == 0;
        if !fits || v.size < length || offset > v.size - length {
            return None;
        }
        let key = BlockKey::new(volume, size.index_of(offset).0);
        let n = shard_of(self.shards.len(), self.config.stripe_shift, volume, offset);
        let frame = self.shards[n].tiers.read_hit(key, start as u32, length as u32)?;
        v.stats.reads += 1;
        v.stats.read_bytes += length;
        v.stats.read_hits.tier1 += 1;
        self.shards[0].count_request();
        // A hit is served whether or not it is streaming; the call lets the stream continue after
        // it.
        v.is_streaming(Op::Read, (offset, length), self.config.bypass);
        Some((frame, start as u32))
    }

    /// The stamp that would be requested now. `whole`: all data of the stores are durable on them.
    pub fn stamp_now(&self, whole: bool) -> Stamp {
        let stamp = self.log.as_ref().map(Log::stamp).unwrap_or_default();
        Stamp { complete: if whole { stamp.seen } else { stamp.complete }, ..stamp }
    }

    /// At a start: takes over from the log which volumes' data must not bypass it until it has
    /// noted this.
    pub fn take_log_bypasses(&mut self) {
        for binding in self.log.as_ref().map_or(&[][..], Log::bindings) {
            let volume = self.volumes.get_mut(binding.volume);
            if let Some(volume) = volume.filter(|_| binding.logged != StampNumber::NONE) {
                volume.log_bypass = LogBypass::Forbidden;
            }
        }
    }

    /// Called when the log has noted that data of the volume may bypass it, or cannot note that.
    pub fn log_bypass_noted(&mut self, volume: Volume, result: Outcome) {
        let log_bypass = if result.is_ok() { LogBypass::Allowed } else { LogBypass::Forbidden };
        self.volumes[volume].log_bypass = log_bypass;
        self.call_starved();
    }

    /// Blocks whose newest data cannot be read from flash.
    pub fn unreadable(&self) -> impl Iterator<Item = BlockKey> + '_ {
        self.shards.iter().flat_map(|Shard { tiers, .. }| tiers.flash.unreadable(&tiers.blocks))
    }

    /// Whether a record that is marked dirty is being appended.
    pub fn appends_dirty(&self) -> bool {
        self.shards.iter().any(|shard| shard.tiers.transfers.appends_dirty())
    }

    /// Whether a request that may make blocks dirty, or a flush, is in flight and not held back.
    pub fn is_modified(&self) -> bool {
        self.front.requests.is_modified() || self.volumes.iter().any(|(_, v)| v.pieces > 0)
    }

    /// Whether a request that arrives now has to wait for the end of a procedure.
    #[inline]
    pub fn is_held(&self, op: Op) -> bool {
        op != Op::Read && self.holds.any() || op == Op::Flush && self.flash.awaits_void
    }

    /// Registers a request, or returns the error with which to answer it at once.
    pub fn admit(&mut self, id: RequestId, request: &Request) -> Result<RequestIndex, IoError> {
        self.front.admit(&mut self.volumes, self.config.bypass, id, request)
    }

    /// Notes that `count` pieces of a request have ended.
    pub fn pieces_done(&mut self, request: RequestIndex, count: u32, result: Outcome) {
        self.front.pieces_done(&mut self.volumes, request, count, result);
    }

    /// Answers a request and forgets it.
    pub fn reply(&mut self, request: RequestIndex) {
        self.front.reply(&mut self.volumes, request, &mut self.effects);
    }

    /// Called when the sync of a volume has ended.
    pub fn handle_sync(&mut self, volume: Volume, result: Outcome) {
        let result = if self.mode.sabotage.is(Bug::SyncFailureIgnored) { Ok(()) } else { result };
        let mut waiters = self.volumes.end_sync(volume, result);
        let failed = !self.volumes.conditions[volume].makes_durable();
        if failed && let Some(log) = &mut self.log {
            log.hold_extents(volume);
        }
        let for_requests = if failed { Err(IoError::Device) } else { Ok(()) };
        for waiter in waiters.drain(..) {
            match waiter {
                SyncWaiter::Request(request) => self.pieces_done(request, 1, for_requests),
                other => self.volumes.synced.push((volume, other, result)),
            }
        }
        self.volumes[volume].keep_waiters(waiters);
        self.volumes.issue_sync(volume, &mut self.effects);
    }

    /// Lets waiting pieces that need room try again.
    pub fn call_starved(&mut self) {
        self.shards.iter_mut().for_each(Shard::call_starved);
    }

    /// Notes whether only failing stores can make room.
    pub fn set_jam(&mut self, jam: Jam) {
        if self.flash.set_jam(jam) {
            self.call_starved();
        }
    }

    /// All volumes are attached: limits what each, and all together, may have dirty on flash.
    pub fn divide_flash(&mut self) {
        if self.volumes.len() < 2 {
            return;
        }
        let Some(blocks) = self.dirty_blocks_max() else { return };
        self.volumes.shares.divide(self.volumes.len() as u64, blocks);
    }

    /// Largest number of blocks that can be dirty on flash at once, while others enter and leave.
    pub fn dirty_blocks_max(&self) -> Option<u64> {
        let flash = self.config.flash.as_ref()?;
        if let Some(slots) = flash.slots() {
            return Some(slots.blocks.into());
        }
        // Leaves out the region being filled, and the regions kept for carried records.
        let regions = u64::from(flash.geometry.regions - 1 - flash.geometry.regions_kept());
        let batch = self.shards.iter().map(|shard| owed::batch(shard, &flash.geometry)).min()?;
        let blocks = regions * flash.geometry.region_blocks(batch as u32);
        Some(blocks.min(flash.entries_max.into()))
    }

    /// Whether any request waits for room on flash.
    pub fn somebody_waits(&self) -> bool {
        self.log.as_ref().is_some_and(Log::is_out_of_room)
            || self.shards.iter().any(Shard::waits_for_an_entry)
    }

    /// Whether a request waits for room on flash and no unfinished work can make any. Only then may
    /// data be given up.
    pub fn somebody_waits_in_vain(&self) -> bool {
        let half_way = self.forgetting.is_some() || self.log.as_ref().is_some_and(Log::has_events);
        !half_way && self.somebody_waits()
    }
}

/// Which of `n` shards a byte of a volume belongs to.
#[inline]
fn shard_of(n: usize, stripe_shift: u32, volume: Volume, offset: u64) -> usize {
    if n == 1 {
        return 0;
    }
    let x = (offset >> stripe_shift) ^ (u64::from(volume.0) << 48);
    let hash = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((u128::from(hash) * n as u128) >> 64) as usize
}

/// The earlier of two times, if there are any.
#[inline]
pub(crate) fn sooner(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
