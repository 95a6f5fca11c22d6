//! Destages to late stores: separate cleanings, begun when many blocks of such a store are dirty,
//! or when it is time.

use forebay_block::Nanos;
use forebay_flash::BatchSequence;

use crate::cleaner::{Cleaner, Work, oldest_for_late};
use crate::shard::Shard;
use crate::stamp::Stamps;
use crate::volume_set::VolumeSet;
use crate::world::World;

/// A late store is destaged to continuously when more blocks are dirty for it than flash holds
/// divided by this number.
const LATE_SHARE: u64 = 8;
/// Time without attempts after a failure of a late store.
const PAUSE: Nanos = Nanos(100_000_000);
/// Time between attempts if few blocks of a late store's volume are dirty.
const PERIOD: Nanos = Nanos(5_000_000_000);

/// When late stores are destaged to. Which ones are late: [`Late`](crate::late::Late).
#[derive(Debug, Default)]
pub(super) struct LateDestages {
    /// The time of the next attempt if few blocks are dirty.
    try_at: Nanos,
    /// No attempt is made before this time.
    pause_until: Nanos,
}

impl LateDestages {
    /// Notes that more stores are late.
    pub fn note_late(&mut self, now: Nanos) {
        self.try_at = now.saturating_add(PERIOD);
    }

    /// Notes that a late store has failed: for a while, none is tried.
    pub fn pause(&mut self, now: Nanos) {
        self.pause_until = now.saturating_add(PAUSE);
    }

    fn is_paused(&self, now: Nanos) -> bool {
        now < self.pause_until
    }

    /// Whether it is time for an attempt; if so, the next time is later.
    fn is_time(&mut self, now: Nanos) -> bool {
        let time = self.try_at <= now;
        if time {
            self.try_at = now.saturating_add(PERIOD);
        }
        time
    }

    /// Orders a cleaning for late stores, if many blocks of one are dirty or if it is time; or
    /// first the stamps that this cleaning would wait for. Returns whether it orders anything.
    pub fn take_turn(
        &mut self,
        world: &mut World,
        cleaner: &mut Cleaner,
        stamps: &mut Stamps,
    ) -> bool {
        let conditions = &world.volumes.conditions;
        // A store whose header hangs must not keep the others waiting.
        let hung = stamps.overdue(world.now);
        let late = conditions.late.volumes() & !conditions.failing() & !cleaner.apart() & !hung;
        let busy = cleaner.has_late() || !may_destage(world) || self.is_paused(world.now);
        let has_frames = |shard: &Shard| shard.destager.writes.has_frames(&shard.tiers);
        let may = !late.is_empty() && !busy && world.shards.iter().all(has_frames);
        let Some(most) = world.dirty_blocks_max().filter(|_| may) else { return false };
        let owed: u64 = late.iter().map(|volume| world.volumes[volume].owed).sum();
        let time = self.is_time(world.now);
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
            // A cleaning would wait for this stamp, and all other cleanings would wait for that
            // cleaning.
            return log.make_durable(newest)
                && stamps.order(world, unseen, BatchSequence::NONE, false);
        }
        cleaner.push(Work::Late(region));
        true
    }

    /// When late stores are tried next, if anything is owed to them.
    pub fn timeout(&self, world: &World) -> Option<Nanos> {
        let late = world.volumes.conditions.late.volumes();
        let owes = late.iter().any(|volume| world.volumes[volume].owed > 0);
        let at = self.try_at.max(self.pause_until);
        (owes && may_destage(world) && at > world.now).then_some(at)
    }
}

/// Whether late stores are destaged to.
fn may_destage(world: &World) -> bool {
    world.lifecycle.may_tend_late() && !world.flash.is_lost()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_late_stores_are_left_alone_for_a_while() {
        let mut late = LateDestages::default();
        late.note_late(Nanos(0));
        assert!(!late.is_paused(Nanos(0)) && !late.is_time(Nanos(PERIOD.0 - 1)));
        assert!(late.is_time(PERIOD) && !late.is_time(PERIOD));
        late.pause(PERIOD);
        assert!(late.is_paused(PERIOD) && !late.is_paused(Nanos(PERIOD.0 + PAUSE.0)));
    }
}
