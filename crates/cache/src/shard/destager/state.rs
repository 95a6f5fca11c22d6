//! The state of a destager, and what leads from one state to the next.
//!
//! | state | what moves it on | next state |
//! | --- | --- | --- |
//! | `Idle` | [`Destager::choose`](super::Destager::choose) | `Choosing` |
//! | `Idle` | [`Destager::carry_begin`](super::Destager::carry_begin) | `CarryingOn` |
//! | `Idle` | [`Destager::reinsert_choose`](super::Destager::reinsert_choose) | `Picking` |
//! | `Choosing` | [`Destager::choose_step`](super::Destager::choose_step), when all are chosen | `Chosen` |
//! | `Choosing`, `Chosen` | [`Destager::abandon`](super::Destager::abandon) | `Idle` |
//! | `Chosen` | [`Destager::begin`](super::Destager::begin) | `Writing` |
//! | `Writing` | [`Destager::end`](super::Destager::end) | `Settling` |
//! | `Settling` | `end`, when all are settled | `Idle` |
//! | `Picking` | [`Destager::reinsert_choose_step`](super::Destager::reinsert_choose_step), when all are picked | `Reinserting` |
//! | `CarryingOn`, `Reinserting` | [`Destager::append_end`](super::Destager::append_end) | `Idle` |
//!
//! The cleaning is the same in all shards, but a shard may reach a state earlier than another. A
//! step that a shard has already taken may therefore be called again: `choose_step` of `Chosen`,
//! and `end` of `Idle`. Any other call that does not fit the state is a bug of the caller, and
//! panics.
//!
//! Two kinds of work outlast the state in which they began: writes to late stores (`apart.rs`), and
//! appends of carried records after the log has failed (`carry.rs`).

use forebay_block::Volume;
use forebay_effect::IoError;
use forebay_flash::BlockKey;

use crate::volume_set::VolumeSet;

/// What the destager of a shard is doing. See the module documentation.
#[derive(Debug)]
pub(super) enum DestagerState {
    /// The destager does nothing.
    Idle,
    /// It chooses the records to clean.
    Choosing(Choosing),
    /// The chosen records wait until they are durable in the log, and until stamps cover them.
    Chosen {
        /// Their volumes.
        volumes: VolumeSet,
    },
    /// It writes the chosen records to their stores.
    Writing(Job),
    /// The stores are synced: the chosen records before `at` are marked clean already.
    Settling { at: usize },
    /// It carries on the records that a region still owes.
    CarryingOn {
        /// Whether a record could not be read, here or in another shard: no more are begun.
        unread: bool,
    },
    /// It chooses the clean records to reinsert.
    Picking(Picking),
    /// It reinserts them, batch by batch.
    Reinserting {
        /// Whether the current batch has been closed.
        closed: bool,
    },
}

impl DestagerState {
    /// Enters the next state.
    ///
    /// # Panics
    /// If `next` may not follow the present state.
    pub fn enter(&mut self, next: DestagerState) {
        assert!(self.leads_to(&next), "a destager goes from {self:?} to {next:?}");
        *self = next;
    }

    /// Whether `next` may follow: the table in the module documentation.
    fn leads_to(&self, next: &DestagerState) -> bool {
        use DestagerState::{
            CarryingOn, Choosing, Chosen, Idle, Picking, Reinserting, Settling, Writing,
        };
        match self {
            Idle => matches!(next, Choosing(_) | CarryingOn { .. } | Picking(_)),
            Choosing(_) => matches!(next, Chosen { .. } | Idle),
            Chosen { .. } => matches!(next, Writing(_) | Idle),
            Writing(_) => matches!(next, Settling { .. }),
            Picking(_) => matches!(next, Reinserting { .. }),
            Settling { .. } | CarryingOn { .. } | Reinserting { .. } => matches!(next, Idle),
        }
    }

