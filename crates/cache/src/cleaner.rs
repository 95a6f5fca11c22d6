//! The cleaner: it decides which region is destaged next, and when its records count as clean.
//!
//! One region is cleaned at a time, by all shards together. Each shard destages its part, then the
//! volumes that were written to are synced, and only then are the records clean. Then the cleaning
//! is reported as ended to its requesters.
//!
//! In the slots layout a region is reclaimed by moving its mappings to another region, if there is
//! room. Blocks that are evicted from flash are cleaned in separate rounds, in the order of
//! replacement.
//!
//! A cleaning does not wait for the writes that it has begun to late stores: they end apart
//! (`apart.rs`).
//!
//! # Endings
//!
//! What happens next depends on what the cleaning was for, and on how it has ended:
//!
//! | ending | to reclaim a region | to destage a region | for late stores | of evicted blocks |
//! | --- | --- | --- | --- | --- |
//! | `Done` | over | over | over | over |
//! | `Failed` | first, after a turn of other work; pause; `Progress` | last; pause | over | last; pause |
//! | `Failed`, the third time | likewise | over; pause; `Destages` | over | likewise |
//! | `StillFailing` | | over | | |
//! | `Dropped` | over | over | over | over |
//! | `Unreadable` | last; pause, unless regions wait for a destage; `Progress` | | | |
//! | `Crowded` | first, when the log has freed the regions released before | | | |
//! | `Postponed` | first, after all writes that end apart; `Progress` | | | |
//! | `Parked` | first, when a request waits for room or mappings can move | | | |
//!
//! - *first*, *last*: its new place in the queue. A region that was queued again meanwhile keeps
//!   its place. *over*: it is not queued.
//! - *pause*: no cleaning begins before a time that grows with the failures in a row; only mappings
//!   move. `Failed` (but not for late stores) counts as a failure in a row, and so does
//!   `Unreadable`, in a count of its own. `Done` resets the count of failures, unless the cleaning
//!   began during the pause. A reclaimed region resets the count of unreadable attempts.
//! - *the third time*: of this region in one destage of everything.
//! - `Progress`, `Destages`: who learns of it. Nobody does in two cases: when the log has failed,
//!   because all learn of this anyway; and when a record turns out to be unreadable while it is
//!   carried on, because `ReclaimProgress` has counted the region as reclaimed when that began.
//!
//! Late stores, and those that still fail, get new work from `Stores` from time to time.

mod account;
mod apart;
mod cleaning;
mod ending;
mod next;
mod oldest;
mod phase;
mod progress;
mod queue;
mod reclaim;
mod retries;
mod work;

pub(crate) use cleaning::Surroundings;
pub(crate) use oldest::{destage_oldest, oldest_for_late};
pub(crate) use work::Work;

use crate::shard::RegionMove;
use crate::volume_set::VolumeSet;
use crate::world::{World, sooner};
use account::Account;
use apart::LateWrites;
use ending::{Ending, Told};
use forebay_block::Nanos;
use forebay_effect::IoError;
use forebay_flash::{MoveRoom, RegionIndex};
use phase::{Cleaning, CleaningState, DestagePhase, Destaging, ReclaimPhase};
use progress::ReclaimProgress;
use queue::WorkQueue;
use retries::Retries;

/// Consecutive failures after which a cleaning, a region, a record or a store counts as failing.
pub(crate) const FAILURES_MAX: u32 = 3;

#[derive(Debug)]
pub(crate) struct Cleaner {
    /// The work that waits.
    queue: WorkQueue,
    active: Option<Cleaning>,
    /// Writes to late stores, which end apart from cleanings.
    apart: LateWrites,
    retries: Retries,
    /// What the current destage of everything has not done.
    account: Account,
    /// Whether reclaiming makes room.
    progress: ReclaimProgress,
}

