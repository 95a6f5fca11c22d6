//! The limit on how long requests wait for stores that are known to fail (`give_up_after`).
//!
//! - When writes wait for a volume's share, and its store has been failing for that long, the volume is
//!   *suspended*: these writes and all later ones fail until the store accepts a write again.
//! - If more data is owed to failing stores than can be carried on, there is a *jam*: all requests
//!   that need room wait. Once a volume is suspended, writes that can bypass flash do so. When the
//!   jam has lasted for that long, it is *hopeless*: requests that wait fail, and later ones fail
//!   too, until it ends. A jam that ends sooner fails no request, however long ago a store began to
//!   fail.

use forebay_block::{Nanos, Volume};

use crate::cleaner::Cleaner;
use crate::flash_condition::Jam;
use crate::volume_set::VolumeSet;
use crate::volumes::Volumes;
use crate::world::World;

/// The state of the limit; see the module documentation.
#[derive(Debug, Default)]
pub(super) struct WaitLimit {
    /// When a jam began that requests wait for, or have waited for until it was hopeless.
    jam_since: Option<Nanos>,
}

impl WaitLimit {
    /// Checks the effect on requests of stores that are known to fail: whether there is a jam and
    /// how long it has lasted, and which volumes have been waited for long enough to be suspended.
    /// Fails requests that have waited too long. Returns whether waiting pieces may try again, or
    /// requests have ended.
    pub fn review(&mut self, world: &mut World, cleaner: &Cleaner) -> bool {
        if !applies(world) {
            return false;
        }
        let jam = self.time_jam(world, cleaner);
        WaitLimit::suspend_waited_for(world, jam);
        let suspends = !world.volumes.conditions.suspended().is_empty();
        let jam = if suspends { jam } else { Jam::None };
        let changed = world.set_jam(jam);
        if jam == Jam::Hopeless {
            world.refuse_starved();
        }
        changed || !world.front.finished.is_empty()
    }

    /// Whether there is a jam, and whether it is hopeless; notes since when requests wait for its
    /// end.
    fn time_jam(&mut self, world: &World, cleaner: &Cleaner) -> Jam {
        // If nothing can be carried on, all volumes wait for the failing stores.
        let jam = !cleaner.makes_room(world);
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

    /// Suspends the volumes whose stores have failed for long enough while requests waited for
    /// them: for the volume's share or, in a hopeless jam, for room. Requests that wait for their
    /// shares fail.
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

    /// Ends the jam, because no store is known to fail.
    pub fn end_jam(&mut self, world: &mut World) {
        self.jam_since = None;
        world.set_jam(Jam::None);
    }

    /// Starts the limit again, because an operator says that stores work: requests wait as long as
    /// when the stores began to fail.
    pub fn begin_again(&mut self) {
        self.jam_since = None;
    }

    /// The next time at which requests will have waited long enough.
    pub fn timeout(&self, world: &World) -> Option<Nanos> {
        let limit = world.config.give_up_after;
        if limit == Nanos(0) || !applies(world) {
            return None;
        }
        let Volumes { shares, conditions, .. } = &world.volumes;
        let waited_for = conditions.failing() & shares.crowded() & !conditions.suspended();
        let waits = |&volume: &Volume| !world.volumes[volume].share_waiters.is_empty();
        let since = |volume| conditions[volume].failing_since();
        let ends = waited_for.iter().filter(waits).filter_map(since);
        let ends = ends.map(|since| since.saturating_add(limit));
        let jam = self.jam_since.map(|since| since.saturating_add(limit));
        // Once the jam is hopeless, the waiting pieces have failed and there is nothing left to
        // wait for.
        ends.chain(jam.filter(|&end| end > world.now)).min()
    }
}

/// Whether stores that are known to fail may keep requests waiting.
pub(super) fn applies(world: &World) -> bool {
    !world.volumes.conditions.failing().is_empty()
        && world.lifecycle.is_ready()
        && !world.flash.is_lost()
}

/// Whether a stop waits for room that only stores known to fail can make.
pub(super) fn stops_in_vain(world: &World, cleaner: &Cleaner) -> bool {
    !world.lifecycle.stays_in_service()
        && !world.volumes.conditions.failing().is_empty()
        && !world.flash.is_lost()
        && cleaner.is_idle()
        && world.somebody_waits_in_vain()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CacheConfig;

    #[test]
    fn only_a_jam_that_requests_wait_for_grows_old_and_a_hopeless_one_stays_so() {
        let mut world = World::new(CacheConfig::dram_only(4));
        let limit = world.config.give_up_after;
        let cleaner = Cleaner::new(0, false);
        let mut waits = WaitLimit { jam_since: Some(Nanos(1)) };
        world.now = Nanos(limit.0 + 1);
        for _ in 0..2 {
            assert_eq!(waits.time_jam(&world, &cleaner), Jam::Hopeless);
            assert_eq!(waits.jam_since, Some(Nanos(1)));
        }
        world.now = limit;
        assert_eq!(waits.time_jam(&world, &cleaner), Jam::Bypassed);
        assert_eq!(waits.jam_since, None, "nobody waits any more");
    }
}
