//! A cleaning in progress, and what leads from one of its phases to the next.
//!
//! A cleaning destages records. If it is to reclaim a region, it then empties the region. Where regions are
//! reclaimed by moving their mappings (slots layout), it does only that.
//!
//! | phase | what moves it on | next phase |
//! | --- | --- | --- |
//! | `Choosing` | all shards have chosen | `Logging` |
//! | `Logging` | the chosen records are durable in the log | `Stamping` |
//! | `Stamping` | the stamps of their stores have seen them | `Writing` |
//! | `Writing` | all shards have written their parts | `Syncing` |
//! | `Syncing` | all syncs have ended that it waits for | `Settling` |
//! | `Settling` | the region is clean, and records of it may be worth keeping | `Picking` |
//! | `Settling` | the region is clean, and none are kept | `Releasing` |
//! | `Settling` | the region holds dirty records that can be carried on | `Carrying` |
//! | `Carrying` | all are carried on | `Releasing` |
//! | `Picking` | a shard has chosen; another is next | `Picking` |
//! | `Picking` | all shards have chosen | `Reinserting` |
//! | `Reinserting` | all chosen records are inserted again | `Releasing` |
//!
//! `Choosing` and `Moving` are the first phases. In the others, a reclaim has begun to empty its region: `Moving`,
//! `Carrying`, `Picking`, `Reinserting`, `Releasing`. A cleaning may end in any phase except `Writing`, `Syncing`
//! and `Picking`: there, writes or a walk of some shard would outlast it. Anything else is a bug, and panics.

use forebay_block::{Nanos, Volume};
use forebay_effect::IoError;
use forebay_flash::{BatchSequence, RegionIndex};

use super::Work;
use crate::volume_set::VolumeSet;

/// The phase of a cleaning that destages records, and what only this phase needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DestagePhase {
    /// Shards choose what is destaged.
    Choosing,
    /// The region's records are being made durable: a version must not reach the backing store
    /// while a power cut could still bring back an older record that is marked clean.
    Logging {
        /// The newest batch that may hold a record that was chosen.
        newest: BatchSequence,
    },
    /// The stores to be written wait for stamps that say that they have seen the records.
    Stamping {
        /// As in [`DestagePhase::Logging`].
        newest: BatchSequence,
    },
    /// Shards are destaging.
    Writing(Writing),
    /// Backing stores are being synced.
    Syncing {
        /// When it began.
        since: Nanos,
        /// Volumes whose sync has not ended.
        left: VolumeSet,
    },
    /// The destaged records become clean, except for the volumes whose sync failed.
    Settling { failed: VolumeSet },
}

/// The phase of a cleaning that empties a region to reclaim, and what only this phase needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReclaimPhase {
    /// The region's mappings are being moved to another region.
    Moving {
        /// The log did not take a mapping.
        failed: bool,
    },
    /// The remaining records of the region are carried on to the head of the log.
    Carrying,
    /// The region is clean. The shards choose, one after another, which records are worth
    /// keeping, in at most `pages` pages of the log.
    Picking { shard: usize, pages: u32 },
    /// The chosen records are inserted again at the head of the log.
    Reinserting,
    /// The region is clean, and waits for stamps that say that the stores hold its records.
    Releasing,
}

impl DestagePhase {
    /// The table of the module, for phases of a destage.
    fn leads_to(self, next: DestagePhase) -> bool {
        use DestagePhase::{Choosing, Logging, Settling, Stamping, Syncing, Writing};
        match self {
            Choosing => matches!(next, Logging { .. }),
            Logging { .. } => matches!(next, Stamping { .. }),
            Stamping { .. } => matches!(next, Writing(_)),
            Writing(_) => matches!(next, Syncing { .. }),
            Syncing { left, .. } => left.is_empty() && matches!(next, Settling { .. }),
            Settling { .. } => false,
        }
    }