    /// The choice in progress; `None` if all records are chosen.
    pub fn choosing(&mut self) -> Option<&mut Choosing> {
        match self {
            DestagerState::Choosing(choosing) => Some(choosing),
            DestagerState::Chosen { .. } => None,
            other => other.unfit("choosing"),
        }
    }

    /// The volumes of the chosen records.
    pub fn chosen_volumes(&self) -> VolumeSet {
        match self {
            DestagerState::Chosen { volumes } => *volumes,
            other => other.unfit("having chosen"),
        }
    }

    /// The job in progress.
    pub fn job(&mut self) -> &mut Job {
        match self {
            DestagerState::Writing(job) => job,
            other => other.unfit("writing"),
        }
    }

    /// The progress of settling; `None` if all are settled. Settling begins with the first call.
    pub fn settling(&mut self) -> Option<&mut usize> {
        if let DestagerState::Writing(_) = self {
            self.enter(DestagerState::Settling { at: 0 });
        }
        match self {
            DestagerState::Settling { at } => Some(at),
            DestagerState::Idle => None,
            other => other.unfit("settling"),
        }
    }

    /// Whether no more records are to be carried on: see [`DestagerState::CarryingOn`].
    pub fn unread(&mut self) -> &mut bool {
        match self {
            DestagerState::CarryingOn { unread } => unread,
            other => other.unfit("carrying on"),
        }
    }

    /// Notes that a record to be carried on could not be read. (Its append may have begun in an
    /// earlier state, before the log failed.)
    pub fn note_unread(&mut self) {
        if let DestagerState::CarryingOn { unread } = self {
            *unread = true;
        }
    }

    /// The choice of the records to reinsert.
    pub fn picking(&mut self) -> &mut Picking {
        match self {
            DestagerState::Picking(picking) => picking,
            other => other.unfit("picking"),
        }
    }

    /// Whether the current batch of reinserted records has been closed.
    pub fn closed(&mut self) -> &mut bool {
        match self {
            DestagerState::Reinserting { closed } => closed,
            other => other.unfit("inserting again"),
        }
    }

    #[cold]
    fn unfit(&self, wanted: &str) -> ! {
        panic!("a destager is taken to be {wanted}: {self:?}")
    }
}

/// The choice, in progress, of the records to clean.
#[derive(Debug)]
pub(super) struct Choosing {
    /// Volumes of which no records are chosen.
    pub skipped: VolumeSet,
    /// Volumes of the records chosen so far.
    pub volumes: VolumeSet,
}

/// The phase of choosing the records to reinsert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PickPhase {
    Collecting,
    /// Sorting by worth.
    Ranking,
    /// Sorting the picked ones by position.
    Ordering,
}

/// The choice, in progress, of the records to reinsert.
#[derive(Debug)]
pub(super) struct Picking {
    pub phase: PickPhase,
    /// Pages of the log that they may take; once they are ranked, those that they take.
    pub pages: u32,
}

/// The writing, in progress, of the chosen records to their stores.
#[derive(Debug)]
pub(super) struct Job {
    /// The next busy record to look at; `None` until the busy records have their turn, which comes
    /// whenever nothing is in flight.
    pub retry: Option<usize>,
    /// Volumes whose next record waits for bounce frames.
    pub starved: VolumeSet,
    /// Whether a dirty record could not be read from flash. It stays dirty; the others continue.
    pub unreadable: bool,
    /// The error of the last write that failed, of a volume in `failing`.
    error: Option<IoError>,
    /// Volumes to which a write failed and which are still part of the job.
    failing: VolumeSet,
    /// Volumes to which a write failed, and volumes to be left out: the job tries no more writes to
    /// them.
    failed: VolumeSet,
    /// Volumes written to.
    volumes: VolumeSet,
    /// Whether there are several volumes: each may take at most three quarters of the places and
    /// frames.
    several: bool,
    /// Volumes whose stores are known to be late: each may take at most half.
    late: VolumeSet,
}

