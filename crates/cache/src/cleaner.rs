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

mod account;
mod apart;
mod cleaning;
mod next;
mod oldest;
mod phase;
mod queue;
mod reclaim;
mod retries;
mod work;

pub(crate) use cleaning::Surroundings;
pub(crate) use oldest::{destage_oldest, oldest_for_late};
pub(crate) use work::Work;

use crate::volume_set::VolumeSet;
use crate::world::sooner;
use account::Account;
use apart::LateWrites;
use forebay_block::Nanos;
use forebay_effect::{IoError, Outcome};
use forebay_flash::MoveRoom;
use phase::{Cleaning, Phase, Writing};
use queue::Queue;
use retries::Retries;

/// Consecutive failures after which a cleaning, a region, a record or a store counts as failing.
pub(crate) const FAILURES_MAX: u32 = 3;

#[derive(Debug)]
pub(crate) struct Cleaner {
    /// The work that waits.
    queue: Queue,
    active: Option<Cleaning>,
    /// Writes to late stores, which end apart from cleanings.
    apart: LateWrites,
    retries: Retries,
    /// What the current destage of everything has not done.
    account: Account,
}

impl Cleaner {
    /// A cleaner of `regions` regions with nothing to do. `moves`: regions are reclaimed by moving
    /// what they hold.
    pub fn new(regions: u32, moves: bool) -> Cleaner {
        Cleaner {
            queue: Queue::new(regions, moves),
            active: None,
            apart: LateWrites::new(),
            retries: Retries::new(),
            account: Account::new(regions),
        }
    }

    // ---- work ----

    /// Queues work.
    pub fn push(&mut self, work: Work) {
        self.queue.push(work);
    }

    /// Begins the next work, if a cleaning may begin now. `needed`: a request waits for room.
    /// `room`: for the mappings that [`Queue::moves_next`] would move; stores and failures do not
    /// delay that.
    fn begin(&mut self, sync_failures: u64, needed: bool, room: MoveRoom) -> Option<Work> {
        let paused = self.retries.is_paused();
        if self.active.is_some() || paused && room != MoveRoom::Now {
            return None;
        }
        let work = self.queue.take_next(paused, needed, room)?;
        self.active = Some(Cleaning::new(work, sync_failures, paused));
        Some(work)
    }

    /// The current cleaning ended: returns its work. A failed one is retried after a pause, or when all
    /// others have had their turn. It is not retried if it was `tentative`: nothing has asked for
    /// it.
    fn end(&mut self, result: Outcome, now: Nanos, tentative: bool) -> (Work, bool) {
        let Cleaning { work, paused, .. } = self.active.take().expect("a cleaning is in progress");
        let mut given_up = false;
        match result {
            Ok(()) => {
                if !paused {
                    self.retries.note_written();
                }
                if work.reclaims() {
                    self.retries.note_reclaimed();
                }
                return (work, false);
            }
            // What can be read elsewhere comes before what cannot be read here.
            Err(IoError::Corrupt) => {
                self.retries.note_unreadable();
                self.queue.push_again(work);
                if self.queue.len() > 1 && self.is_destaging() {
                    return (work, false);
                }
            }
            // Late stores are tried again from time to time anyway.
            Err(error) if work.is_late() || tentative && work.destages() => {
                self.retries.note_error(error);
                return (work, false);
            }
            Err(error) => {
                self.retries.note_failed(error);
                match work {
                    Work::Reclaim(_) => self.queue.put_back_yielding(work),
                    Work::Destage(region) => {
                        given_up = self.account.note_failed(region);
                        if !given_up {
                            self.queue.push_again(work);
                        }
                    }
                    Work::Evict | Work::Late(_) => self.queue.push_again(work),
                }
            }
        }
        self.retries.pause(now);
        (work, given_up)
    }

    /// The current region is not reclaimed until a request waits for room.
    fn park(&mut self) {
        let parked = self.active.take().expect("a region is being cleaned");
        self.queue.park(parked.work);
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
    pub fn note_moved(&mut self, from: u32, to: u32) {
        self.account.note_moved(from, to);
    }

    /// Whether a destage has not yet written all records that the region held when the destage
    /// began: the region is queued, being cleaned, or could not be read.
    pub fn is_owed(&self, region: u32) -> bool {
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
        self.queue.is_empty() && !self.is_active()
    }

    /// Whether anything is being cleaned.
    pub fn is_active(&self) -> bool {
        self.active.is_some() || !self.apart.is_empty()
    }

    /// Whether this region is being cleaned.
    pub fn is_cleaning(&self, region: u32) -> bool {
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
    pub fn is_wanted_clean(&self, region: u32) -> bool {
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

    #[test]
    fn what_a_region_takes_in_does_not_make_up_for_what_could_not_be_read_of_it() {
        let mut cleaner = Cleaner::new(4, true);
        cleaner.account.note_unread(2);
        assert!(cleaner.is_owed(2) && !cleaner.is_owed(1));
        cleaner.note_moved(1, 2);
        assert!(cleaner.is_owed(2), "a destage is to follow what supersedes it");
        cleaner.note_moved(2, 3);
        assert!(cleaner.is_owed(3), "it may have gone there");
        cleaner.forgive();
        assert!((0..4).all(|region| !cleaner.is_owed(region)));
    }

    #[test]
    fn a_pause_after_a_failure_does_not_put_off_moves() {
        let paused = || {
            let mut cleaner = Cleaner::new(4, true);
            cleaner.push(Work::Reclaim(2));
            cleaner.retries.note_failed(IoError::Device);
            cleaner.retries.pause(Nanos(0));
            cleaner
        };
        assert_eq!(paused().queue.moves_next(), Some(2));
        let reclaim = Some(Work::Reclaim(2));
        for (room, begins) in
            [(MoveRoom::Now, reclaim), (MoveRoom::Later, None), (MoveRoom::Never, None)]
        {
            assert_eq!(paused().begin(0, true, room), begins, "{room:?}");
        }
        let mut cleaner = paused();
        for _ in 1..FAILURES_MAX {
            cleaner.retries.note_failed(IoError::Device);
        }
        cleaner.begin(0, true, MoveRoom::Now);
        cleaner.end(Ok(()), Nanos(1), false);
        assert!(cleaner.fails() && cleaner.retries.is_paused(), "moves tell of no store");
    }

    #[test]
    fn moves_wait_for_room_that_comes_while_other_cleanings_go_on() {
        let mut cleaner = Cleaner::new(4, true);
        cleaner.push(Work::Reclaim(2));
        assert_eq!(cleaner.begin(0, true, MoveRoom::Later), None);
        cleaner.push(Work::Evict);
        assert_eq!(cleaner.begin(0, true, MoveRoom::Later), Some(Work::Evict));
        assert_eq!(cleaner.queue.moves_next(), Some(2));
    }

    #[test]
    fn a_round_for_evicted_blocks_cleans_no_region() {
        let mut cleaner = Cleaner::new(4, true);
        cleaner.push(Work::Evict);
        assert_eq!(cleaner.begin(0, false, MoveRoom::Never), Some(Work::Evict));
        assert!((0..4).all(|region| !cleaner.is_cleaning(region)));
        assert!(cleaner.is_evicting() && cleaner.is_active());
    }
}
