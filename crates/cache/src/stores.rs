//! Failing backing stores, and their effect on the other volumes.
//!
//! All volumes share the flash tier, and its log reclaims regions in the order in which they were
//! filled. These rules keep one store that accepts no writes from stopping the log:
//!
//! - With several volumes, each may have dirty blocks on at most half of flash. Beyond that its
//!   writes wait until some are destaged; destaging begins at three quarters of the share.
//! - A store that has failed [`FAILURES_MAX`] times in a row is *known to fail*: reclaiming a
//!   region does not try it, but carries its records on to the head of the log
//!   (`shard/destager/carry.rs`). From time to time a *probe* tries it again.
//! - When writes have waited for a store that is known to fail for `give_up_after`, its volume is
//!   *suspended*: these writes and all later ones fail until the store accepts a write again.
//! - If more data is owed to failing stores than can be carried on, there is a *jam*: all requests
//!   that need room wait. Once a volume is suspended, writes that can bypass flash do so. When the
//!   jam has lasted for `give_up_after`, it is *hopeless*: requests that wait fail, and later ones
//!   fail too, until it ends. A jam that ends sooner fails no request, however long ago a store
//!   began to fail.

use forebay_block::{Nanos, PerVolume, Volume};
use forebay_effect::IoError;
use forebay_flash::BatchSequence;

use crate::cleaner::{Cleaner, FAILURES_MAX, Work, destage_oldest, oldest_for_late};
use crate::flash_condition::Jam;
use crate::late::Late;
use crate::shard::{Tiers, apart};
use crate::stamp::Stamps;
use crate::volume_set::VolumeSet;
use crate::world::{CacheState, Turn, World, shard_context};

/// Time between probes of stores that are known to fail.
pub const PROBE_PERIOD: Nanos = Nanos(5_000_000_000);

/// A late store is destaged to continuously when more than this fraction of flash is dirty for it.
const LATE_SHARE: u64 = 8;

/// The results of destages to a volume's store.
#[derive(Clone, Copy, Debug)]
struct StoreHealth {
    /// Consecutive failures, when they began, and the error of the last.
    failures: u32,
    failing_since: Option<Nanos>,
    error: IoError,
}

impl StoreHealth {
    const GOOD: StoreHealth =
        StoreHealth { failures: 0, failing_since: None, error: IoError::Device };

    /// Whether it has failed for at least `time`.
    fn fails_for(&self, time: Nanos, now: Nanos) -> bool {
        self.failing_since.is_some_and(|since| now.0.saturating_sub(since.0) >= time.0)
    }
}

/// The state of the stores.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    health: PerVolume<StoreHealth>,
    /// Volumes that are suspended.
    suspended: VolumeSet,
    /// When stores that are known to fail are tried again.
    probe_at: Nanos,
    /// How many times in a row the region to reclaim was neither destaged nor carried on.
    stuck: u32,
    /// When a jam began that requests wait for, or have waited for until it was hopeless.
    jam_since: Option<Nanos>,
    /// Volumes to try in the next cleaning that finds their records.
    probing: VolumeSet,
    /// Regions carried on in a row while nothing else was written to the log: these make no room.
    in_vain: u32,
    /// Entries written to the log for other reasons, at the time when a region was last carried on.
    entries: u64,
    late: Late,
}

impl Stores {
    /// A volume is attached.
    pub fn attach(&mut self) {
        self.health.push(StoreHealth::GOOD);
        self.late.attach();
    }

    /// Volumes whose stores are late.
    #[inline]
    pub fn late(&self) -> VolumeSet {
        self.late.volumes()
    }

    /// The time from which a volume's store counts as late, given `writes` writes that began at
    /// `since`; `None` if the pace of other stores is unknown.
    pub fn late_at(
        &self,
        world: &World,
        volume: Volume,
        since: Nanos,
        writes: u32,
    ) -> Option<Nanos> {
        self.late.due(volume, since, writes, world.somebody_waits())
    }