    /// The table of the module: whether the region may be emptied next, and how that begins.
    fn leads_to_reclaim(self, next: ReclaimPhase) -> bool {
        use ReclaimPhase::{Carrying, Picking, Releasing};
        matches!(self, DestagePhase::Settling { .. })
            && matches!(next, Carrying | Picking { .. } | Releasing)
    }

    fn may_end(self) -> bool {
        !matches!(self, DestagePhase::Writing(_) | DestagePhase::Syncing { .. })
    }
}

impl ReclaimPhase {
    /// The table of the module, for phases of a reclaim.
    fn leads_to(self, next: ReclaimPhase) -> bool {
        use ReclaimPhase::{Carrying, Moving, Picking, Reinserting, Releasing};
        match self {
            Moving { .. } | Releasing => false,
            Carrying | Reinserting => matches!(next, Releasing),
            Picking { .. } => matches!(next, Picking { .. } | Reinserting),
        }
    }

    fn may_end(self) -> bool {
        !matches!(self, ReclaimPhase::Picking { .. })
    }
}

/// Shards are destaging; see [`DestagePhase::Writing`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Writing {
    /// When it began.
    pub since: Nanos,
    /// Volumes whose part of this cleaning has not ended.
    pub awaited: VolumeSet,
    /// A bit for each shard: the shard has written its part.
    pub shards: u64,
}

/// A cleaning in progress.
#[derive(Debug)]
pub(super) struct Cleaning {
    pub work: Work,
    /// It began during the pause after a failure, so its success does not reset `failures`.
    pub paused: bool,
    state: CleaningState,
}

/// What a cleaning does. See the module.
#[derive(Debug)]
pub(super) enum CleaningState {
    /// It destages records.
    Destaging(Destaging),
    /// It empties the region to reclaim.
    Reclaiming(ReclaimPhase),
}

/// The part of a cleaning that destages records.
#[derive(Debug)]
pub(super) struct Destaging {
    phase: DestagePhase,
    /// The error of the last failed write.
    pub error: Option<IoError>,
    /// A dirty record could not be read from flash.
    pub unreadable: bool,
    /// Volumes written to.
    pub volumes: VolumeSet,
    /// Volumes to which a write failed.
    pub failed: VolumeSet,
    /// Volumes that were not tried.
    pub skipped: VolumeSet,
    /// It is part of a destage of everything.
    pub whole: bool,
    /// The count of failed syncs when the cleaning began.
    pub sync_failures: u64,
}

impl Cleaning {
    /// A cleaning that begins with a choice of records, except of the volumes to be skipped.
    pub fn destage(work: Work, paused: bool, destaging: Destaging) -> Cleaning {
        Cleaning { work, paused, state: CleaningState::Destaging(destaging) }
    }

    /// A cleaning that moves the mappings of a region.
    pub fn moves(region: RegionIndex, paused: bool) -> Cleaning {
        let state = CleaningState::Reclaiming(ReclaimPhase::Moving { failed: false });
        Cleaning { work: Work::Reclaim(region), paused, state }
    }

    pub fn state(&self) -> &CleaningState {
        &self.state
    }

    /// Goes on to the next phase of emptying the region to reclaim.
    ///
    /// # Panics
    /// If that may not follow.
    pub fn enter(&mut self, next: ReclaimPhase) {
        let follows = match &self.state {
            CleaningState::Destaging(destaging) => destaging.phase.leads_to_reclaim(next),
            CleaningState::Reclaiming(phase) => phase.leads_to(next),
        };
        assert!(follows && self.work.reclaims(), "a cleaning goes from {self:?} to {next:?}");
        self.state = CleaningState::Reclaiming(next);
    }

    /// Whether it may end in this phase.
    pub fn may_end(&self) -> bool {
        match &self.state {
            CleaningState::Destaging(destaging) => destaging.phase.may_end(),
            CleaningState::Reclaiming(phase) => phase.may_end(),
        }
    }

