//! Late stores: those whose writes in a cleaning take many times as long as the writes to other
//! stores, and those that take very long to end a sync.
//!
//! A cleaning covers all volumes and ends when the slowest store has taken its part; meanwhile no
//! request gets room. So a cleaning continues without the volumes of late stores
//! (`cleaner/apart.rs`). As long as a store is known to be late, cleanings that make room skip its
//! volume, as if the store failed. Its dirty blocks stay on flash, up to its share, and separate
//! cleanings destage them (`stores/late_destages.rs`).
//!
//! A store is late in comparison with the slowest of the other stores, by the time that a round of
//! writes takes. As long as no other store's time is known, the limit is absolute: a store may hang
//! before any other has been written. The limit on a sync is always absolute, because the time of
//! one depends on how much was written before it.
//!
//! A store that is late in one thing is so until it has done this very thing in time: a store that
//! takes writes quickly may still hang in each sync.

use crate::volume_set::VolumeSet;
use forebay_block::{Nanos, PerVolume, Volume};

/// Writes in a round: about as many as a store has in flight.
const ROUND: u32 = 16;
/// A store is late if a round takes it this many times as long as the slowest other store.
const TIMES: u64 = 16;
/// A round that takes less time than this is never late; the second value applies while a request
/// waits for room.
const LEAST: Nanos = Nanos(250_000_000);
const LEAST_WAITED: Nanos = Nanos(50_000_000);
/// The limit on a round as long as nothing is known of other stores; the second value applies while a
/// request waits for room.
const ALONE: Nanos = Nanos(1_000_000_000);
const ALONE_WAITED: Nanos = Nanos(500_000_000);

/// The limit on a sync; the second value applies while a request waits for room.
const SYNC: Nanos = Nanos(4_000_000_000);
const SYNC_WAITED: Nanos = Nanos(1_000_000_000);

/// What a store is late in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lateness {
    Writes,
    Syncs,
}

/// Writes of a cleaning to one store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// When the cleaning began to write.
    pub since: Nanos,
    /// When the last of them ended.
    pub ended: Nanos,
    pub writes: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// Volumes whose stores are late, by what they are late in.
    writes: VolumeSet,
    syncs: VolumeSet,
    /// Nanoseconds for a round of writes, smoothed over the last destages, if there were any.
    pace: PerVolume<Option<u64>>,
}

impl Late {
    /// A volume is attached.
    pub fn attach(&mut self) {
        self.pace.push(None);
    }

    /// Volumes whose stores are late.
    #[inline]
    pub fn volumes(&self) -> VolumeSet {
        self.writes | self.syncs
    }

    /// The time from which a volume's store is late if it has not ended the `writes` that began at
    /// `since`; earlier if a request `waits` for room.
    pub fn due(&self, volume: Volume, since: Nanos, writes: u32, waits: bool) -> Nanos {
        let (least, alone) = match waits {
            true => (LEAST_WAITED, ALONE_WAITED),
            false => (LEAST, ALONE),
        };
        let compared = |slowest: u64| slowest.saturating_mul(TIMES).max(least.0);
        let time = self.slowest_but(volume).map_or(alone.0, compared);
        since.saturating_add(Nanos(time.saturating_mul(rounds(writes))))
    }

    /// The time from which a store is late if it has not ended the sync that began at `since`; earlier if a request
    /// `waits` for room.
    pub fn sync_due(since: Nanos, waits: bool) -> Nanos {
        since.saturating_add(if waits { SYNC_WAITED } else { SYNC })
    }

    /// The time of the slowest other store that is not late.
    fn slowest_but(&self, volume: Volume) -> Option<u64> {
        let others = self.pace.iter().filter(|&(other, _)| other != volume);
        let others = others.filter(|&(other, _)| !self.volumes().contains(other));
        others.filter_map(|(_, pace)| *pace).max()
    }

    /// A volume's store has ended writes. True if it was late and is not any more.
    pub fn note(&mut self, volume: Volume, Round { since, ended, writes }: Round) -> bool {
        let last = ended.saturating_sub(since).0 / rounds(writes);
        // The limit is half of that for becoming late, and only other stores count. Otherwise a slow store would
        // become late and recover again and again.
        let limit = self.slowest_but(volume).map(|slowest| slowest.saturating_mul(TIMES / 2));
        let recovers = self.writes.contains(volume) && limit.is_none_or(|limit| last < limit);
        if recovers {
            self.writes.remove(volume);
        }
        let pace = &mut self.pace[volume];
        *pace = Some(pace.map_or(last, |pace| pace - pace / 4 + last / 4));
        recovers && !self.volumes().contains(volume)
    }