    /// Notes that a volume's store has completed `writes` writes, which a cleaning began at `since`.
    pub fn note_pace(&mut self, world: &mut World, volume: Volume, since: Nanos, writes: u32) {
        if self.late.note(volume, since, writes, world.now) {
            self.pin(world);
        }
    }

    /// These volumes' stores are late.
    pub fn note_late(&mut self, world: &mut World, volumes: VolumeSet) {
        if self.late.add(volumes, world.now) {
            self.pin(world);
        }
    }

    /// Dirty records of failing or late stores are not evicted from flash.
    fn pin(&mut self, world: &mut World) {
        let pinned = world.volumes.failing | self.late();
        for shard in &mut world.shards {
            let Tiers { flash, blocks, transfers, .. } = &mut shard.tiers;
            flash.pin(blocks, transfers, &mut shard_context!(world), pinned);
        }
    }

    /// Orders a cleaning for late stores, if many blocks of one are dirty or if it is time; or
    /// first the stamps that this cleaning would wait for. Returns whether it orders anything.
    fn tend_late(&mut self, world: &mut World, cleaner: &mut Cleaner, stamps: &mut Stamps) -> bool {
        let late = self.late() & !world.volumes.failing & !cleaner.apart();
        let busy = cleaner.has_late() || !may_tend(world) || self.late.pauses(world.now);
        let may = !late.is_empty() && !busy && world.shards.iter().all(apart::has_frames);
        let Some(most) = world.dirty_blocks_max().filter(|_| may) else { return false };
        let volumes = || world.volumes.iter().filter(|&(n, _)| late.contains(n));
        let owed: u64 = volumes().map(|(_, v)| v.owed).sum();
        let all = self.late.is_time(world.now) || world.somebody_waits() || owed > most / 4;
        let least = if all { 0 } else { most / LATE_SHARE };
        let wanted = volumes().filter(|(_, v)| v.owed > least);
        let wanted: VolumeSet = wanted.map(|(n, _)| n).collect();
        if wanted.is_empty() {
            return false;
        }
        let owing = volumes().filter(|(_, v)| v.owed > 0).map(|(n, _)| n).collect();
        let Some(region) = oldest_for_late(world, cleaner, !wanted) else { return false };
        let Some(log) = &mut world.log else { return false };
        let newest = log.newest_batch(region);
        let unseen = stamps.unseen(owing, newest);
        if !unseen.is_empty() {
            // A cleaning would wait for this stamp, and all other cleanings would wait for that cleaning.
            return log.make_durable(newest)
                && stamps.order(world, unseen, BatchSequence::NONE, false);
        }
        cleaner.push(Work::Late(region));
        true
    }

    /// The stamps of these volumes could not be written. For a late store this counts as a failed
    /// write; for others the cleaning that waits for the stamp reports it.
    pub fn note_unstamped(&mut self, world: &mut World, failed: VolumeSet) {
        let late = failed & self.late();
        if !late.is_empty() {
            self.note_cleaned(world, VolumeSet::EMPTY, late, IoError::Device);
        }
    }

    /// The error of the volume's store, if the volume is suspended.
    pub fn suspended(&self, volume: Volume) -> Option<IoError> {
        let health = self.health.get(volume)?;
        self.suspended.contains(volume).then_some(health.error)
    }

    /// Whether [`Stores::take_turn`] may find work. `stops`: a destage or stop is in progress.
    #[inline]
    pub fn has_work(&self, world: &World, stops: impl FnOnce() -> bool) -> bool {
        let shares = &world.volumes.shares;
        shares.waiting > 0
            || !(shares.crowded & !world.volumes.failing & !self.late()).is_empty()
            || !world.volumes.failing.is_empty() && (world.hurry || stops())
            || !self.late().is_empty()
    }

