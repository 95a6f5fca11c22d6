//! The cleaner's queue: the work that waits, and whose turn is next.
//!
//! Regions that the log wants to reuse come first, except after a failed attempt. A region is
//! queued for a destage at most once.

use std::collections::VecDeque;

use forebay_flash::{MoveRoom, RegionIndex};

use super::Work;
use super::next::{Conditions, next};

/// See the module.
#[derive(Debug)]
pub(super) struct WorkQueue {
    works: VecDeque<Work>,
    /// By region: whether it waits for a destage.
    wanted: Box<[bool]>,
    /// Regions are reclaimed by moving what they hold.
    moves: bool,
    /// The last cleaning reclaimed a region: next is the turn of evicted blocks.
    reclaimed_last: bool,
    /// The region to reclaim cannot be destaged, and no request needs it so far.
    parked: bool,
    /// The region to reclaim waits until the log has freed the regions released before.
    crowded: bool,
    /// The last attempt to reclaim failed: next is the turn of other work.
    yields: bool,
}

impl WorkQueue {
    /// An empty queue for `regions` regions. `moves`: regions are reclaimed by moving what they
    /// hold.
    pub fn new(regions: u32, moves: bool) -> WorkQueue {
        WorkQueue {
            works: VecDeque::with_capacity(2 * regions as usize + 1),
            wanted: vec![false; regions as usize].into_boxed_slice(),
            moves,
            reclaimed_last: false,
            parked: false,
            crowded: false,
            yields: false,
        }
    }

    // ---- work comes ----

    /// Queues new work.
    pub fn push(&mut self, work: Work) {
        match work {
            // The log waits: before what is merely wanted clean.
            Work::Reclaim(_) => {
                let at = self.works.iter().position(|other| !other.reclaims());
                self.works.insert(at.unwrap_or(self.works.len()), work);
            }
            Work::Destage(region) => {
                self.wanted[region.index()] = true;
                self.works.push_back(work);
            }
            Work::Evict | Work::Late(_) => self.works.push_back(work),
        }
    }

    /// Queues work again, behind all other.
    pub fn push_again(&mut self, work: Work) {
        match work {
            // The region was queued again while it was being cleaned.
            Work::Destage(region) if self.is_wanted_clean(region) => {}
            Work::Destage(_) | Work::Evict | Work::Late(_) => self.push(work),
            Work::Reclaim(_) => self.works.push_back(work),
        }
    }

    /// Queues a reclaim again, before all other work.
    pub fn put_back(&mut self, reclaim: Work) {
        self.works.push_front(reclaim);
    }

    /// Queues a reclaim again, before all other work; but some other work has its turn first.
    pub fn put_back_yielding(&mut self, reclaim: Work) {
        self.put_back(reclaim);
        self.yields = true;
    }

    /// Queues a reclaim again, before all other work; it does not begin while the log frees regions.
    pub fn put_back_crowded(&mut self, reclaim: Work) {
        self.put_back(reclaim);
        self.crowded = true;
    }

    /// Queues a reclaim again, before all other work; it does not begin until a request waits for
    /// room.
    pub fn park(&mut self, reclaim: Work) {
        self.put_back(reclaim);
        self.parked = true;
    }

    // ---- work goes ----

    /// Takes the work that begins now, if any may. `paused`: a failed cleaning pauses. `needed`: a
    /// request waits for room. `room`: for the mappings that [`WorkQueue::moves_next`] would move, or
    /// for the records of a region that was put back because the log is crowded.
    pub fn take_next(&mut self, paused: bool, needed: bool, room: MoveRoom) -> Option<Work> {
        self.parked &= !needed && room != MoveRoom::Now;
        let conditions = Conditions {
            paused,
            parked: self.parked,
            yields: core::mem::take(&mut self.yields),
            reclaimed_last: self.reclaimed_last,
            moves: self.moves,
            room,
        };
        let at = next(&self.works, conditions)?;
        let work = self.works.remove(at)?;
        if let Work::Destage(region) = work {
            self.wanted[region.index()] = false;
        }
        self.reclaimed_last = work.reclaims();
        self.crowded &= !work.reclaims();
        Some(work)
    }

    /// Drops the destages.
    pub fn forget_destages(&mut self) {
        self.works.retain(|work| !work.destages());
        self.wanted.fill(false);
    }

