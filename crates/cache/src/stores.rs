//! Backing stores that fail, and what becomes of the others.
//!
//! All volumes share the flash tier, and its log reclaims regions in the order in which they were
//! filled. So that one store that takes nothing does not stop that:
//!
//! - Of several volumes each may have dirty as much as half of flash. Beyond that its writes wait
//!   until some of it is destaged, which begins at three quarters of the share.
//! - A store that has failed [`FAILURES_MAX`] times in a row is *known to fail*: who reclaims a region
//!   does not try it but carries its records on to the head of the log (`shard/destager/carry.rs`). From
//!   time to time a *probe* tries it again.
//! - When writes have waited for a store that is known to fail for `give_up_after`, its volume is
//!   *suspended*: they are told, and so is who comes later, until the store takes something again.
//! - If what the failing stores are owed is more than can be carried on, there is a *jam*: all who need
//!   room wait. Once a volume is suspended, writes that can go past flash do. When the jam itself has
//!   lasted for `give_up_after`, it is *hopeless*: who waits is told, and so is who comes later, until it
//!   ends. A jam that passes sooner fails nobody, however long ago a store began to fail.

use forebay_block::{Nanos, Volume};
use forebay_effect::IoError;
use forebay_flash::Log;

use crate::cache::Cache;
use crate::cleaner::Purpose;
use crate::pump::FAILURES_MAX;
use crate::shard::{Shard, ShardContext};
use crate::slab::Fifo;
use crate::world::{State, around};

/// Time between probes of stores that are known to fail.
const PROBE_PERIOD: Nanos = Nanos(5_000_000_000);

/// What destages have seen of a volume's store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreHealth {
    /// Failures in a row, since when, and how the last.
    failures: u32,
    failing_since: Option<Nanos>,
    error: IoError,
}

impl StoreHealth {
    pub const GOOD: StoreHealth =
        StoreHealth { failures: 0, failing_since: None, error: IoError::Device };

    /// Whether it has failed for so long.
    fn fails_for(&self, time: Nanos, now: Nanos) -> bool {
        self.failing_since.is_some_and(|since| now.0.saturating_sub(since.0) >= time.0)
    }
}

/// The stores, as far as volumes share flash.
#[derive(Debug)]
pub(crate) struct Stores {
    /// Blocks of a volume that may be dirty on flash; all if it is alone.
    pub share: u64,
    /// Volumes (bits) with three quarters of that.
    pub crowded: u64,
    /// Those whose store is known to fail, and those that are suspended.
    pub failing: u64,
    pub suspended: u64,
    /// When stores that are known to fail are to be tried again; whether the next cleaning does.
    pub probe_at: Nanos,
    /// So often in a row the region to be reclaimed was neither destaged nor carried on.
    pub stuck: u32,
    /// Since when there is a jam for which somebody waits, or has waited until it was hopeless.
    jam_since: Option<Nanos>,
    /// It has lasted for long enough, and requests are told so.
    hopeless: bool,
    /// Those (bits) that the next cleaning that meets their records is to try.
    probing: u64,
    /// Regions carried on in a row though nothing else was written to the log: that makes no room; and what
    /// else had been written.
    in_vain: u32,
    entries: u64,
    /// Requests that wait for their volume's share.
    pub held: u32,
}

impl Stores {
    pub fn new() -> Stores {
        let share = u64::MAX;
        let (crowded, failing, suspended) = (0, 0, 0);
        let (stuck, probing, held, hopeless) = (0, 0, 0, false);
        let (probe_at, jam_since, in_vain, entries) = (Nanos(0), None, 0, 0);
        Stores {
            share,
            crowded,
            failing,
            suspended,
            probe_at,
            stuck,
            jam_since,
            hopeless,
            probing,
            in_vain,
            entries,
            held,
        }
    }