    /// One turn: requests that wait for a share continue, and volumes near theirs are destaged.
    pub fn take_turn(
        &mut self,
        world: &mut World,
        cleaner: &mut Cleaner,
        stamps: &mut Stamps,
    ) -> Turn {
        let mut any = false;
        if world.volumes.shares.waiting > 0 {
            for volume in world.volumes.numbers() {
                if !world.is_over_share(volume) {
                    any |= world.release_one(volume);
                }
            }
        }
        let shares = &world.volumes.shares;
        if shares.waiting > 0 && !(world.volumes.failing & shares.crowded).is_empty() {
            self.review_failing(world);
        }
        if !self.late().is_empty() {
            any |= self.tend_late(world, cleaner, stamps);
        }
        let apart = world.volumes.failing | self.late();
        let crowded = !(world.volumes.shares.crowded & !apart).is_empty();
        // The destages of probes are not counted.
        let probes = self.probing.len() as usize;
        if crowded && cleaner.destages() <= probes && world.state == CacheState::Ready {
            any |= destage_oldest(world, cleaner, apart);
        }
        match self.stops_in_vain(world, cleaner) {
            true => Turn::GiveUp,
            false => Turn::from(any),
        }
    }

    /// Whether a stop waits for room that only stores known to fail can make.
    fn stops_in_vain(&self, world: &World, cleaner: &Cleaner) -> bool {
        world.is_stopping()
            && !world.volumes.failing.is_empty()
            && !world.flash.is_lost()
            && cleaner.is_idle()
            && world.somebody_waits_in_vain()
    }

    /// Volumes that a cleaning skips if it begins now. With `destage` a destage of all cleans regions.
    pub fn to_skip(&self, world: &World, work: Work, destage: bool) -> VolumeSet {
        // A stop waits for late stores.
        let late = if world.state == CacheState::Ready { self.late() } else { VolumeSet::EMPTY };
        let known = (world.volumes.failing | late) & !self.probing;
        match work {
            Work::Late(_) => !self.late() | world.volumes.failing,
            // A destage tries each store again, until that has failed as often as it takes.
            Work::Destage(_) if destage => self.hopeless(),
            Work::Destage(_) => known,
            Work::Reclaim(_) | Work::Evict => {
                let carries = self.may_carry_failing(world) && self.stuck == 0;
                if carries { known } else { VolumeSet::EMPTY }
            }
        }
    }

    /// Volumes whose store has failed too often in a row.
    fn hopeless(&self) -> VolumeSet {
        let stores = self.health.iter();
        let hopeless = stores.filter(|(_, health)| health.failures >= FAILURES_MAX);
        hopeless.map(|(n, _)| n).collect()
    }

    /// A destage begins: earlier failures do not count.
    pub fn forgive(&mut self) {
        self.health.iter_mut().for_each(|(_, health)| health.failures = 0);
    }

    /// Whether the log has room to carry on the records of failing stores: if nothing else were
    /// written, regions would be carried on in circles.
    pub fn may_carry_failing(&self, world: &World) -> bool {
        self.may_carry(world, VolumeSet::EMPTY)
    }

    /// Like [`Stores::may_carry_failing`], if the stores of `more` accepted no writes either.
    pub fn may_carry(&self, world: &World, more: VolumeSet) -> bool {
        let Some(most) = world.dirty_blocks_max() else { return false };
        let carried = world.volumes.failing | self.late() | more;
        let carried_on = |&(n, _): &(Volume, _)| carried.contains(n);
        let volumes = world.volumes.iter().filter(carried_on);
        let owed: u64 = volumes.map(|(_, v)| v.owed).sum();
        let regions = world.config.flash.as_ref().map_or(0, |f| f.geometry.regions);
        !carried.is_empty() && owed * 4 <= most * 3 && self.in_vain <= regions
    }

    /// Whether the last region that was carried on made no room.
    pub fn carries_in_vain(&self) -> bool {
        self.in_vain > 0
    }