    /// Drops all work.
    pub fn forget(&mut self) {
        self.works.clear();
        self.wanted.fill(false);
        self.crowded = false;
    }

    // ---- what waits ----

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = Work> + '_ {
        self.works.iter().copied()
    }

    /// Whether the region waits for a destage.
    pub fn is_wanted_clean(&self, region: RegionIndex) -> bool {
        self.wanted[region.index()]
    }

    /// Whether any region waits for a destage.
    pub fn is_destaging(&self) -> bool {
        self.works.iter().any(|work| work.destages())
    }

    /// Whether the region to reclaim waits until the log has freed others.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// The region to reclaim that is parked, if one is.
    pub fn parked(&self) -> Option<RegionIndex> {
        let front = self.works.front().filter(|_| self.parked)?;
        front.region().filter(|_| front.reclaims())
    }

    /// The region to reclaim next, if its mappings are moved: a region to be cleaned must not move
    /// before it is clean.
    pub fn moves_next(&self) -> Option<RegionIndex> {
        match self.works.front() {
            Some(&Work::Reclaim(region)) if self.moves && !self.is_wanted_clean(region) => {
                Some(region)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cleaner::work::R;
    use Work::{Destage, Evict, Late, Reclaim};

    fn queue(works: &[Work]) -> WorkQueue {
        let mut queue = WorkQueue::new(4, false);
        works.iter().for_each(|&work| queue.push(work));
        queue
    }

    fn works(queue: &WorkQueue) -> Vec<Work> {
        queue.iter().collect()
    }

    #[test]
    fn reclaims_come_before_other_work_in_their_order() {
        let queue = queue(&[Destage(R[0]), Reclaim(R[1]), Evict, Reclaim(R[2]), Late(R[3])]);
        assert_eq!(works(&queue), [Reclaim(R[1]), Reclaim(R[2]), Destage(R[0]), Evict, Late(R[3])]);
    }

    #[test]
    fn a_region_is_queued_again_for_a_destage_only_if_it_is_not_queued() {
        let mut queue = queue(&[Destage(R[0]), Evict]);
        assert_eq!(queue.take_next(false, false, MoveRoom::Never), Some(Destage(R[0])));
        assert!(!queue.is_wanted_clean(R[0]));
        queue.push(Destage(R[0]));
        queue.push_again(Destage(R[0]));
        assert_eq!(works(&queue), [Evict, Destage(R[0])]);
        queue.forget_destages();
        assert!(works(&queue) == [Evict] && !queue.is_wanted_clean(R[0]));
    }

    #[test]
    fn a_reclaim_that_failed_yields_once() {
        let mut queue = queue(&[Destage(R[0]), Destage(R[1])]);
        queue.put_back_yielding(Reclaim(R[2]));
        let mut begins = || queue.take_next(false, true, MoveRoom::Never);
        assert_eq!(
            [begins(), begins(), begins()],
            [Destage(R[0]), Reclaim(R[2]), Destage(R[1])].map(Some)
        );
    }

    #[test]
    fn a_reclaim_that_waits_for_the_log_to_free_regions_lets_other_work_begin() {
        let mut queue = queue(&[Evict]);
        queue.put_back_crowded(Reclaim(R[2]));
        let mut begins = |room| queue.take_next(false, true, room);
        assert_eq!(begins(MoveRoom::Later), Some(Evict));
        assert_eq!(begins(MoveRoom::Later), None);
        assert_eq!(begins(MoveRoom::Never), Some(Reclaim(R[2])), "it is judged again");
        assert!(!queue.is_crowded());
    }

    #[test]
    fn a_parked_reclaim_begins_when_a_request_waits_for_room_or_its_mappings_can_move() {
        for (needed, room) in [(true, MoveRoom::Never), (false, MoveRoom::Now)] {
            let mut queue = queue(&[Evict]);
            queue.park(Reclaim(R[2]));
            assert_eq!(queue.parked(), Some(R[2]));
            assert_eq!(queue.take_next(false, false, MoveRoom::Never), Some(Evict));
            assert_eq!(queue.take_next(false, false, MoveRoom::Never), None);
            assert_eq!(queue.take_next(false, needed, room), Some(Reclaim(R[2])));
            assert_eq!(queue.parked(), None);
        }
    }
}
