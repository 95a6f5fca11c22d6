//! Whether reclaiming regions makes room although stores fail or are late.
//!
//! What such stores do not take is carried on to the head of the log. That makes room only as long as little is owed
//! to them: regions that hold nothing else would be carried on in circles.

use super::{FAILURES_MAX, Surroundings, Work};
use crate::volume_set::VolumeSet;
use crate::world::World;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ReclaimProgress {
    /// How many times in a row the region to reclaim was neither destaged nor carried on.
    stuck: u32,
    /// Regions carried on in a row while nothing else was written to the log: these make no room.
    in_vain: u32,
    /// Entries written to the log for other reasons, at the time when a region was last carried on.
    others: u64,
}

impl ReclaimProgress {
    /// The region to reclaim was destaged, or carrying it on begins.
    pub fn note_reclaimed(&mut self) {
        self.stuck = 0;
    }

    /// The region to reclaim was neither destaged nor carried on.
    pub fn note_stuck(&mut self) {
        self.stuck += 1;
    }

    /// The remaining records of a region have been carried on. `others`: entries written to the log for other
    /// reasons until now.
    pub fn note_carried(&mut self, others: u64) {
        self.in_vain = if others == self.others { self.in_vain + 1 } else { 0 };
        self.others = others;
    }

    /// Whether the last region that was carried on made no room.
    pub fn carries_in_vain(&self) -> bool {
        self.in_vain > 0
    }

    /// Whether the last attempt to reclaim a region left it as it was: the next tries all stores.
    pub fn is_stuck(&self) -> bool {
        self.stuck > 0
    }

    /// Whether regions are reclaimed although stores are known to fail.
    pub fn makes_room(&self, world: &World) -> bool {
        self.stuck < FAILURES_MAX && self.may_carry(world, VolumeSet::EMPTY)
    }

    /// Volumes that a cleaning skips if it begins now. `whole`: it is part of a destage of everything.
    pub fn to_skip(&self, s: &Surroundings<'_>, work: Work, whole: bool) -> VolumeSet {
        let conditions = &s.world.volumes.conditions;
        // A stop waits for late stores.
        let ready = s.world.lifecycle.is_ready();
        let known = if ready { conditions.left_out() } else { conditions.failing() };
        let known = known & !s.stores.probed();
        match work {
            Work::Late(_) => !conditions.late.volumes() | conditions.failing(),
            // A destage tries each store again, until that has failed as often as it takes.
            Work::Destage(_) if whole => conditions.hopeless(),
            Work::Destage(_) => known,
            Work::Reclaim(_) | Work::Evict => {
                let carries = self.may_carry(s.world, VolumeSet::EMPTY) && !self.is_stuck();
                if carries { known } else { VolumeSet::EMPTY }
            }
        }
    }

    /// Whether the log has room to carry on the records of volumes that are left out, and of `more`. [`Shares`] keeps
    /// what clients write below this limit; what memory evicts may exceed it.
    ///
    /// [`Shares`]: crate::shares::Shares
    pub fn may_carry(&self, world: &World, more: VolumeSet) -> bool {
        let Some(most) = world.dirty_blocks_max() else { return false };
        let carried = world.volumes.conditions.left_out() | more;
        let owed: u64 = carried.iter().map(|volume| world.volumes[volume].owed).sum();
        let regions = world.config.flash.as_ref().map_or(0, |f| f.geometry.regions);
        !carried.is_empty() && owed * 4 <= most * 3 && self.in_vain <= regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_was_carried_on_makes_room_if_anything_else_was_written_since_the_last() {
        let mut progress = ReclaimProgress::default();
        progress.note_carried(7);
        assert!(!progress.carries_in_vain(), "others have written");
        for in_vain in 1..=2 {
            progress.note_carried(7);
            assert_eq!(progress.in_vain, in_vain);
        }
        assert!(progress.carries_in_vain());
        progress.note_carried(8);
        assert!(!progress.carries_in_vain());
    }

    #[test]
    fn one_region_that_was_reclaimed_ends_the_attempts_in_a_row() {
        let mut progress = ReclaimProgress::default();
        assert!(!progress.is_stuck());
        progress.note_stuck();
        progress.note_stuck();
        assert!(progress.is_stuck());
        progress.note_reclaimed();
        assert!(!progress.is_stuck());
    }
}