    /// The remaining records of a region have been carried on.
    pub fn note_carried(&mut self, world: &World) {
        let Some(log) = &world.log else { return };
        let again = world.stats.carried + world.stats.carried_lost + world.stats.reinserted;
        let others = log.stats().entries - again;
        self.in_vain = if others == self.entries { self.in_vain + 1 } else { 0 };
        self.entries = others;
    }

    /// The region to reclaim was destaged or carried on, or was not.
    pub fn note_reclaimed(&mut self, done: bool) {
        self.stuck = if done { 0 } else { self.stuck + 1 };
    }

    /// A cleaning has written to volumes; some writes have failed.
    pub fn note_cleaned(
        &mut self,
        world: &mut World,
        written: VolumeSet,
        failed: VolumeSet,
        error: IoError,
    ) {
        self.probing &= !(written | failed);
        if !(failed & self.late()).is_empty() {
            self.late.pause(world.now);
        }
        for (n, health) in self.health.iter_mut() {
            if failed.contains(n) {
                health.failures += 1;
                health.failing_since.get_or_insert(world.now);
                health.error = error;
                if health.failures >= FAILURES_MAX {
                    if world.volumes.failing.is_empty() {
                        self.probe_at = world.now.saturating_add(PROBE_PERIOD);
                    }
                    world.volumes.failing.insert(n);
                }
            } else if written.contains(n)
                && (health.failures > 0 || world.volumes.failing.contains(n))
            {
                *health = StoreHealth::GOOD;
                world.stats.stores_recovered += u64::from(world.volumes.failing.contains(n));
                world.volumes.failing.remove(n);
                self.suspended.remove(n);
            }
        }
        self.pin(world);
        if world.volumes.failing.is_empty() {
            self.jam_since = None;
            world.set_jam(Jam::None);
        }
    }

    /// Judges again what stores that are known to fail do to requests: whether there is a jam and how long
    /// it has lasted, and which volumes have been waited for long enough to be suspended. Requests that
    /// have waited too long fail. Called when a request begins to wait, when a cleaning ends, when time has
    /// passed, when a stop is near, and when an operator asks for a retry.
    pub fn review_failing(&mut self, world: &mut World) {
        if world.volumes.failing.is_empty()
            || world.state != CacheState::Ready
            || world.flash.is_lost()
        {
            return;
        }
        let jam = self.time_jam(world);
        self.suspend_waited_for(world, jam);
        let jam = if self.suspended.is_empty() { Jam::None } else { jam };
        world.set_jam(jam);
        if jam == Jam::Hopeless {
            world.refuse_starved();
        }
    }

    /// Whether there is a jam, and whether it is hopeless; notes since when requests wait for its end.
    fn time_jam(&mut self, world: &World) -> Jam {
        // Where nothing can be carried on, all wait for those that fail.
        let jam = self.stuck >= FAILURES_MAX || !self.may_carry_failing(world);
        let limit = world.config.give_up_after;
        let waits = jam && world.somebody_waits();
        let lasts = |since: Nanos| limit != Nanos(0) && world.now >= since.saturating_add(limit);
        let hopeless = jam && self.jam_since.is_some_and(lasts);
        let since = self.jam_since.filter(|_| waits || hopeless);
        self.jam_since = since.or(waits.then_some(world.now));
        match jam {
            _ if hopeless || waits && world.hurry => Jam::Hopeless,
            true => Jam::Bypassed,
            false => Jam::None,
        }
    }

