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

use forebay_block::{Nanos, Volume};
use forebay_effect::IoError;
use forebay_flash::BatchSequence;

use crate::cleaner::{Cleaner, FAILURES_MAX, Work, destage_oldest, oldest_for_late};
use crate::flash_condition::Jam;
use crate::in_flight::RequestPlace;
use crate::shard::{Shard, Tiers};
use crate::stamp::Stamps;
use crate::volume_set::VolumeSet;
use crate::volumes::Volumes;
use crate::world::{Turn, World, shard_context, sooner};

/// Time between probes of stores that are known to fail.
pub const PROBE_PERIOD: Nanos = Nanos(5_000_000_000);

/// A late store is destaged to continuously when more than this fraction of flash is dirty for it.
const LATE_SHARE: u64 = 8;

/// What is being done about stores that fail or are late. Which ones are: `StoreConditions`.
#[derive(Debug, Default)]
pub(crate) struct Stores {
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
}

impl Stores {
    /// Notes that a volume's store has completed `writes` writes, which a cleaning began at `since`.
    pub fn note_pace(&mut self, world: &mut World, volume: Volume, since: Nanos, writes: u32) {
        if world.volumes.conditions.late.note(volume, since, writes, world.now) {
            Stores::pin(world);
        }
    }

    /// These volumes' stores are late.
    pub fn note_late(&mut self, world: &mut World, volumes: VolumeSet) {
        if world.volumes.conditions.late.add(volumes, world.now) {
            Stores::pin(world);
        }
    }

    /// The shards learn which volumes are left out. Called whenever that may have changed.
    fn pin(world: &mut World) {
        let left_out = world.volumes.conditions.left_out();
        for shard in &mut world.shards {
            let Tiers { flash, blocks, transfers, .. } = &mut shard.tiers;
            flash.pin(blocks, transfers, &mut shard_context!(world), left_out);
        }
    }

    /// Orders a cleaning for late stores, if many blocks of one are dirty or if it is time; or
    /// first the stamps that this cleaning would wait for. Returns whether it orders anything.
    fn tend_late(&mut self, world: &mut World, cleaner: &mut Cleaner, stamps: &mut Stamps) -> bool {
        let conditions = &world.volumes.conditions;
        let late = conditions.late.volumes() & !conditions.failing() & !cleaner.apart();
        let busy = cleaner.has_late() || !may_tend(world) || conditions.late.pauses(world.now);
        let has_frames = |shard: &Shard| shard.destager.writes.has_frames(&shard.tiers);
        let may = !late.is_empty() && !busy && world.shards.iter().all(has_frames);
        let Some(most) = world.dirty_blocks_max().filter(|_| may) else { return false };
        let owed: u64 = late.iter().map(|volume| world.volumes[volume].owed).sum();
        let time = world.volumes.conditions.late.is_time(world.now);
        let all = time || world.somebody_waits() || owed > most / 4;
        let least = if all { 0 } else { most / LATE_SHARE };
        let volumes = &world.volumes;
        let owing = |least| late.iter().filter(move |&n| volumes[n].owed > least);
        let (wanted, owing): (VolumeSet, _) = (owing(least).collect(), owing(0).collect());
        if wanted.is_empty() {
            return false;
        }
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
        let late = failed & world.volumes.conditions.late.volumes();
        if !late.is_empty() {
            self.note_cleaned(world, VolumeSet::EMPTY, late, IoError::Device);
        }
    }

    /// Whether [`Stores::take_turn`] may find work. `stops`: a destage or stop is in progress.
    #[inline]
    pub fn has_work(&self, world: &World, stops: impl FnOnce() -> bool) -> bool {
        let Volumes { shares, conditions, .. } = &world.volumes;
        debug_assert!(
            world.shards.iter().all(|shard| shard.tiers.flash.pins(conditions.left_out())),
            "a shard does not know which volumes are left out"
        );
        world.front.requests.count(RequestPlace::OverShare) > 0
            || !(shares.crowded() & !conditions.left_out()).is_empty()
            || !conditions.failing().is_empty() && (world.lifecycle.is_stop_near() || stops())
            || !conditions.late.volumes().is_empty()
    }

