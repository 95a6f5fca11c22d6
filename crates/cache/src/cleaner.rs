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

mod apart;
mod cleaning;
mod next;
mod oldest;
mod phase;
mod reclaim;
mod work;

pub(crate) use cleaning::Surroundings;
pub(crate) use oldest::{destage_oldest, oldest_for_late};
pub(crate) use work::Work;

use crate::volume_set::VolumeSet;
use crate::world::sooner;
use apart::LateWrites;
use forebay_block::Nanos;
use forebay_effect::{IoError, Outcome};
use forebay_flash::MoveRoom;
use next::{Conditions, next};
use phase::{Cleaning, Phase, Writing};
use std::collections::VecDeque;

/// Consecutive failures after which a cleaning, a region, a record or a store counts as failing.
pub(crate) const FAILURES_MAX: u32 = 3;

/// First pause after a failure; it doubles up to the last.
const PAUSE_FIRST: Nanos = Nanos(100_000_000);
const PAUSE_LAST: Nanos = Nanos(5_000_000_000);

#[derive(Debug)]
pub(crate) struct Cleaner {
    queue: VecDeque<Work>,
    /// By region: whether the queue has it for a destage.
    wanted: Box<[bool]>,
    /// By region: whether the current destage could not read all of it.
    unread: Box<[bool]>,
    /// By region: how often it has failed in the current destage.
    tries: Box<[u32]>,
    /// Regions are reclaimed by moving what they hold.
    moves: bool,
    /// The last cleaning reclaimed a region: next is the turn of evicted blocks.
    reclaimed_last: bool,
    active: Option<Cleaning>,
    /// Writes to late stores, which end apart from cleanings.
    apart: LateWrites,
    /// Consecutive failures, and the error of the last.
    failures: u32,
    error: IoError,
    /// Consecutive attempts to reclaim a region with unreadable records.
    unreadable: u32,
    retry_at: Option<Nanos>,
    /// The region to reclaim cannot be destaged, and no request needs it so far.
    parked: bool,
    /// The last attempt to reclaim failed: next is the turn of other work.
    yields: bool,
}

impl Cleaner {
    /// A cleaner of `regions` regions with nothing to do. `moves`: regions are reclaimed by moving
    /// what they hold.
    pub fn new(regions: u32, moves: bool) -> Cleaner {
        Cleaner {
            queue: VecDeque::with_capacity(2 * regions as usize + 1),
            wanted: vec![false; regions as usize].into_boxed_slice(),
            unread: vec![false; regions as usize].into_boxed_slice(),
            tries: vec![0; regions as usize].into_boxed_slice(),
            moves,
            reclaimed_last: false,
            active: None,
            apart: LateWrites::new(),
            failures: 0,
            error: IoError::Device,
            unreadable: 0,
            retry_at: None,
            parked: false,
            yields: false,
        }
    }

    /// Queues work.
    pub fn push(&mut self, work: Work) {
        match work {
            // The log waits: before what is merely wanted clean.
            Work::Reclaim(_) => {
                let at = self.queue.iter().position(|other| !other.reclaims());
                self.queue.insert(at.unwrap_or(self.queue.len()), work);
            }
            Work::Destage(region) => {
                self.wanted[region as usize] = true;
                self.queue.push_back(work);
            }
            Work::Evict | Work::Late(_) => self.queue.push_back(work),
        }
    }