impl Cleaner {
    /// A cleaner of `regions` regions with nothing to do. `moves`: regions are reclaimed by moving
    /// what they hold.
    pub fn new(regions: u32, moves: bool) -> Cleaner {
        Cleaner {
            queue: WorkQueue::new(regions, moves),
            active: None,
            apart: LateWrites::new(),
            retries: Retries::new(),
            account: Account::new(regions),
            progress: ReclaimProgress::default(),
        }
    }

    // ---- work ----

    /// Queues work.
    pub fn push(&mut self, work: Work) {
        self.queue.push(work);
    }

    /// Takes the work to begin, if a cleaning may begin now; the caller begins it in this call. `needed`: a request
    /// waits for room. `room`: for the mappings that [`WorkQueue::moves_next`] would move; stores and failures do
    /// not delay that. Returns also whether a failed cleaning pauses.
    fn take_next(&mut self, needed: bool, room: MoveRoom) -> Option<(Work, bool)> {
        let paused = self.retries.is_paused();
        if self.active.is_some() || paused && room != MoveRoom::Now {
            return None;
        }
        Some((self.queue.take_next(paused, needed, room)?, paused))
    }

    /// The cleaning in progress.
    fn cleaning(&mut self) -> &mut Cleaning {
        self.active.as_mut().expect("a cleaning is in progress")
    }

    /// The current cleaning has ended; the table of the module says what happens next. Returns who
    /// has to learn of it.
    ///
    /// # Panics
    /// If it may not end now, or if its work cannot end so.
    fn end(&mut self, ending: Ending, now: Nanos) -> Told {
        let active = self.active.take().expect("a cleaning is in progress");
        let Cleaning { work, paused, .. } = active;
        assert!(active.may_end() && ending.fits(work), "{active:?} ends: {ending:?}");
        match ending {
            Ending::Done => {
                // During a pause, mappings moved: that tells of no store.
                if !paused {
                    self.retries.note_written();
                }
                if work.reclaims() {
                    self.retries.note_reclaimed();
                }
                Told::Nobody
            }
            Ending::Failed(error) => self.end_failed(work, error, now),
            Ending::StillFailing(error) => {
                self.retries.note_error(error);
                Told::Nobody
            }
            Ending::Dropped => Told::Nobody,
            Ending::Unreadable => {
                self.retries.note_unreadable();
                self.queue.push_again(work);
                // What can be read elsewhere comes before what cannot be read here.
                if !self.is_destaging() {
                    self.retries.pause(now);
                }
                Told::Progress
            }
            Ending::Crowded => {
                self.queue.put_back_crowded(work);
                Told::Nobody
            }
            Ending::Postponed => {
                self.queue.put_back(work);
                self.apart.wait_for_end();
                Told::Progress
            }
            Ending::Parked => {
                self.queue.park(work);
                Told::Nobody
            }
        }
    }

    /// A cleaning has failed.
    fn end_failed(&mut self, work: Work, error: IoError, now: Nanos) -> Told {
        let told = match work {
            // Late stores are tried again from time to time anyway.
            Work::Late(_) => {
                self.retries.note_error(error);
                return Told::Nobody;
            }
            Work::Reclaim(_) => {
                self.queue.put_back_yielding(work);
                Told::Progress
            }
            Work::Destage(region) => match self.account.note_failed(region) {
                true => Told::Destage(error),
                false => {
                    self.queue.push_again(work);
                    Told::Nobody
                }
            },
            Work::Evict => {
                self.queue.push_again(work);
                Told::Nobody
            }
        };
        self.retries.note_failed(error);
        self.retries.pause(now);
        told
    }

    /// Drops the queued destages.
    pub fn forget_destages(&mut self) {
        self.queue.forget_destages();
    }

    /// Drops all work that waits: the log takes no more writes.
    pub fn forget(&mut self) {
        self.queue.forget();
    }

    // ---- time ----

    /// Failed cleanings are retried without a pause.
    pub fn retry_now(&mut self) {
        self.retries.retry_now();
    }

    /// The time of the next retry, or when a store becomes late.
    pub fn timeout(&self) -> Option<Nanos> {
        sooner(self.retries.timeout(), self.apart.timeout())
    }