    /// One turn: requests that wait for a share continue, and volumes near theirs are destaged.
    pub fn take_turn(
        &mut self,
        world: &mut World,
        cleaner: &mut Cleaner,
        stamps: &mut Stamps,
    ) -> Turn {
        let mut any = false;
        if world.front.requests.count(RequestPlace::OverShare) > 0 {
            for volume in world.volumes.numbers() {
                if !world.is_over_share(volume) {
                    any |= world.release_one(volume);
                }
            }
        }
        let Volumes { shares, conditions, .. } = &world.volumes;
        let waits = world.front.requests.count(RequestPlace::OverShare) > 0;
        if waits && !(conditions.failing() & shares.crowded()).is_empty() {
            self.review_failing(world);
        }
        if !world.volumes.conditions.late.volumes().is_empty() {
            any |= self.tend_late(world, cleaner, stamps);
        }
        let left_out = world.volumes.conditions.left_out();
        let crowded = !(world.volumes.shares.crowded() & !left_out).is_empty();
        // The destages of probes are not counted.
        let probes = self.probing.len() as usize;
        if crowded && cleaner.destages() <= probes && world.lifecycle.is_ready() {
            any |= destage_oldest(world, cleaner, left_out);
        }
        match self.stops_in_vain(world, cleaner) {
            true => Turn::GiveUp,
            false => Turn::from(any),
        }
    }

    /// Whether a stop waits for room that only stores known to fail can make.
    fn stops_in_vain(&self, world: &World, cleaner: &Cleaner) -> bool {
        world.lifecycle.is_stopping()
            && !world.volumes.conditions.failing().is_empty()
            && !world.flash.is_lost()
            && cleaner.is_idle()
            && world.somebody_waits_in_vain()
    }

    /// Volumes that a cleaning skips if it begins now. With `destage` a destage of all cleans regions.
    pub fn to_skip(&self, world: &World, work: Work, destage: bool) -> VolumeSet {
        let conditions = &world.volumes.conditions;
        // A stop waits for late stores.
        let ready = world.lifecycle.is_ready();
        let known =
            if ready { conditions.left_out() } else { conditions.failing() } & !self.probing;
        match work {
            Work::Late(_) => !conditions.late.volumes() | conditions.failing(),
            // A destage tries each store again, until that has failed as often as it takes.
            Work::Destage(_) if destage => conditions.hopeless(),
            Work::Destage(_) => known,
            Work::Reclaim(_) | Work::Evict => {
                let carries = self.may_carry_failing(world) && self.stuck == 0;
                if carries { known } else { VolumeSet::EMPTY }
            }
        }
    }

    /// Whether the log has room to carry on the records of failing stores: if nothing else were
    /// written, regions would be carried on in circles.
    pub fn may_carry_failing(&self, world: &World) -> bool {
        self.may_carry(world, VolumeSet::EMPTY)
    }

    /// Like [`Stores::may_carry_failing`], if the stores of `more` accepted no writes either.
    pub fn may_carry(&self, world: &World, more: VolumeSet) -> bool {
        let Some(most) = world.dirty_blocks_max() else { return false };
        let carried = world.volumes.conditions.left_out() | more;
        let owed: u64 = carried.iter().map(|volume| world.volumes[volume].owed).sum();
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
        let conditions = &mut world.volumes.conditions;
        if !(failed & conditions.late.volumes()).is_empty() {
            conditions.late.pause(world.now);
        }
        for volume in (written | failed).iter() {
            if failed.contains(volume) {
                let first = conditions.failing().is_empty();
                conditions.cleaning_failed(volume, error, world.now);
                if first && !conditions.failing().is_empty() {
                    self.probe_at = world.now.saturating_add(PROBE_PERIOD);
                }
            } else {
                world.stats.stores_recovered += u64::from(conditions.cleaning_succeeded(volume));
            }
        }
        Stores::pin(world);
        if world.volumes.conditions.failing().is_empty() {
            self.jam_since = None;
            world.set_jam(Jam::None);
        }
    }

