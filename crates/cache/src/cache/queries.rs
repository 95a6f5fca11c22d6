//! Queries from outside: counters, failures, and the operations in progress; reads that are not
//! calls; and hints, which decide nothing.

use forebay_block::{Nanos, Volume};
use forebay_effect::{Frame, IoError};
use forebay_flash::sabotage::Bug;
use forebay_flash::{BlockKey, Log, LogStats, RecoveryProgress, Stamp};

use crate::allocation::Holdings;
use crate::budget::CallBudget;
use crate::cache::Cache;
use crate::cache::procedures::{PROCEDURES, Procedure};
use crate::config::CacheConfig;
use crate::destage::DestageError;
use crate::flash_condition::Jam;
use crate::front::Front;
use crate::lifecycle::Lifecycle;
use crate::published;
use crate::shard::{EntryId, Shard, check_blocks};
use crate::stats::{CacheStats, VolumeStats};
use crate::switch::PolicyError;
use crate::world::{World, sooner};

/// The likely place of a block in the index ([`Cache::prefetch_entry`]).
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    shard: u32,
    entry: Option<EntryId>,
    key: BlockKey,
}

/// What a turn may change, as far as it is cheap to compare.
#[derive(PartialEq, Debug)]
struct Observed {
    /// Whether an effect is left.
    effects: bool,
    notices: usize,
    lifecycle: Lifecycle,
    timeout: Option<Nanos>,
    requests: usize,
    dirty_blocks: u64,
    stats: CacheStats,
    log: Option<LogStats>,
}

impl Cache {
    /// Gives this cache a bug.
    #[doc(hidden)]
    pub fn sabotage(&mut self, sabotage: forebay_flash::sabotage::Sabotage) {
        self.world.mode.sabotage = sabotage;
        if let Some(log) = &mut self.world.log {
            log.sabotage(sabotage);
        }
    }

    /// # Panics
    /// After the start.
    pub(super) fn assert_new(&self, call: &str) {
        assert!(self.world.lifecycle.is_new(), "{call} must be called before the start");
    }

    /// Whether another request can be taken now.
    pub fn has_room(&self) -> bool {
        self.world.front.requests.in_use() < self.world.config.requests_max as usize
    }

    /// Whether another request of this volume should be taken now. With several volumes, none may
    /// have more than three quarters of the places, so that others get some while it waits for its
    /// store.
    pub fn has_room_for(&self, volume: Volume) -> bool {
        let places = self.world.config.requests_max;
        let volumes = &self.world.volumes;
        let taken = volumes.get(volume).map_or(0, |v| v.requests);
        self.has_room() && (volumes.len() < 2 || taken < (places - places / 4).max(1))
    }

    /// Whether the cache serves requests.
    pub fn is_ready(&self) -> bool {
        self.world.lifecycle.is_ready()
    }

    /// Whether nothing is in progress: no request, no transfer, no cleaning. Records may still be
    /// in an open batch.
    pub fn is_idle(&self) -> bool {
        self.world.front.requests.in_use() == 0
            && self.world.shards.iter().all(Shard::is_idle)
            && self.cleaner.is_idle()
            && !self.switch.is_under_way()
            && !self.sealer.is_under_way()
    }

    /// The parameters of the cache.
    pub fn config(&self) -> &CacheConfig {
        &self.world.config
    }

    /// Counters of the cache.
    pub fn stats(&self) -> &CacheStats {
        &self.world.stats
    }

    /// Counters of a volume.
    pub fn volume_stats(&self, volume: Volume) -> Option<&VolumeStats> {
        self.world.volumes.get(volume).map(|v| &v.stats)
    }

    /// Number of volumes.
    pub fn volume_count(&self) -> usize {
        self.world.volumes.len()
    }

    /// The error of the last write, the last read, or any sync of a volume's backing store, if it
    /// failed.
    pub fn backing_failure(&self, volume: Volume) -> Option<IoError> {
        self.world.volumes.conditions.get(volume)?.reported_error()
    }