    /// The time may have come.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.retries.handle_timeout(now);
        self.apart.handle_timeout(now);
    }

    // ---- a destage of everything ----

    /// A destage begins: earlier failures do not count.
    pub fn forgive(&mut self) {
        self.retries.forgive();
        self.account.clear();
    }

    /// Records have moved from one region to another; unreadable ones may be among them.
    pub fn note_moved(&mut self, regions: RegionMove) {
        self.account.note_moved(regions);
    }

    /// Whether a destage has not yet written all records that the region held when the destage
    /// began: the region is queued, being cleaned, or could not be read.
    pub fn is_owed(&self, region: RegionIndex) -> bool {
        let active = |active: &Cleaning| active.work == Work::Destage(region);
        self.is_wanted_clean(region)
            || self.account.has_unread(region)
            || self.active.as_ref().is_some_and(active)
    }

    /// The last error.
    pub fn error(&self) -> IoError {
        self.retries.error()
    }

    /// Whether a stop gives up: [`FAILURES_MAX`] attempts in a row have failed.
    pub fn fails(&self) -> bool {
        self.retries.fails()
    }

    // ---- what it does ----

    /// The work that is queued or in progress.
    fn all_work(&self) -> impl Iterator<Item = Work> + '_ {
        self.active.iter().map(|active| active.work).chain(self.queue.iter())
    }

    #[inline]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.is_active(VolumeSet::EMPTY)
    }

    /// Whether regions are reclaimed although stores are known to fail.
    pub fn makes_room(&self, world: &World) -> bool {
        self.progress.makes_room(world)
    }

    /// Whether anything is being cleaned. What the stores of the volumes `but` owe to earlier cleanings does not count.
    pub fn is_active(&self, but: VolumeSet) -> bool {
        self.active.is_some() || !(self.apart.volumes() & !but).is_empty()
    }

    /// Whether this region is being cleaned.
    pub fn is_cleaning(&self, region: RegionIndex) -> bool {
        self.active.as_ref().is_some_and(|active| active.work.region() == Some(region))
    }

    /// The volumes that are destaged apart from cleanings.
    pub fn apart(&self) -> VolumeSet {
        self.apart.volumes()
    }

    /// Whether late stores are being destaged to, or will be.
    pub fn has_late(&self) -> bool {
        self.all_work().any(Work::is_late)
    }

    /// Whether a round for evicted blocks is in progress or waits.
    fn is_evicting(&self) -> bool {
        self.all_work().any(|work| work == Work::Evict)
    }

    /// Whether the region waits for a destage.
    pub fn is_wanted_clean(&self, region: RegionIndex) -> bool {
        self.queue.is_wanted_clean(region)
    }

    /// Whether regions wait to be cleaned for a destage, not to make room.
    pub fn is_destaging(&self) -> bool {
        self.queue.is_destaging()
    }

    /// Number of regions that wait to be cleaned for a destage.
    pub fn destages(&self) -> usize {
        self.queue.iter().filter(|work| work.destages()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cleaner::work::R;

    /// Begins the next work, if any may begin, with the first phase of a destage.
    fn begin(cleaner: &mut Cleaner, needed: bool, room: MoveRoom) -> Option<Work> {
        let (work, paused) = cleaner.take_next(needed, room)?;
        let destaging = Destaging::new(VolumeSet::EMPTY, false, 0);
        cleaner.active = Some(Cleaning::destage(work, paused, destaging));
        Some(work)
    }

    #[test]
    fn what_a_region_takes_in_does_not_make_up_for_what_could_not_be_read_of_it() {
        let mut cleaner = Cleaner::new(4, true);
        cleaner.account.note_unread(R[2]);
        assert!(cleaner.is_owed(R[2]) && !cleaner.is_owed(R[1]));
        cleaner.note_moved(RegionMove { from: R[1], to: R[2] });
        assert!(cleaner.is_owed(R[2]), "a destage is to follow what supersedes it");
        cleaner.note_moved(RegionMove { from: R[2], to: R[3] });
        assert!(cleaner.is_owed(R[3]), "it may have gone there");
        cleaner.forgive();
        assert!(R.iter().all(|&region| !cleaner.is_owed(region)));
    }

    #[test]
    fn a_pause_after_a_failure_does_not_put_off_moves() {
        let paused = || {
            let mut cleaner = Cleaner::new(4, true);
            cleaner.push(Work::Reclaim(R[2]));
            cleaner.retries.note_failed(IoError::Device);
            cleaner.retries.pause(Nanos(0));
            cleaner
        };
        assert_eq!(paused().queue.moves_next(), Some(R[2]));
        let reclaim = Some(Work::Reclaim(R[2]));
        for (room, begins) in
            [(MoveRoom::Now, reclaim), (MoveRoom::Later, None), (MoveRoom::Never, None)]
        {
            assert_eq!(begin(&mut paused(), true, room), begins, "{room:?}");
        }
        let mut cleaner = paused();
        for _ in 1..FAILURES_MAX {
            cleaner.retries.note_failed(IoError::Device);
        }
        begin(&mut cleaner, true, MoveRoom::Now);
        cleaner.end_untold(Ending::Done, Nanos(1));
        assert!(cleaner.fails() && cleaner.retries.is_paused(), "moves tell of no store");
    }

    /// A cleaner that cleans `work`; others wait.
    fn cleaning(work: Work, others: &[Work]) -> Cleaner {
        let mut cleaner = Cleaner::new(4, false);
        cleaner.push(work);
        assert_eq!(begin(&mut cleaner, true, MoveRoom::Never), Some(work));
        others.iter().for_each(|&other| cleaner.push(other));
        cleaner
    }

    #[test]
    fn each_kind_of_work_and_each_ending_has_the_consequences_of_the_table() {
        use Work::{Destage, Evict, Late, Reclaim};
        for error in [IoError::Device, IoError::Corrupt] {
            let failed = Ending::Failed(error);
            let (again, evict) = (
                [Reclaim(R[2]), Destage(R[3]), Destage(R[1])],
                [Reclaim(R[2]), Destage(R[3]), Evict],
            );
            let first = [Reclaim(R[1]), Reclaim(R[2]), Destage(R[3])];
            let last = [Reclaim(R[2]), Destage(R[3]), Reclaim(R[1])];
            let over = [Reclaim(R[2]), Destage(R[3])];
            for (ending, work, queue, next, paused, told) in [
                (failed, Reclaim(R[1]), &first[..], Destage(R[3]), true, Told::Progress),
                (failed, Destage(R[1]), &again, Reclaim(R[2]), true, Told::Nobody),
                (failed, Late(R[1]), &over, Reclaim(R[2]), false, Told::Nobody),
                (failed, Evict, &evict, Reclaim(R[2]), true, Told::Nobody),
                (
                    Ending::StillFailing(error),
                    Destage(R[1]),
                    &over,
                    Reclaim(R[2]),
                    false,
                    Told::Nobody,
                ),
                (Ending::Unreadable, Reclaim(R[1]), &last, Reclaim(R[2]), false, Told::Progress),
                (Ending::Postponed, Reclaim(R[1]), &first, Reclaim(R[1]), false, Told::Progress),
                (Ending::Crowded, Reclaim(R[1]), &first, Reclaim(R[1]), false, Told::Nobody),
                (Ending::Parked, Reclaim(R[1]), &first, Destage(R[3]), false, Told::Nobody),
            ] {
                let case = format!("{work:?}: {ending:?}");
                let mut cleaner = cleaning(work, &[Destage(R[3]), Reclaim(R[2])]);
                assert_eq!(cleaner.end(ending, Nanos(1)), told, "{case}");
                assert_eq!(cleaner.queue.iter().collect::<Vec<_>>(), queue, "{case}");
                assert_eq!(cleaner.timeout().is_some(), paused, "{case}");
                let shows = matches!(ending, Ending::Failed(_) | Ending::StillFailing(_));
                assert!(!shows || cleaner.error() == error, "{case}");
                cleaner.retry_now();
                assert_eq!(begin(&mut cleaner, false, MoveRoom::Never), Some(next), "{case}");
            }
            for ending in [Ending::Done, Ending::Dropped] {
                for work in [Reclaim(R[1]), Destage(R[1]), Late(R[1]), Evict] {
                    let mut cleaner = cleaning(work, &over);
                    assert_eq!(cleaner.end(ending, Nanos(1)), Told::Nobody);
                    assert_eq!(cleaner.queue.iter().collect::<Vec<_>>(), over, "{work:?}");
                    assert_eq!(cleaner.timeout(), None);
                }
            }
        }
    }

    #[test]
    fn a_destage_gives_up_a_region_that_has_failed_three_times_and_learns_of_it() {
        let mut cleaner = Cleaner::new(4, false);
        cleaner.push(Work::Destage(R[1]));
        for n in 1..=FAILURES_MAX {
            assert!(!cleaner.fails());
            assert_eq!(begin(&mut cleaner, false, MoveRoom::Never), Some(Work::Destage(R[1])));
            let told = cleaner.end(Ending::Failed(IoError::NoSpace), Nanos(1));
            let given_up = n == FAILURES_MAX;
            assert_eq!(told == Told::Destage(IoError::NoSpace), given_up);
            assert_eq!(cleaner.is_wanted_clean(R[1]), !given_up);
            cleaner.retry_now();
        }
        assert!(cleaner.fails());
        cleaner.forgive();
        cleaner.push(Work::Destage(R[1]));
        begin(&mut cleaner, false, MoveRoom::Never);
        assert_eq!(cleaner.end(Ending::Failed(IoError::NoSpace), Nanos(1)), Told::Nobody);
    }

    #[test]
    fn failures_and_unreadable_attempts_are_counted_apart_until_one_succeeds() {
        let attempt = |cleaner: &mut Cleaner, ending| {
            cleaner.retry_now();
            begin(cleaner, true, MoveRoom::Never).expect("the region waits");
            let _ = cleaner.end(ending, Nanos(1));
        };
        let mut cleaner = Cleaner::new(4, false);
        cleaner.push(Work::Reclaim(R[1]));
        for _ in 0..FAILURES_MAX {
            assert!(!cleaner.fails() && !cleaner.retries.reads_in_vain());
            // A store's error is no record that cannot be read, whatever it is.
            attempt(&mut cleaner, Ending::Failed(IoError::Corrupt));
            attempt(&mut cleaner, Ending::Unreadable);
            assert!(cleaner.retries.is_paused(), "there is no destage to continue with");
        }
        assert!(cleaner.fails() && cleaner.retries.reads_in_vain());
        attempt(&mut cleaner, Ending::Done);
        assert!(!cleaner.fails() && !cleaner.retries.reads_in_vain());
    }

    #[test]
    fn moves_wait_for_room_that_comes_while_other_cleanings_go_on() {
        let mut cleaner = Cleaner::new(4, true);
        cleaner.push(Work::Reclaim(R[2]));
        assert_eq!(begin(&mut cleaner, true, MoveRoom::Later), None);
        cleaner.push(Work::Evict);
        assert_eq!(begin(&mut cleaner, true, MoveRoom::Later), Some(Work::Evict));
        assert_eq!(cleaner.queue.moves_next(), Some(R[2]));
    }

    #[test]
    fn a_round_for_evicted_blocks_cleans_no_region() {
        let mut cleaner = Cleaner::new(4, true);
        cleaner.push(Work::Evict);
        assert_eq!(begin(&mut cleaner, false, MoveRoom::Never), Some(Work::Evict));
        assert!(R.iter().all(|&region| !cleaner.is_cleaning(region)));
        assert!(cleaner.is_evicting() && cleaner.is_active(VolumeSet::EMPTY));
    }
}