    /// A volume has so many dirty blocks on flash now.
    #[inline]
    pub fn note_dirty(&mut self, volume: usize, blocks: u64) {
        let crowded = blocks >= self.share - self.share / 4;
        self.crowded = self.crowded & !(1 << volume) | u64::from(crowded) << volume;
    }
}

impl Cache {
    /// All volumes are attached: each has its share of what flash can hold.
    pub(crate) fn divide_flash(&mut self) {
        if self.world.front.volumes.len() < 2 {
            return;
        }
        let Some(blocks) = self.dirty_blocks_max() else { return };
        self.world.front.stores.share = (blocks / 2).max(1);
    }

    /// Blocks that can be dirty on flash at once, while those of others come and go.
    fn dirty_blocks_max(&self) -> Option<u64> {
        let flash = self.world.config.flash.as_ref()?;
        if flash.geometry.slots != 0 {
            return Some(flash.blocks.into());
        }
        // Without the region being filled, and what is kept for carrying.
        let regions = u64::from(flash.geometry.regions - 1 - flash.geometry.regions_kept());
        let batch =
            self.world.shards.iter().map(|shard| shard.carry_batch(&flash.geometry)).min()?;
        let blocks = regions * flash.geometry.region_blocks(batch as u32);
        Some(blocks.min(flash.entries_max.into()))
    }

    /// Whether the volume's store has failed so often in a row that others do not wait for it.
    pub fn is_known_to_fail(&self, volume: Volume) -> bool {
        self.world.front.stores.failing >> volume.0.min(63) & 1 == 1
    }

    /// Whether the volume is suspended, and how its store fails.
    pub fn suspended(&self, volume: Volume) -> Option<IoError> {
        let suspended = self.world.front.stores.suspended >> volume.0 & 1 == 1;
        let state = self.world.front.volumes.get(volume.0 as usize)?;
        suspended.then_some(state.health.error)
    }

    /// Whether flash has had no room for so long, since stores fail, that requests which need some fail.
    pub fn is_jammed(&self) -> bool {
        self.world.front.stores.hopeless && !self.world.log_lost
    }

    /// Blocks that each volume may have dirty on flash; `None` if there is one volume only, or no flash.
    pub fn dirty_share(&self) -> Option<u64> {
        Some(self.world.front.stores.share).filter(|&share| share != u64::MAX)
    }

    /// Has stores that fail tried again now, rather than when it is time.
    pub fn retry_stores(&mut self) {
        self.cleaner.retry_at = None;
        self.world.front.stores.probe_at = Nanos(0);
        self.probe();
        self.pump();
    }

    /// Whether another piece that modifies has to wait for the volume's share.
    #[inline]
    pub(crate) fn is_over_share(&self, volume: usize) -> bool {
        let (v, share) = (&self.world.front.volumes[volume], self.world.front.stores.share);
        v.owed + u64::from(v.pieces) >= share
            && self.world.config.write_policy.write_back
            && self.world.state == State::Ready
            && !self.world.log_lost
    }

    /// Keeps the rest of a request until its volume has dirty less than its share.
    pub(crate) fn hold_for_share(&mut self, request: u32) {
        let volume = usize::from(self.world.front.requests[request].volume);
        let mut held = self.world.front.volumes[volume].held;
        self.world.front.requests.push_back(&mut held, request);
        self.world.front.volumes[volume].held = held;
        self.world.front.stores.held += 1;
        self.world.stats.waits_share += 1;
        self.consider_suspending();
    }

    /// Whether a turn of [`Cache::push_stores`] may find anything to do.
    #[inline]
    pub(crate) fn owes_stores(&self) -> bool {
        let stores = &self.world.front.stores;
        stores.held > 0
            || stores.crowded & !stores.failing != 0
            || stores.failing != 0 && (self.world.hurry || self.may_stop())
    }