    /// What it destages.
    ///
    /// # Panics
    /// If it has begun to empty its region.
    pub fn destaging(&mut self) -> &mut Destaging {
        match &mut self.state {
            CleaningState::Destaging(destaging) => destaging,
            CleaningState::Reclaiming(phase) => {
                panic!("a cleaning is taken to be destaging: {phase:?}")
            }
        }
    }

    /// The log has not taken a mapping that was to move.
    pub fn note_move_failed(&mut self) {
        match &mut self.state {
            CleaningState::Reclaiming(ReclaimPhase::Moving { failed }) => *failed = true,
            other => panic!("a cleaning is taken to be moving mappings: {other:?}"),
        }
    }
}

impl Destaging {
    /// About to choose records of all volumes except `skipped`. `whole`: for a destage of everything.
    pub fn new(skipped: VolumeSet, whole: bool, sync_failures: u64) -> Destaging {
        Destaging {
            phase: DestagePhase::Choosing,
            error: None,
            unreadable: false,
            volumes: VolumeSet::EMPTY,
            failed: VolumeSet::EMPTY,
            skipped,
            whole,
            sync_failures,
        }
    }

    pub fn phase(&self) -> DestagePhase {
        self.phase
    }

    /// Goes on to the next phase.
    ///
    /// # Panics
    /// If that may not follow.
    pub fn enter(&mut self, next: DestagePhase) {
        assert!(self.phase.leads_to(next), "a cleaning goes from {self:?} to {next:?}");
        self.phase = next;
    }

    /// The newest batch that may hold a record that is being made durable.
    pub fn newest_logging(&self) -> BatchSequence {
        match self.phase {
            DestagePhase::Logging { newest } => newest,
            other => panic!("the log synced for a cleaning in another phase: {other:?}"),
        }
    }

    /// The progress of the shards.
    pub fn writing(&mut self) -> &mut Writing {
        match &mut self.phase {
            DestagePhase::Writing(writing) => writing,
            other => panic!("a cleaning is taken to be writing: {other:?}"),
        }
    }

    /// One of the stores that were written is synced, or its sync has failed. Returns when the syncs began.
    pub fn note_synced(&mut self, volume: Volume) -> Nanos {
        match &mut self.phase {
            DestagePhase::Syncing { since, left } if left.contains(volume) => {
                left.remove(volume);
                *since
            }
            other => panic!("a cleaning is taken to be syncing {volume:?}: {other:?}"),
        }
    }