impl Job {
    /// A job that leaves the `skipped` volumes out.
    pub fn new(skipped: VolumeSet, several: bool, late: VolumeSet) -> Job {
        Job {
            retry: None,
            starved: VolumeSet::EMPTY,
            unreadable: false,
            error: None,
            failing: VolumeSet::EMPTY,
            failed: skipped,
            volumes: VolumeSet::EMPTY,
            several,
            late,
        }
    }

    /// A volume's share of all places, or of all frames.
    pub fn part_of(&self, volume: Volume, all: u32) -> u32 {
        match () {
            () if self.late.contains(volume) => all / 2,
            () if self.several => all - all / 4,
            () => all,
        }
    }

    /// Whether records of the block's volume are not written.
    #[inline]
    pub fn leaves_out(&self, key: BlockKey) -> bool {
        self.failed.has(key)
    }

    /// Notes that a write to the volume has begun.
    pub fn note_begun(&mut self, volume: Volume) {
        self.volumes.insert(volume);
    }

    /// Notes that a write to the volume has failed.
    pub fn note_failed(&mut self, volume: Volume, error: IoError) {
        self.failed.insert(volume);
        self.failing.insert(volume);
        self.error = Some(error);
    }

    /// Continues without these volumes. Returns those of them to which no more writes were tried
    /// already, and the error of the last failed write to any volume. If writes failed only to
    /// these volumes, the error counts when they settle, and not for the job.
    pub fn part(&mut self, volumes: VolumeSet) -> (VolumeSet, Option<IoError>) {
        let failed = self.failed & volumes;
        self.failed |= volumes;
        self.volumes &= !volumes;
        let error = self.error;
        self.failing &= !volumes;
        self.error = error.filter(|_| !self.failing.is_empty());
        (failed, error)
    }