    /// The work that is queued or in progress.
    fn all_work(&self) -> impl Iterator<Item = Work> + '_ {
        self.active.iter().map(|active| active.work).chain(self.queue.iter().copied())
    }

    #[inline]
    pub fn is_idle(&self) -> bool {
        self.active.is_none() && self.queue.is_empty() && self.apart.is_empty()
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

    /// Whether the region is to be destaged.
    pub fn is_wanted_clean(&self, region: u32) -> bool {
        self.wanted[region as usize]
    }

    /// The destage could not read all of the region's records.
    fn note_unread(&mut self, region: u32) {
        self.unread[region as usize] = true;
    }

    /// Records have moved from one region to another; unreadable ones may be among them.
    pub fn note_moved(&mut self, from: u32, to: u32) {
        self.unread[to as usize] |= self.unread[from as usize];
    }

    /// Whether a destage has not yet written all records that the region held when the destage
    /// began: the region is queued, being cleaned, or could not be read.
    pub fn is_owed(&self, region: u32) -> bool {
        let active = |active: &Cleaning| active.work == Work::Destage(region);
        self.is_wanted_clean(region)
            || self.unread[region as usize]
            || self.active.as_ref().is_some_and(active)
    }

    /// Drops the queued destages.
    pub fn forget_destages(&mut self) {
        self.queue.retain(|work| !work.destages());
        self.wanted.fill(false);
    }

    /// Number of regions to clean for a destage, not to make room.
    pub fn destages(&self) -> usize {
        self.queue.iter().filter(|work| work.destages()).count()
    }

    /// Whether regions are to be cleaned for a destage, not to make room.
    pub fn is_destaging(&self) -> bool {
        self.queue.iter().any(|work| work.destages())
    }

    /// Drops all work: the log takes no more writes.
    pub fn forget(&mut self) {
        self.queue.clear();
        self.wanted.fill(false);
    }

    /// The current region is not reclaimed until a request waits for room.
    fn park(&mut self) {
        let parked = self.active.take().expect("a region is being cleaned");
        self.queue.push_front(parked.work);
        self.parked = true;
    }

    /// The region to reclaim next, if its mappings are moved: a region to be cleaned must not move
    /// before it is clean.
    fn moves_next(&self) -> Option<u32> {
        match self.queue.front() {
            Some(&Work::Reclaim(region)) if self.moves && !self.is_wanted_clean(region) => {
                Some(region)
            }
            _ => None,
        }
    }

    /// Begins the next work, if a cleaning may begin now. `wanted`: a request waits for room.
    /// `room`: for the mappings that [`Cleaner::moves_next`] would move; stores and failures do not
    /// delay that.
    fn begin(&mut self, sync_failures: u64, wanted: bool, room: MoveRoom) -> Option<Work> {
        let (paused, moves) = (self.retry_at.is_some(), room == MoveRoom::Now);
        if self.active.is_some() || paused && !moves {
            return None;
        }
        self.parked &= !wanted && !moves;
        let conditions = Conditions {
            paused,
            parked: self.parked,
            yields: core::mem::take(&mut self.yields),
            reclaimed_last: self.reclaimed_last,
            moves: self.moves,
            room,
        };
        let at = next(&self.queue, conditions)?;
        let work = self.queue.remove(at)?;
        if let Work::Destage(region) = work {
            self.wanted[region as usize] = false;
        }
        self.reclaimed_last = work.reclaims();
        self.active = Some(Cleaning::new(work, sync_failures, paused));
        Some(work)
    }

    /// The current cleaning ended: returns its work. A failed one is retried after a pause, or when all
    /// others have had their turn. It is not retried if it was `tentative`: nothing has asked for
    /// it.
    fn end(&mut self, result: Outcome, now: Nanos, tentative: bool) -> Work {
        let Cleaning { work, paused, .. } = self.active.take().expect("a cleaning is in progress");
        match result {
            Ok(()) => {
                if !paused {
                    self.failures = 0;
                }
                if work.reclaims() {
                    self.unreadable = 0;
                }
                return work;
            }
            // What can be read elsewhere comes before what cannot be read here.
            Err(IoError::Corrupt) => {
                self.unreadable += 1;
                self.push_again(work);
                if self.queue.len() > 1 && self.is_destaging() {
                    return work;
                }
            }
            // Late stores are tried again from time to time anyway.
            Err(error) if work.is_late() || tentative && work.destages() => {
                self.error = error;
                return work;
            }
            Err(error) => {
                self.error = error;
                self.failures += 1;
                self.queue_failed(work);
            }
        }

        let attempts = self.failures.max(self.unreadable).max(1) - 1;
        let pause = PAUSE_FIRST.0 << attempts.min(16);
        self.retry_at = Some(now.saturating_add(Nanos(pause.min(PAUSE_LAST.0))));
        work
    }

    /// Queues the work of a failed cleaning again, unless it has failed too often in this destage.
    fn queue_failed(&mut self, work: Work) {
        match work {
            Work::Reclaim(_) => {
                self.queue.push_front(work);
                self.yields = true;
            }
            Work::Destage(region) => {
                self.tries[region as usize] += 1;
                if !self.is_given_up(region) {
                    self.push_again(work);
                }
            }
            Work::Evict | Work::Late(_) => self.push_again(work),
        }
    }

    fn push_again(&mut self, work: Work) {
        match work {
            // The region was queued again while it was being cleaned.
            Work::Destage(region) if self.is_wanted_clean(region) => {}
            Work::Destage(_) | Work::Evict | Work::Late(_) => self.push(work),
            Work::Reclaim(_) => self.queue.push_back(work),
        }
    }

    /// Whether a region is being cleaned.
    pub fn is_active(&self) -> bool {
        self.active.is_some() || !self.apart.is_empty()
    }

    /// Whether this region is being cleaned.
    pub fn is_cleaning(&self, region: u32) -> bool {
        self.active.as_ref().is_some_and(|active| active.work.region() == Some(region))
    }

    /// The error of the last failed attempt.
    pub fn error(&self) -> IoError {
        self.error
    }

    /// Whether a stop gives up: [`FAILURES_MAX`] attempts in a row have failed.
    pub fn fails(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Failed cleanings are retried without a pause.
    pub fn retry_now(&mut self) {
        self.retry_at = None;
    }

    /// The time of the next retry, or when a store becomes late.
    pub fn timeout(&self) -> Option<Nanos> {
        sooner(self.retry_at, self.apart.timeout())
    }

    /// The time may have come.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.retry_at = self.retry_at.filter(|&at| at > now);
        self.apart.handle_timeout(now);
    }

    /// Whether the region is not retried in this destage.
    fn is_given_up(&self, region: u32) -> bool {
        self.tries[region as usize] >= FAILURES_MAX
    }

    /// A destage begins: earlier failures do not count.
    pub fn forgive(&mut self) {
        (self.failures, self.unreadable) = (0, 0);
        self.unread.fill(false);
        self.tries.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_region_takes_in_does_not_make_up_for_what_could_not_be_read_of_it() {
        let mut cleaner = Cleaner::new(4, true);
        cleaner.note_unread(2);
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
            (cleaner.failures, cleaner.retry_at) = (1, Some(Nanos(9)));
            cleaner
        };
        assert_eq!(paused().moves_next(), Some(2));
        let reclaim = Some(Work::Reclaim(2));
        for (room, begins) in
            [(MoveRoom::Now, reclaim), (MoveRoom::Later, None), (MoveRoom::Never, None)]
        {
            assert_eq!(paused().begin(0, true, room), begins, "{room:?}");
        }
        let mut cleaner = paused();
        cleaner.begin(0, true, MoveRoom::Now);
        cleaner.end(Ok(()), Nanos(1), false);
        assert!(cleaner.failures == 1 && cleaner.retry_at.is_some(), "moves tell of no store");
    }

    #[test]
    fn moves_wait_for_room_that_comes_while_other_cleanings_go_on() {
        let mut cleaner = Cleaner::new(4, true);
        cleaner.push(Work::Reclaim(2));
        assert_eq!(cleaner.begin(0, true, MoveRoom::Later), None);
        cleaner.push(Work::Evict);
        assert_eq!(cleaner.begin(0, true, MoveRoom::Later), Some(Work::Evict));
        assert_eq!(cleaner.moves_next(), Some(2));
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