    /// A volume's store has ended a sync that began at `since`. True if it was late and is not any more. The limit is
    /// half of that for becoming late.
    pub fn note_synced(&mut self, volume: Volume, since: Nanos, now: Nanos) -> bool {
        let recovers =
            self.syncs.contains(volume) && now.saturating_sub(since).0 < SYNC_WAITED.0 / 2;
        if recovers {
            self.syncs.remove(volume);
        }
        recovers && !self.volumes().contains(volume)
    }

    /// These volumes' stores are late; returns whether any was not late before.
    pub fn add(&mut self, volumes: VolumeSet, what: Lateness) -> bool {
        let news = !(volumes & !self.volumes()).is_empty();
        match what {
            Lateness::Writes => self.writes |= volumes,
            Lateness::Syncs => self.syncs |= volumes,
        }
        news
    }
}

/// The rounds in a number of writes, the last one started counted as whole.
fn rounds(writes: u32) -> u64 {
    u64::from(1 + writes / ROUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A store has ended so many writes in so many milliseconds.
    fn end(late: &mut Late, volume: u32, writes: u32, ms: u64) -> bool {
        late.note(Volume(volume), Round { since: Nanos(0), ended: Nanos(ms * MS), writes })
    }

    fn three() -> Late {
        let mut late = Late::default();
        (0..3).for_each(|_| late.attach());
        late
    }

    #[test]
    fn the_limit_is_absolute_before_others_are_known() {
        let mut late = three();
        assert_eq!(late.due(Volume(0), Nanos(7), 1, false), Nanos(7 + 1000 * MS));
        assert_eq!(late.due(Volume(0), Nanos(7), 16, true), Nanos(7 + 1000 * MS), "twice 500 ms");
        end(&mut late, 0, 100, 700);
        assert_eq!(
            late.due(Volume(0), Nanos(0), 1, false),
            Nanos(1000 * MS),
            "its own pace is none of another"
        );
        assert_eq!(late.due(Volume(1), Nanos(0), 1, false), Nanos(1600 * MS), "16 times 100 ms");
        assert_eq!(late.due(Volume(1), Nanos(0), 16, true), Nanos(3200 * MS), "for each 16 writes");
    }

    #[test]
    fn a_store_is_late_compared_with_the_slowest_other_one_that_is_not_late() {
        let mut late = three();
        end(&mut late, 1, 1, 1);
        end(&mut late, 2, 1, 50);
        assert_eq!(late.due(Volume(0), Nanos(7), 2, false), Nanos(7 + 800 * MS));
        let slow = VolumeSet::only(Volume(2));
        assert!(late.add(slow, Lateness::Writes) && !late.add(slow, Lateness::Syncs));
        assert_eq!(late.due(Volume(0), Nanos(7), 2, false), Nanos(7 + 250 * MS), "at least 250 ms");
        assert_eq!(late.due(Volume(0), Nanos(7), 2, true), Nanos(7 + 50 * MS), "or 50");
    }

    #[test]
    fn a_late_store_recovers_when_it_takes_less_than_eight_times_as_long_as_others() {
        let mut late = three();
        end(&mut late, 1, 1, 100);
        late.add(VolumeSet::only(Volume(0)), Lateness::Writes);
        assert!(!end(&mut late, 0, 1, 800));
        assert!(end(&mut late, 0, 1, 799));
        assert_eq!(late.volumes(), VolumeSet::EMPTY);
        assert!(!end(&mut late, 0, 1, 0), "it was not late");
    }

    #[test]
    fn a_store_that_hangs_in_syncs_is_late_until_a_sync_ends_in_time_whatever_it_writes() {
        let mut late = three();
        assert_eq!(Late::sync_due(Nanos(7), false), Nanos(7 + 4000 * MS));
        assert_eq!(Late::sync_due(Nanos(7), true), Nanos(7 + 1000 * MS));
        let one = VolumeSet::only(Volume(0));
        assert!(late.add(one, Lateness::Syncs));
        assert!(!end(&mut late, 0, 1, 1) && late.volumes() == one);
        let mut synced = |ms: u64| late.note_synced(Volume(0), Nanos(7), Nanos(7 + ms * MS));
        assert!(!synced(500) && synced(499) && !synced(1), "half of the limit");
        late.add(one, Lateness::Syncs);
        late.add(one, Lateness::Writes);
        assert!(!late.note_synced(Volume(0), Nanos(7), Nanos(7)) && late.volumes() == one);
        assert!(end(&mut late, 0, 1, 1), "in the writes, too");
    }
}