    /// The state of a job whose writes have ended.
    pub fn written(&self) -> JobState {
        let Job { volumes, error, unreadable, failed, .. } = *self;
        JobState::Written { volumes, error, unreadable, failed }
    }
}

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum JobState {
    /// Waiting for transfers.
    Busy,
    /// All writable records are written: sync the volumes. The others stay dirty. `failed`: the
    /// volumes with failed or skipped writes.
    Written { volumes: VolumeSet, error: Option<IoError>, unreadable: bool, failed: VolumeSet },
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// The states, each by its name.
    fn states() -> [(&'static str, DestagerState); 8] {
        let (none, closed, unread) = (VolumeSet::EMPTY, false, false);
        let picking = Picking { phase: PickPhase::Collecting, pages: 1 };
        [
            ("Idle", DestagerState::Idle),
            ("Choosing", DestagerState::Choosing(Choosing { skipped: none, volumes: none })),
            ("Chosen", DestagerState::Chosen { volumes: none }),
            ("Writing", DestagerState::Writing(Job::new(none, false, none))),
            ("Settling", DestagerState::Settling { at: 0 }),
            ("CarryingOn", DestagerState::CarryingOn { unread }),
            ("Picking", DestagerState::Picking(picking)),
            ("Reinserting", DestagerState::Reinserting { closed }),
        ]
    }

    /// The words in backticks of a cell of the table.
    fn names(cell: &str) -> impl Iterator<Item = &str> {
        cell.split('`').skip(1).step_by(2)
    }

    /// Goal: the table in the module documentation is correct. Method: all pairs of states.
    #[test]
    fn a_state_leads_where_the_table_says_and_nowhere_else() {
        let rows = include_str!("state.rs").lines().filter_map(|line| line.strip_prefix("//! | `"));
        let rows: Vec<Vec<String>> =
            rows.map(|row| format!("`{row}").split(" | ").map(str::to_owned).collect()).collect();
        let listed: BTreeSet<(&str, &str)> = rows
            .iter()
            .flat_map(|row| {
                names(&row[0]).flat_map(|from| names(&row[2]).map(move |to| (from, to)))
            })
            .collect();
        let allowed: BTreeSet<(&str, &str)> = states()
            .iter()
            .flat_map(|(from, state)| {
                let next = states().into_iter().filter(|(_, next)| state.leads_to(next));
                next.map(|(to, _)| (*from, to)).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(listed, allowed);
        assert_eq!(listed.len(), 12, "the table was read");
    }

    #[test]
    fn a_state_that_may_not_follow_is_refused() {
        for ((_, mut state), (_, next)) in states().into_iter().zip(states()) {
            let name = format!("{state:?}");
            let entered = catch_unwind(AssertUnwindSafe(|| state.enter(next)));
            assert!(entered.is_err(), "{name} twice");
        }
    }

    /// The states in which a call does not panic.
    fn fits(call: impl Fn(&mut DestagerState)) -> Vec<&'static str> {
        let fits = |state: &mut DestagerState| catch_unwind(AssertUnwindSafe(|| call(state)));
        let all = states().into_iter();
        all.filter_map(|(name, mut state)| fits(&mut state).is_ok().then_some(name)).collect()
    }

    #[test]
    fn a_call_that_does_not_fit_the_state_panics() {
        assert_eq!(fits(|state| _ = state.choosing()), ["Choosing", "Chosen"]);
        assert_eq!(fits(|state| _ = state.chosen_volumes()), ["Chosen"]);
        assert_eq!(fits(|state| _ = state.job()), ["Writing"]);
        assert_eq!(fits(|state| _ = state.settling()), ["Idle", "Writing", "Settling"]);
        assert_eq!(fits(|state| _ = state.unread()), ["CarryingOn"]);
        assert_eq!(fits(|state| _ = state.picking()), ["Picking"]);
        assert_eq!(fits(|state| _ = state.closed()), ["Reinserting"]);
    }

    /// A record that was left to a log that has failed may turn out to be unreadable in any state.
    #[test]
    fn an_unreadable_record_concerns_only_carrying_on() {
        for (name, mut state) in states() {
            let before = format!("{state:?}");
            state.note_unread();
            assert_eq!(format!("{state:?}") != before, name == "CarryingOn", "{before}");
        }
    }

    #[test]
    fn volumes_from_which_a_job_has_parted_are_left_out_and_not_synced() {
        let (kept, parted) = (Volume(1), Volume(2));
        let mut job = Job::new(VolumeSet::only(Volume(3)), true, VolumeSet::EMPTY);
        [kept, parted].into_iter().for_each(|volume| job.note_begun(volume));
        assert_eq!(job.part(VolumeSet::only(parted)), (VolumeSet::EMPTY, None));
        let JobState::Written { volumes, error, failed, .. } = job.written() else {
            panic!("its writes have ended")
        };
        assert_eq!((volumes, error), (VolumeSet::only(kept), None));
        assert_eq!(failed, [parted, Volume(3)].into_iter().collect());
        job.note_failed(kept, IoError::Device);
        let only = VolumeSet::only(kept);
        assert_eq!(job.part(only), (only, Some(IoError::Device)), "it counts when it settles");
    }

    #[test]
    fn the_error_of_a_volume_from_which_a_job_has_parted_does_not_count_for_the_job() {
        let (kept, parted) = (Volume(1), Volume(2));
        let mut job = Job::new(VolumeSet::EMPTY, true, VolumeSet::EMPTY);
        let error = |job: &Job| match job.written() {
            JobState::Written { error, .. } => error,
            JobState::Busy => panic!("its writes have ended"),
        };
        job.note_failed(parted, IoError::Device);
        job.part(VolumeSet::only(parted));
        assert_eq!(error(&job), None);
        job.note_failed(kept, IoError::NoSpace);
        job.part(VolumeSet::only(Volume(3)));
        assert_eq!(error(&job), Some(IoError::NoSpace));
    }
}