    /// Judges again what stores that are known to fail do to requests: whether there is a jam and how long
    /// it has lasted, and which volumes have been waited for long enough to be suspended. Requests that
    /// have waited too long fail. Called when a request begins to wait, when a cleaning ends, when time has
    /// passed, when a stop is near, and when an operator asks for a retry.
    pub fn review_failing(&mut self, world: &mut World) {
        if world.volumes.conditions.failing().is_empty()
            || !world.lifecycle.is_ready()
            || world.flash.is_lost()
        {
            return;
        }
        let jam = self.time_jam(world);
        Stores::suspend_waited_for(world, jam);
        let suspends = !world.volumes.conditions.suspended().is_empty();
        let jam = if suspends { jam } else { Jam::None };
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
            _ if hopeless || waits && world.lifecycle.is_stop_near() => Jam::Hopeless,
            true => Jam::Bypassed,
            false => Jam::None,
        }
    }

    /// Suspends the volumes whose stores have failed for long enough while requests waited for them: for
    /// the volume's share or, in a hopeless jam, for room. Requests that wait for their shares fail.
    fn suspend_waited_for(world: &mut World, jam: Jam) {
        let limit = world.config.give_up_after;
        let Volumes { shares, conditions, .. } = &world.volumes;
        let waits = |n| shares.crowded().contains(n) && !world.volumes[n].share_waiters.is_empty();
        let waited_for = |&n: &Volume| jam == Jam::Hopeless || waits(n);
        let long = |&n: &Volume| {
            world.lifecycle.is_stop_near()
                || limit != Nanos(0) && conditions[n].fails_for(limit, world.now)
        };
        let fresh: VolumeSet =
            conditions.failing().iter().filter(waited_for).filter(long).collect();
        world.stats.suspensions += u64::from(world.volumes.conditions.suspend(fresh));
        for volume in fresh.iter() {
            if let Some(error) = world.volumes.conditions.suspended_by(volume) {
                world.refuse_held(volume, error);
            }
        }
    }

    /// When the cache has to be called for failing stores.
    #[inline]
    pub fn timeout(&self, world: &World) -> Option<Nanos> {
        if world.volumes.conditions.left_out().is_empty() {
            return None;
        }
        sooner(self.timeout_of_failing(world), timeout_of_late(world))
    }

    fn timeout_of_failing(&self, world: &World) -> Option<Nanos> {
        let Volumes { shares, conditions, .. } = &world.volumes;
        let fails = !conditions.failing().is_empty();
        if !fails || !world.lifecycle.is_ready() || world.flash.is_lost() {
            return None;
        }
        let limit = world.config.give_up_after;
        let waited_for = conditions.failing() & shares.crowded() & !conditions.suspended();
        let waits =
            |&volume: &Volume| limit != Nanos(0) && !world.volumes[volume].share_waiters.is_empty();
        let since = |volume| conditions[volume].failing_since();
        let ends = waited_for.iter().filter(waits).filter_map(since);
        let ends = ends.map(|since| since.saturating_add(limit));
        let jam = self.jam_since.filter(|_| limit != Nanos(0));
        // Once the jam is hopeless, the waiting pieces have failed and there is nothing left to wait for.
        let jam = jam.map(|since| since.saturating_add(limit)).filter(|&end| end > world.now);
        ends.chain(jam).chain([self.probe_at]).min()
    }

    /// The time may have come; `destage`: a destage of everything is in progress.
    pub fn handle_timeout(&mut self, world: &mut World, cleaner: &mut Cleaner, destage: bool) {
        if !world.volumes.conditions.failing().is_empty() && world.lifecycle.is_ready() {
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
        self.jam_since = None;
        world.volumes.conditions.retry(world.now);
        self.review_failing(world);
        self.probe(world, cleaner, destage);
    }

    /// The next cleaning tries all stores; begins one if needed.
    fn probe(&mut self, world: &mut World, cleaner: &mut Cleaner, destage: bool) {
        let failing = world.volumes.conditions.failing();
        if failing.is_empty() {
            return;
        }
        self.probe_at = world.now.saturating_add(PROBE_PERIOD);
        if destage {
            // That tries them all.
            return;
        }
        self.probing = failing;
        world.stats.probes += 1;
        for volume in failing.iter() {
            destage_oldest(world, cleaner, !VolumeSet::only(volume));
        }
    }
}

fn timeout_of_late(world: &World) -> Option<Nanos> {
    let late = &world.volumes.conditions.late;
    let owes = late.volumes().iter().any(|volume| world.volumes[volume].owed > 0);
    late.timeout().filter(|&at| owes && may_tend(world) && at > world.now)
}

/// Whether late stores are destaged to.
fn may_tend(world: &World) -> bool {
    world.lifecycle.may_tend_late() && !world.flash.is_lost()
}