    /// One turn of that: who waits for a share goes on, and the crowded are destaged.
    pub(crate) fn push_stores(&mut self) -> bool {
        let mut any = false;
        let volumes =
            if self.world.front.stores.held > 0 { self.world.front.volumes.len() } else { 0 };
        for volume in 0..volumes {
            if !self.is_over_share(volume) {
                any |= self.release_one(volume);
            }
        }
        let stores = &self.world.front.stores;
        if stores.held > 0 && stores.failing & stores.crowded != 0 {
            self.consider_suspending();
        }
        let crowded = self.world.front.stores.crowded & !self.world.front.stores.failing != 0;
        // (Beside probes.)
        let probes = self.world.front.stores.probing.count_ones() as usize;
        if crowded && self.cleaner.destages() <= probes && self.world.state == State::Ready {
            any |= self.clean_oldest(self.world.front.stores.failing);
        }
        if self.stops_in_vain() {
            self.give_up();
            any = true;
        }
        any
    }

    /// Whether a stop waits for room that only stores can make that are known to fail.
    fn stops_in_vain(&self) -> bool {
        let stopping = self.world.hurry || self.world.state != State::Ready;
        stopping
            && self.world.front.stores.failing != 0
            && !self.world.log_lost
            && self.cleaner.is_idle()
            && self.somebody_waits()
    }

    /// The first that waits for the volume's share goes on.
    fn release_one(&mut self, volume: usize) -> bool {
        let mut held = self.world.front.volumes[volume].held;
        let first = self.world.front.requests.pop_front(&mut held);
        self.world.front.volumes[volume].held = held;
        let Some(request) = first else { return false };
        self.world.front.stores.held -= 1;
        if self.is_held(self.world.front.requests[request].op) {
            self.hold(request);
        } else {
            self.world.front.go_on(request);
        }
        true
    }

    /// Who waits for the volume's share is told that it waits in vain.
    fn refuse_held(&mut self, volume: usize, error: IoError) {
        let mut held = core::mem::replace(&mut self.world.front.volumes[volume].held, Fifo::EMPTY);
        while let Some(request) = self.world.front.requests.pop_front(&mut held) {
            self.world.front.stores.held -= 1;
            let r = &mut self.world.front.requests[request];
            (r.error, r.cursor) = (Some(error), r.end);
            // (What is under way of it comes to its end first.)
            if r.outstanding == 0 {
                self.world.front.reply(request, &mut self.world.effects);
            }
        }
    }

    /// Has the oldest region with something dirty destaged, of volumes other than these (bits).
    fn clean_oldest(&mut self, but: u64) -> bool {
        let Some(log) = self.world.log.as_ref().filter(|log| log.error().is_none()) else {
            return false;
        };
        let dirty =
            |region: &u32| self.world.shards.iter().any(|s| s.region_is_dirty_but(*region, but));
        let Some(region) = log.regions_in_use().find(dirty) else { return false };
        let active = self.cleaner.active.is_some_and(|active| active.region == region);
        if active || self.cleaner.is_wanted_clean(region) {
            return false;
        }
        self.cleaner.push(region, Purpose::Destage);
        true
    }

    // ---- failures ----

    /// The volumes (bits) that a cleaning that begins now does not try.
    pub(crate) fn stores_to_skip(&mut self, purpose: Purpose) -> u64 {
        let known = self.world.front.stores.failing & !self.world.front.stores.probing;
        match purpose {
            // A destage tries each store again, until that has failed as often as it takes.
            Purpose::Destage if self.destaging.is_some_and(|d| d.is_cleaning()) => self.hopeless(),
            Purpose::Destage => known,
            Purpose::Reclaim | Purpose::Evict => {
                let carries = self.may_carry_failing() && self.world.front.stores.stuck == 0;
                if carries { known } else { 0 }
            }
        }
    }

    /// Volumes (bits) whose store has failed so often in a row.
    fn hopeless(&self) -> u64 {
        let volumes = self.world.front.volumes.iter().enumerate();
        let hopeless = volumes.filter(|(_, v)| v.health.failures >= FAILURES_MAX);
        hopeless.fold(0, |bits, (n, _)| bits | 1 << n)
    }