    /// The error of the last failed operation on a volume's backing store;
    /// [`VolumeStats::backing_errors`] counts them.
    pub fn last_backing_failure(&self, volume: Volume) -> Option<IoError> {
        self.world.volumes.conditions.get(volume)?.last_failure()
    }

    /// Blocks whose newest data cannot be read from flash: some of those that a destage or a
    /// reclaim has found, excluding those written again since. Reads of data that only the record
    /// holds fail; the rest of such a block, and all other blocks, are intact.
    pub fn unreadable(&self) -> impl Iterator<Item = (Volume, u64)> + '_ {
        let all = self.world.unreadable();
        all.map(|key| (key.volume(), key.block().0))
    }

    /// Whether the volume's store has failed so often in a row that other volumes do not wait for
    /// it.
    pub fn is_known_to_fail(&self, volume: Volume) -> bool {
        self.world.volumes.conditions.failing().contains(volume)
    }

    /// The error of the volume's store, if the volume is suspended.
    pub fn suspended(&self, volume: Volume) -> Option<IoError> {
        self.world.volumes.conditions.suspended_by(volume)
    }

    /// Whether flash has had no room for so long, because stores fail, that requests that need room
    /// fail.
    pub fn is_jammed(&self) -> bool {
        self.world.flash.jam() == Jam::Hopeless
    }

    /// Most blocks that each volume may have dirty on flash; `None` with a single volume, or
    /// without flash.
    pub fn dirty_share(&self) -> Option<u64> {
        Some(self.world.volumes.shares.share).filter(|&share| share != u64::MAX)
    }

    /// Whether the volume bypasses the failed flash tier until the next start: it is cached in
    /// memory only, and written through.
    pub fn passes_through(&self, volume: Volume) -> bool {
        self.world.flash.without().contains(volume)
    }

    /// Whether nothing is written to flash until the next start: flash has failed, or a dirty record that
    /// cannot be read, or moved for a stop, leaves no room on it.
    pub fn has_given_up(&self) -> bool {
        self.world.log.as_ref().is_some_and(|log| log.error().is_some())
    }

    /// Blocks with data in memory that are not on flash or, without flash, not on the backing
    /// store.
    pub fn dirty_in_memory(&self) -> u64 {
        self.world.shards.iter().map(|shard| shard.tiers.blocks.dirty_in_memory()).sum()
    }

    /// Whether a stop has brought what was dirty in memory to flash or to the backing stores; `None` until
    /// as much is there as can be.
    pub fn flushed(&self) -> Option<Result<(), DestageError>> {
        self.stop.flushed()
    }

    /// Blocks in memory whose dirty record on flash is kept, because memory does not survive a
    /// power cut. In the slots layout, flash has room for that many fewer other blocks.
    pub fn dirty_copies(&self) -> u64 {
        self.world.shards.iter().map(|shard| shard.tiers.flash.dirty_copies()).sum()
    }

    /// Counters of the log.
    pub fn log_stats(&self) -> Option<&LogStats> {
        self.world.log.as_ref().map(Log::stats)
    }

    /// Checks what must hold between calls of the requests in flight: each is where the lists and counts say.
    /// The time that this takes depends on the number of requests.
    ///
    /// # Panics
    /// If it does not hold.
    #[doc(hidden)]
    pub fn check_requests(&self) {
        self.world.check_requests();
    }

    /// Checks what must hold between calls of the cached blocks: each is in a state that may last, and the counts
    /// over all blocks are right. The time that this takes depends on the number of blocks. A bug that was planted
    /// ([`Cache::sabotage`]) is left to the caller's own checks.
    ///
    /// # Panics
    /// If it does not hold.
    #[doc(hidden)]
    pub fn check_blocks(&self) {
        if self.world.mode.sabotage.bug().is_none() {
            check_blocks(&self.world.shards, &self.world.volumes);
        }
    }

    /// Checks what must hold when no effect is left to poll: a turn of any procedure, due or not, finds nothing to
    /// do; and before the time of [`Cache::poll_timeout`], a timeout finds nothing to do either.
    ///
    /// # Panics
    /// If it does not hold.
    #[doc(hidden)]
    pub fn check_turns(&mut self) {
        // What a call has left to the next one is due then; a cache that refuses to serve does nothing. A round of
        // the queues takes a step in any turn of its shard, and nothing waits for its end.
        let mut shards = self.world.shards.iter_mut();
        let in_round = shards.any(|shard| shard.tiers.flash.queues().is_some_and(|q| q.is_busy()));
        if self.is_half_way() || self.world.lifecycle.has_failed() || in_round {
            return;
        }
        let before = self.observe();
        assert!(!before.effects, "an effect is left");
        // The steps that the last call may still take are left to calls that begin no budget of their own.
        let budget = core::mem::replace(&mut self.world.budget, CallBudget::UNLIMITED);
        for Procedure { name, is_due, take_turn } in PROCEDURES {
            let due = is_due(self);
            assert!(!take_turn(self), "{name}: a turn finds something to do, due: {due}");
        }
        assert_eq!(before, self.observe(), "a turn claims that it did nothing");
        // With stores that are known to fail, each timeout judges how long requests have waited, whatever its time.
        let fails = !self.world.volumes.conditions.failing().is_empty();
        if !fails && before.timeout.is_none_or(|at| at > self.world.now) {
            self.note_time();
            assert!(!self.take_turn(), "a turn finds something to do before it is time");
            assert_eq!(before, self.observe(), "something happens before it is time");
        }
        self.world.budget = budget;
    }

    fn observe(&self) -> Observed {
        let World { effects, notices, lifecycle, front, volumes, stats, log, .. } = &self.world;
        Observed {
            effects: !effects.is_empty() || log.as_ref().is_some_and(Log::has_effects),
            notices: notices.len(),
            lifecycle: *lifecycle,
            timeout: self.poll_timeout(),
            requests: front.requests.in_use(),
            dirty_blocks: volumes.dirty_blocks,
            // In a hopeless jam, each review of those who wait counts, even if it refuses nothing.
            stats: CacheStats { jams: 0, ..*stats },
            log: log.as_ref().map(|log| *log.stats()),
        }
    }

    /// The state of the cache in words, for a bug report.
    pub fn describe(&self) -> String {
        let mut s = format!(
            "{:?}, cleaner {:?}, log {:?}",
            self.world.lifecycle.phase(),
            self.cleaner,
            self.log_stats()
        );
        for (_, request) in self.world.front.requests.iter() {
            s += &format!("\n{request:?}");
        }
        let Front { running, blocked, finished, .. } = &self.world.front;
        s += &format!("\nrunning {running:?}, blocked {blocked:?}, finished {finished:?}");
        s += &format!(
            "\n{:?}, destage {:?}, switch {:?}, {:?}",
            (&self.stores, &self.world.volumes.shares),
            self.destages,
            self.switch,
            self.stop
        );
        for (_, v) in self.world.volumes.iter() {
            s += &format!("\n{v:?}");
        }
        for shard in &self.world.shards {
            s += &shard.describe();
        }
        if let Some(log) = &self.world.log {
            s += &log.describe();
        }
        s
    }

    /// Blocks in memory by the accounting of its replacement policy.
    pub fn resident_blocks(&self) -> u32 {
        self.world.shards.iter().map(|shard| shard.tiers.dram.len()).sum()
    }

    /// Accesses of which the replacement policy of memory was notified, as insertions or hits: at
    /// most one for each block of each request.
    pub fn accesses_told(&self) -> u64 {
        self.world.shards.iter().map(|shard| shard.tiers.dram.told()).sum()
    }

    /// The most steps that the replacement policies have taken in one eviction: the policy of
    /// memory, and the policy of flash in the slots layout.
    /// [`Policy::steps_max`](forebay_replacement::Policy::steps_max) bounds each.
    pub fn eviction_steps_most(&self) -> [u64; 2] {
        let larger = |a: [u64; 2], b: [u64; 2]| [a[0].max(b[0]), a[1].max(b[1])];
        self.world.shards.iter().map(Shard::eviction_steps_most).fold([0; 2], larger)
    }

    /// Bytes of metadata held in memory.
    pub fn memory_bytes(&self) -> u64 {
        self.world.shards.iter().map(Shard::memory_bytes).sum()
    }

    /// Whether no request, destage, change of policy or seal is in progress. Appends to flash may
    /// still be in progress.
    pub fn is_quiet(&self) -> bool {
        self.world.front.requests.in_use() == 0
            && !self.destages.is_under_way()
            && !self.switch.is_under_way()
            && !self.sealer.is_under_way()
            && !self.is_stamping()
    }

    /// Whether the volume's backing store did not answer, so that the last destage of everything left it out.
    pub fn is_silent(&self, volume: Volume) -> bool {
        self.destages.silent().contains(volume)
    }

    /// Whether the volume's backing store is known to be late: it takes much longer than others, or hangs.
    pub fn is_late(&self, volume: Volume) -> bool {
        self.world.volumes.conditions.late.volumes().contains(volume)
    }

    /// Whether a destage of everything is in progress.
    pub fn is_destaging(&self) -> bool {
        self.destages.is_under_way()
    }

    /// When to call [`Cache::handle_timeout`], if at all.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if self.is_half_way() {
            return Some(self.world.now);
        }
        let cleaner = sooner(self.cleaner.timeout(), self.cleaner.silence_due(&self.world));
        let due = sooner(cleaner, self.stores.timeout(&self.world));
        sooner(sooner(due, self.pass_through.timeout()), self.switch.timeout())
    }

    /// When the work in progress continues: like [`Cache::poll_timeout`], but without the periodic
    /// attempts to run without a failed flash tier.
    pub fn next_step(&self) -> Option<Nanos> {
        if self.is_half_way() {
            return Some(self.world.now);
        }
        let cleaner = sooner(self.cleaner.timeout(), self.cleaner.silence_due(&self.world));
        let due = sooner(cleaner, self.stores.timeout(&self.world));
        sooner(due, self.pass_through.limit())
    }

    /// Whether the last call has left work that needs only another call: [`Cache::poll_timeout`] is
    /// due. A driver whose results must match those of others makes that call before it reports the
    /// next completion.
    #[inline]
    pub fn is_half_way(&self) -> bool {
        self.world.budget.is_short()
    }

    /// Dirty blocks of all volumes.
    pub fn dirty_blocks(&self) -> u64 {
        self.world.volumes.dirty_blocks
    }

    /// Whether the policy is being changed.
    pub fn is_switching(&self) -> bool {
        self.switch.is_under_way()
    }

    /// Why the policy that the cache was built with is not in force: blocks that were dirty at the
    /// start could not be destaged. The cache stays under write-back until
    /// [`Order::SetPolicy`](crate::Order::SetPolicy) succeeds.
    pub fn unsettled(&self) -> Option<PolicyError> {
        self.switch.unsettled()
    }

    /// Blocks of DRAM in use: as at the start, or by the last
    /// [`Order::SetDramBlocks`](crate::Order::SetDramBlocks).
    pub fn dram_blocks(&self) -> u32 {
        self.world.shards.iter().map(|shard| shard.tiers.dram.capacity()).sum()
    }

    /// Progress of the start, while flash is read.
    pub fn recovering(&self) -> Option<RecoveryProgress> {
        self.world.log.as_ref()?.recovering()
    }

    /// The stamp that would be ordered now. If `whole`, all data of the stores are durable on them.
    pub fn stamp_now(&self, whole: bool) -> Stamp {
        self.world.stamp_now(whole)
    }

    /// Whether stores have received data that no stamp covers yet.
    pub fn owes_stamps(&self) -> bool {
        !self.stamps.owed().is_empty()
    }

    /// Whether stamps are being written to the headers.
    pub fn is_stamping(&self) -> bool {
        self.stamps.is_under_way()
    }

    /// The volumes whose stamps are being written, one bit each.
    pub fn stamping(&self) -> u64 {
        self.stamps.under_way().bits()
    }

    /// The cache's answer for `length` bytes of a volume from `offset` on, or for as many of them
    /// as one call can cover.
    pub fn holdings(&self, volume: Volume, offset: u64, length: u64) -> Holdings {
        Holdings::look_up(&self.world, volume, offset, length)
    }

    // ---- reads that are no calls: see `published.rs` ----

    /// The key under which a block would be published; `None` if there is no such block in any volume.
    #[inline]
    pub fn key_of(volume: Volume, block: u64) -> Option<u64> {
        published::key_of(volume, block).map(|key| key.0)
    }

    /// Publishes the block of this byte, and returns its key and its frame: until
    /// [`Cache::poll_withdrawn`] names that frame, the driver may answer reads from it without a
    /// call. Returns `None` if the block is not wholly in memory and in the volume, or if a
    /// transfer of it is in flight. Call it when no effect is left.
    pub fn publish(&mut self, volume: Volume, offset: u64) -> Option<(u64, Frame)> {
        published::publish(&mut self.world, volume, offset).map(|(key, frame)| (key.0, frame))
    }

    /// A frame that is no longer published. Call it until it returns none, after each call and
    /// before the next effect is performed.
    #[inline]
    pub fn poll_withdrawn(&mut self) -> Option<Frame> {
        let mut shards = self.world.shards.iter_mut();
        let withdrawn = shards.find_map(|shard| shard.tiers.blocks.poll_withdrawn());
        withdrawn.filter(|_| !self.world.mode.sabotage.is(Bug::NotWithdrawn))
    }

    /// A read of one published block was answered at this time: it counts as a hit at that time.
    pub fn note_hit(&mut self, now: Nanos, volume: Volume, offset: u64, length: u64) {
        published::note_hit(&mut self.world, now, (volume, offset, length));
    }

    // ---- hints: what requests to come will look at is loaded before they are handed in ----

    /// Prefetches into the processor's cache the data that a request for this byte of a volume will
    /// access first. Best called for a dozen requests before they are submitted, with
    /// [`Cache::prefetch_entry`] half-way.
    #[inline]
    pub fn prefetch(&self, volume: Volume, offset: u64) {
        let (shard, key) = self.world.place_of(volume, offset);
        self.world.shards[shard].tiers.blocks.prefetch(key);
    }

    /// Prefetches the data that the place loaded by [`Cache::prefetch`] leads to. Returns their
    /// place.
    #[inline]
    pub fn prefetch_entry(&self, volume: Volume, offset: u64) -> Sought {
        let (shard, key) = self.world.place_of(volume, offset);
        let entry = self.world.shards[shard].tiers.blocks.prefetch_entry(key);
        Sought { shard: shard as u32, entry, key }
    }

    /// Prefetches the data that the replacement policy will access or, with `near`, the data that
    /// those lead to. Best called after [`Cache::prefetch_entry`], twice.
    #[inline]
    pub fn prefetch_policy(&self, sought: Sought, near: bool) {
        let shard = &self.world.shards[sought.shard as usize];
        shard.tiers.prefetch_policy(sought.key, sought.entry, near);
    }

    /// The next request is for the block at this place: it is looked up there first.
    #[inline]
    pub fn expect(&self, sought: Sought) {
        if let Some(id) = sought.entry {
            self.world.shards[sought.shard as usize].tiers.blocks.expect(id);
        }
    }
}