    /// Continues without these volumes: what is written to them ends apart, and failures of writes
    /// to them count when they settle.
    pub fn part(&mut self, volumes: VolumeSet) {
        if let DestagePhase::Syncing { left, .. } = &mut self.phase {
            *left &= !volumes;
        }
        self.skipped |= volumes;
        self.volumes &= !volumes;
        self.failed &= !volumes;
        self.error = self.error.filter(|_| !self.failed.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::Volume;
    use std::collections::BTreeSet;

    use super::*;

    fn destage_phases() -> [DestagePhase; 6] {
        let newest = BatchSequence::NONE;
        let writing = Writing { since: Nanos(0), awaited: VolumeSet::EMPTY, shards: 0 };
        [
            DestagePhase::Choosing,
            DestagePhase::Logging { newest },
            DestagePhase::Stamping { newest },
            DestagePhase::Writing(writing),
            DestagePhase::Syncing { since: Nanos(0), left: VolumeSet::EMPTY },
            DestagePhase::Settling { failed: VolumeSet::EMPTY },
        ]
    }

    fn reclaim_phases() -> [ReclaimPhase; 5] {
        [
            ReclaimPhase::Moving { failed: false },
            ReclaimPhase::Carrying,
            ReclaimPhase::Picking { shard: 0, pages: 0 },
            ReclaimPhase::Reinserting,
            ReclaimPhase::Releasing,
        ]
    }

    /// A reclaim in each phase, with the name of the phase.
    fn cleanings() -> Vec<(String, Cleaning)> {
        let destages = destage_phases().map(|phase| {
            let destaging = Destaging { phase, ..Destaging::new(VolumeSet::EMPTY, false, 0) };
            (name(phase), CleaningState::Destaging(destaging))
        });
        let reclaims = reclaim_phases().map(|at| (name(at), CleaningState::Reclaiming(at)));
        let with_state = |(name, state)| {
            (name, Cleaning { work: Work::Reclaim(RegionIndex(0)), paused: false, state })
        };
        destages.into_iter().chain(reclaims).map(with_state).collect()
    }

    fn name(phase: impl core::fmt::Debug) -> String {
        let text = format!("{phase:?}");
        text.split(|c: char| !c.is_alphabetic()).next().expect("a name").to_owned()
    }

    /// Whether `enter` takes the step without a panic.
    fn goes(enter: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(enter)).is_ok()
    }

    /// Goal: the table of the module tells the truth. Method: all pairs of phases.
    #[test]
    fn a_phase_leads_where_the_table_says_and_nowhere_else() {
        let rows = include_str!("phase.rs").lines().filter_map(|row| row.strip_prefix("//! | `"));
        let listed: BTreeSet<(String, String)> = rows
            .map(|row| {
                let cells: Vec<&str> = row.split(" | ").collect();
                let word = |cell: &str| cell.trim_matches(['`', ' ', '|']).to_owned();
                (word(cells[0]), word(cells[2]))
            })
            .collect();
        let mut allowed = BTreeSet::new();
        for (at, _) in cleanings().iter().enumerate() {
            let from = || cleanings().swap_remove(at);
            for next in destage_phases() {
                let (name_from, mut cleaning) = from();
                if let CleaningState::Destaging(destaging) = &mut cleaning.state
                    && goes(|| destaging.enter(next))
                {
                    allowed.insert((name_from, name(next)));
                }
            }
            for next in reclaim_phases() {
                let (name_from, mut cleaning) = from();
                if goes(|| cleaning.enter(next)) {
                    allowed.insert((name_from, name(next)));
                }
            }
        }
        assert_eq!(allowed, listed);
    }

    #[test]
    fn only_a_reclaim_empties_a_region() {
        let (_, mut cleaning) = cleanings().swap_remove(5);
        cleaning.work = Work::Destage(RegionIndex(0));
        assert!(!goes(|| cleaning.enter(ReclaimPhase::Releasing)));
    }

    #[test]
    fn stores_settle_only_when_all_of_them_are_synced() {
        let mut destaging = Destaging::new(VolumeSet::EMPTY, false, 0);
        let left = [1, 2, 3].map(Volume).into_iter().collect();
        destaging.phase = DestagePhase::Syncing { since: Nanos(7), left };
        let settling = DestagePhase::Settling { failed: VolumeSet::EMPTY };
        assert_eq!(destaging.note_synced(Volume(1)), Nanos(7));
        assert!(!goes(|| _ = destaging.note_synced(Volume(1))), "it is synced");
        destaging.part(VolumeSet::only(Volume(2)));
        assert!(!goes(|| _ = destaging.note_synced(Volume(2))), "it is synced apart");
        assert!(!goes(|| destaging.enter(settling)));
        destaging.note_synced(Volume(3));
        destaging.enter(settling);
    }

    #[test]
    fn a_cleaning_does_not_end_while_shards_write_or_walk_for_it() {
        for (name, cleaning) in cleanings() {
            let ends = !["Writing", "Syncing", "Picking"].contains(&&*name);
            assert_eq!(cleaning.may_end(), ends, "{name}");
        }
    }

    #[test]
    fn a_failure_of_a_volume_from_which_a_cleaning_has_parted_does_not_count_for_the_cleaning() {
        let [late, kept] = [Volume(1), Volume(2)].map(VolumeSet::only);
        let error = |failed| {
            let mut destaging = Destaging::new(VolumeSet::EMPTY, false, 0);
            (destaging.failed, destaging.error) = (failed, Some(IoError::Device));
            destaging.part(late);
            destaging.error
        };
        assert_eq!([error(late), error(late | kept)], [None, Some(IoError::Device)]);
    }
}