    /// A destage begins: what failed before it does not count.
    pub(crate) fn forgive_stores(&mut self) {
        self.world.front.volumes.iter_mut().for_each(|v| v.health.failures = 0);
    }

    /// Whether there is room in the log for carrying on what stores that fail do not take: with it and
    /// nothing else, regions would go round for ever.
    pub(crate) fn may_carry_failing(&self) -> bool {
        let stores = &self.world.front.stores;
        let Some(most) = self.dirty_blocks_max() else { return false };
        let failing = |&(n, _): &(usize, _)| stores.failing >> n & 1 == 1;
        let volumes = self.world.front.volumes.iter().enumerate().filter(failing);
        let owed: u64 = volumes.map(|(_, v)| v.owed).sum();
        let regions = self.world.config.flash.as_ref().map_or(0, |f| f.geometry.regions);
        stores.failing != 0 && owed * 4 <= most * 3 && stores.in_vain <= regions
    }

    /// What was left of a region has been carried on.
    pub(crate) fn note_carried(&mut self) {
        let Some(log) = &self.world.log else { return };
        let again =
            self.world.stats.carried + self.world.stats.carried_lost + self.world.stats.reinserted;
        let others = log.stats().entries - again;
        let stores = &mut self.world.front.stores;
        stores.in_vain = if others == stores.entries { stores.in_vain + 1 } else { 0 };
        stores.entries = others;
    }

    /// A cleaning has written to volumes (bits), of which some have failed.
    pub(crate) fn note_stores(&mut self, written: u64, failed: u64, error: IoError) {
        let stores = &mut self.world.front.stores;
        stores.probing &= !(written | failed);
        for (n, volume) in self.world.front.volumes.iter_mut().enumerate() {
            let bit = 1 << n;
            let health = &mut volume.health;
            if failed & bit != 0 {
                health.failures += 1;
                health.failing_since.get_or_insert(self.world.now);
                health.error = error;
                if health.failures >= FAILURES_MAX {
                    if stores.failing == 0 {
                        stores.probe_at = self.world.now.saturating_add(PROBE_PERIOD);
                    }
                    stores.failing |= bit;
                }
            } else if written & bit != 0 && (health.failures > 0 || stores.failing & bit != 0) {
                *health = StoreHealth::GOOD;
                self.world.stats.stores_recovered += u64::from(stores.failing & bit != 0);
                stores.failing &= !bit;
                stores.suspended &= !bit;
            }
        }
        let failing = self.world.front.stores.failing;
        if failing == 0 {
            (self.world.front.stores.jam_since, self.world.front.stores.hopeless) = (None, false);
        }
        for shard in &mut self.world.shards {
            shard.set_failing(&mut around!(self.world), failing);
            if failing == 0 {
                shard.set_jam(false, false);
            }
        }
    }

