//! Which work the cleaner begins next: a choice without side effects.

use std::collections::VecDeque;

use forebay_flash::MoveRoom;

use super::Work;

/// What the choice depends on, besides the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    /// A failed cleaning pauses. Only moves of mappings begin: they tell of no store.
    pub paused: bool,
    /// The region to reclaim cannot be destaged, and no request needs it: only other work begins.
    pub parked: bool,
    /// The last attempt to reclaim failed: other work has a turn.
    pub yields: bool,
    /// The last cleaning reclaimed a region: evicted blocks and late stores have a turn.
    pub reclaimed_last: bool,
    /// Regions are reclaimed by moving their mappings.
    pub moves: bool,
    /// The room for the mappings of the region to reclaim, if they would be moved, or for its records, if they wait for
    /// it. Without room for now, only other work begins.
    pub room: MoveRoom,
}

/// The place in the queue of the work to begin, if any may begin. `queue` has the reclaims first, except those that
/// have failed.
///
/// | conditions, the first that holds | begins |
/// | --- | --- |
/// | paused, and no room to move now | nothing |
/// | parked, or room only later | the first that is no reclaim, or nothing |
/// | yields, and no room to move now; there is another | the first that is no reclaim |
/// | the first is no reclaim | the first |
/// | moves, and the region is also to be destaged | that destage: the region must not move before |
/// | reclaimed last, and not paused; there is one | the first eviction, or work for late stores |
/// | none of these | the first |
pub(super) fn next(queue: &VecDeque<Work>, c: Conditions) -> Option<usize> {
    let other = queue.iter().position(|work| !work.reclaims());
    let move_now = c.room == MoveRoom::Now;
    if c.paused && !move_now {
        return None;
    }
    if c.parked || c.room == MoveRoom::Later {
        return other;
    }
    if c.yields && !move_now && other.is_some() {
        return other;
    }

    let &Work::Reclaim(region) = queue.front()? else { return Some(0) };
    let destage = queue.iter().position(|&work| work == Work::Destage(region));
    if c.moves && destage.is_some() {
        return destage;
    }
    let waits = |work: &Work| matches!(work, Work::Evict | Work::Late(_));
    let alternates = c.reclaimed_last && !c.paused;
    queue.iter().position(waits).filter(|_| alternates).or(Some(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cleaner::work::R;
    use Work::{Destage, Evict, Late, Reclaim};

    const PLAIN: Conditions = Conditions {
        paused: false,
        parked: false,
        yields: false,
        reclaimed_last: false,
        moves: false,
        room: MoveRoom::Never,
    };

    fn begins(queue: &[Work], c: Conditions) -> Option<Work> {
        let queue = VecDeque::from(queue.to_vec());
        next(&queue, c).map(|at| queue[at])
    }

    #[test]
    fn a_reclaim_comes_first_unless_it_has_to_wait_or_yields() {
        let both = [Reclaim(R[1]), Destage(R[2])];
        let alone = [Reclaim(R[1])];
        let (parked, yields) =
            (Conditions { parked: true, ..PLAIN }, Conditions { yields: true, ..PLAIN });
        let later = Conditions { moves: true, room: MoveRoom::Later, ..PLAIN };
        for (conditions, of_both, of_one) in [
            (PLAIN, Some(Reclaim(R[1])), Some(Reclaim(R[1]))),
            (parked, Some(Destage(R[2])), None),
            (later, Some(Destage(R[2])), None),
            (yields, Some(Destage(R[2])), Some(Reclaim(R[1]))),
            (
                Conditions { room: MoveRoom::Now, ..yields },
                Some(Reclaim(R[1])),
                Some(Reclaim(R[1])),
            ),
        ] {
            assert_eq!(begins(&both, conditions), of_both, "{conditions:?}");
            assert_eq!(begins(&alone, conditions), of_one, "{conditions:?}");
            assert_eq!(begins(&[], conditions), None, "{conditions:?}");
        }
    }

    #[test]
    fn only_moves_begin_during_a_pause() {
        let paused = Conditions { paused: true, moves: true, ..PLAIN };
        for work in [Reclaim(R[1]), Destage(R[1]), Late(R[1]), Evict] {
            assert_eq!(begins(&[work], paused), None);
        }
        let moves = Conditions { room: MoveRoom::Now, reclaimed_last: true, ..paused };
        assert_eq!(
            begins(&[Reclaim(R[1]), Evict], moves),
            Some(Reclaim(R[1])),
            "stores do not delay it"
        );
    }

    #[test]
    fn a_region_does_not_move_before_it_is_destaged() {
        let queue = [Reclaim(R[1]), Evict, Destage(R[2]), Destage(R[1])];
        let last = Conditions { reclaimed_last: true, ..PLAIN };
        assert_eq!(begins(&queue, Conditions { moves: true, ..last }), Some(Destage(R[1])));
        assert_eq!(
            begins(&queue, PLAIN),
            Some(Reclaim(R[1])),
            "the log layout reclaims by destaging"
        );
    }

    #[test]
    fn after_a_reclaim_evictions_and_late_stores_have_a_turn() {
        let last = Conditions { reclaimed_last: true, ..PLAIN };
        for work in [Evict, Late(R[3])] {
            let queue = [Reclaim(R[1]), Destage(R[2]), work];
            assert_eq!(begins(&queue, last), Some(work));
            assert_eq!(begins(&queue, PLAIN), Some(Reclaim(R[1])));
        }
        assert_eq!(begins(&[Reclaim(R[1]), Destage(R[2])], last), Some(Reclaim(R[1])));
        assert_eq!(begins(&[Destage(R[2]), Evict], last), Some(Destage(R[2])), "in their order");
    }
}