    /// Suspends the volumes whose stores have failed for long enough while requests waited for them: for
    /// the volume's share or, in a hopeless jam, for room. Requests that wait for their shares fail.
    fn suspend_waited_for(&mut self, world: &mut World, jam: Jam) {
        let limit = world.config.give_up_after;
        let mut fresh = VolumeSet::EMPTY;
        for (n, health) in self.health.iter() {
            let failing = world.volumes.failing.contains(n);
            let crowded = world.volumes.shares.crowded.contains(n);
            let waited_for =
                jam == Jam::Hopeless || crowded && !world.volumes[n].share_waiters.is_empty();
            let long = world.hurry || limit != Nanos(0) && health.fails_for(limit, world.now);
            fresh.insert_if(n, failing && waited_for && long);
        }
        let suspended = self.suspended | fresh;
        world.stats.suspensions += u64::from(suspended != self.suspended);
        self.suspended = suspended;
        for (volume, health) in self.health.iter() {
            if fresh.contains(volume) {
                world.refuse_held(volume, health.error);
            }
        }
    }

    /// When the cache has to be called for failing stores.
    #[inline]
    pub fn timeout(&self, world: &World) -> Option<Nanos> {
        let failing =
            if world.volumes.failing.is_empty() { None } else { self.timeout_of_failing(world) };
        let late = if self.late().is_empty() { None } else { self.timeout_of_late(world) };
        [failing, late].into_iter().flatten().min()
    }

    fn timeout_of_late(&self, world: &World) -> Option<Nanos> {
        let owes = self.late().iter().any(|volume| world.volumes[volume].owed > 0);
        self.late.timeout().filter(|&at| owes && may_tend(world) && at > world.now)
    }

    fn timeout_of_failing(&self, world: &World) -> Option<Nanos> {
        if world.state != CacheState::Ready || world.flash.is_lost() {
            return None;
        }
        let limit = world.config.give_up_after;
        let waited_for = world.volumes.failing & world.volumes.shares.crowded & !self.suspended;
        let waits =
            |&volume: &Volume| limit != Nanos(0) && !world.volumes[volume].share_waiters.is_empty();
        let since = |volume| self.health[volume].failing_since;
        let ends = waited_for.iter().filter(waits).filter_map(since);
        let ends = ends.map(|since| since.saturating_add(limit));
        let jam = self.jam_since.filter(|_| limit != Nanos(0));
        // Once the jam is hopeless, the waiting pieces have failed and there is nothing left to wait for.
        let jam = jam.map(|since| since.saturating_add(limit)).filter(|&end| end > world.now);
        ends.chain(jam).chain([self.probe_at]).min()
    }

    /// The time may have come; `destage`: a destage of everything is in progress.
    pub fn handle_timeout(&mut self, world: &mut World, cleaner: &mut Cleaner, destage: bool) {
        if !world.volumes.failing.is_empty() && world.state == CacheState::Ready {
            self.review_failing(world);
            if self.probe_at <= world.now {
                self.probe(world, cleaner, destage);
            }
        }
    }

    /// Retries failing stores now, instead of at the next due time. Until the result is known,
    /// writes wait as they did when the store began to fail: an operator says that it works again.
    pub fn retry(&mut self, world: &mut World, cleaner: &mut Cleaner, destage: bool) {
        cleaner.retry_now();
        self.probe_at = Nanos(0);
        self.suspended = VolumeSet::EMPTY;
        self.jam_since = None;
        for (_, health) in self.health.iter_mut() {
            health.failing_since = health.failing_since.map(|_| world.now);
        }
        self.review_failing(world);
        self.probe(world, cleaner, destage);
    }

    /// The next cleaning tries all stores; begins one if needed.
    fn probe(&mut self, world: &mut World, cleaner: &mut Cleaner, destage: bool) {
        if world.volumes.failing.is_empty() {
            return;
        }
        self.probe_at = world.now.saturating_add(PROBE_PERIOD);
        if destage {
            // That tries them all.
            return;
        }
        self.probing = world.volumes.failing;
        world.stats.probes += 1;
        for volume in world.volumes.failing.iter() {
            destage_oldest(world, cleaner, !VolumeSet::only(volume));
        }
    }
}

/// Whether late stores are destaged to.
fn may_tend(world: &World) -> bool {
    world.state.may_tend_late() && !world.flash.is_lost()
}