    /// Suspends volumes that have been waited for long enough.
    pub(crate) fn consider_suspending(&mut self) {
        let limit = self.world.config.give_up_after;
        if self.world.front.stores.failing == 0
            || self.world.state != State::Ready
            || self.world.log_lost
        {
            return;
        }
        // Where nothing can be carried on, all wait for those that fail.
        let jam = self.world.front.stores.stuck >= FAILURES_MAX || !self.may_carry_failing();
        let hopeless = self.time_jam(jam);
        let mut fresh = 0;
        for (n, volume) in self.world.front.volumes.iter().enumerate() {
            let failing = self.world.front.stores.failing >> n & 1 == 1;
            let crowded = self.world.front.stores.crowded >> n & 1 == 1;
            let waited_for = hopeless || crowded && !volume.held.is_empty();
            let long = self.world.hurry
                || limit != Nanos(0) && volume.health.fails_for(limit, self.world.now);
            if failing && waited_for && long {
                fresh |= 1 << n;
            }
        }
        let suspended = self.world.front.stores.suspended | fresh;
        self.world.stats.suspensions += u64::from(suspended != self.world.front.stores.suspended);
        self.world.front.stores.suspended = suspended;
        for volume in 0..self.world.front.volumes.len() {
            if fresh >> volume & 1 == 1 {
                let error = self.world.front.volumes[volume].health.error;
                self.refuse_held(volume, error);
            }
        }
        let (jam, hopeless) = (jam && suspended != 0, hopeless && suspended != 0);
        self.world.front.stores.hopeless = hopeless;
        let tells = hopeless && self.somebody_waits();
        self.world.stats.jams += u64::from(tells);
        for shard in &mut self.world.shards {
            shard.set_jam(jam, hopeless);
        }
        if let Some(log) = self.world.log.as_mut().filter(|_| tells) {
            log.take_back();
        }
        for n in 0..self.world.shards.len() {
            if hopeless {
                self.world.shards[n].refuse_starved(&mut around!(self.world));
            }
        }
    }

    /// Keeps the time of a jam, if there is one; whether it has lasted for long enough.
    fn time_jam(&mut self, jam: bool) -> bool {
        let limit = self.world.config.give_up_after;
        let waits = jam && self.somebody_waits();
        let lasts =
            |since: Nanos| limit != Nanos(0) && self.world.now >= since.saturating_add(limit);
        let hopeless = jam && self.world.front.stores.jam_since.is_some_and(lasts);
        let since = self.world.front.stores.jam_since.filter(|_| waits || hopeless);
        self.world.front.stores.jam_since = since.or(waits.then_some(self.world.now));
        hopeless || waits && self.world.hurry
    }

    /// When something is to be done about stores that fail.
    pub(crate) fn stores_timeout(&self) -> Option<Nanos> {
        let stores = &self.world.front.stores;
        if stores.failing == 0 || self.world.state != State::Ready || self.world.log_lost {
            return None;
        }
        let limit = self.world.config.give_up_after;
        let waits = |&(n, v): &(usize, &crate::volume::VolumeState)| {
            stores.failing & stores.crowded & !stores.suspended & 1 << n != 0
                && !v.held.is_empty()
                && limit != Nanos(0)
        };
        let volumes = self.world.front.volumes.iter().enumerate().filter(waits);
        let ends = volumes.filter_map(|(_, v)| Some(v.health.failing_since?.saturating_add(limit)));
        let jam = stores.jam_since.filter(|_| limit != Nanos(0));
        // (Once it is hopeless, all has been told.)
        let jam = jam.map(|since| since.saturating_add(limit)).filter(|&end| end > self.world.now);
        ends.chain(jam).chain([stores.probe_at]).min()
    }

    /// The time has come, or may have.
    pub(crate) fn pass_stores_timeout(&mut self) {
        if self.world.front.stores.failing != 0 && self.world.state == State::Ready {
            self.consider_suspending();
            if self.world.front.stores.probe_at <= self.world.now {
                self.probe();
            }
        }
    }

    /// The next cleaning tries all stores; one is begun if need be.
    fn probe(&mut self) {
        let stores = &mut self.world.front.stores;
        if stores.failing == 0 {
            return;
        }
        stores.probe_at = self.world.now.saturating_add(PROBE_PERIOD);
        if self.destaging.is_some() {
            // That tries them all.
            return;
        }
        stores.probing = stores.failing;
        self.world.stats.probes += 1;
        let mut failing = stores.failing;
        while failing != 0 {
            let bit = 1 << failing.trailing_zeros();
            failing &= !bit;
            self.clean_oldest(!bit);
        }
    }

    /// Whether anybody waits for room on flash.
    pub(crate) fn somebody_waits(&self) -> bool {
        self.world.log.as_ref().is_some_and(Log::is_out_of_room)
            || self.world.shards.iter().any(Shard::waits_for_an_entry)
    }
}
