//! The stages of a destage of everything, and what leads from one to the next.
//!
//! | stage | event | next stage |
//! | --- | --- | --- |
//! | `Flushing` | `Flushed` | `Due` |
//! | `Flushing` | `FlushedForStop` | `Undecided` |
//! | `Undecided` | `Decide` | `Due` |
//! | `Due` | `Clean` | `Cleaning` |
//! | `Cleaning` | `Settle` | `Settling` |
//! | `Settling` | `Repeat` | `Flushing` |
//!
//! A destage ends while it is `Cleaning` or `Settling`; that of a stop also ends if it is
//! `Undecided` and the stop leaves dirty data on flash. Any other event is a bug, and panics.

use forebay_effect::{IoError, Outcome};

use super::{DestageError, Destaged};
use crate::volume_set::VolumeSet;

/// The purpose of a destage of everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DestagePurpose {
    /// The operator, a change of policy or pass-through. A stop that is near ends it.
    Service,
    /// A stop, which decides after the flushes whether regions are cleaned.
    Stop,
}

/// The stage of a destage of everything; see the module documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DestageStage {
    /// The cache's own flushes, one for each volume, are in progress.
    Flushing {
        /// Flushes that have not ended.
        left: u32,
    },
    /// The flushes have ended: the stop decides whether regions are cleaned.
    Undecided,
    /// The flushes have ended: the cleaning of regions begins with the next turn.
    Due,
    /// Regions are being cleaned.
    Cleaning,
    /// All is destaged: appends of records that are marked dirty are ending.
    Settling,
}

/// What moves a destage to another stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DestageEvent {
    /// The flushes of a destage outside a stop have ended.
    Flushed,
    /// The flushes of the destage of a stop have ended.
    FlushedForStop,
    /// The stop has decided that regions are cleaned.
    Decide,
    /// The cleaning of regions begins.
    Clean,
    /// The regions are clean.
    Settle,
    /// Something is dirty, and new flushes have begun.
    Repeat {
        /// Their number, one for each volume.
        flushes: u32,
    },
}

impl DestageStage {
    /// The stage after an event; `None` if the event is not possible in this stage.
    fn after(self, event: DestageEvent) -> Option<DestageStage> {
        Some(match (self, event) {
            (Self::Flushing { left: 0 }, DestageEvent::Flushed) => Self::Due,
            (Self::Flushing { left: 0 }, DestageEvent::FlushedForStop) => Self::Undecided,
            (Self::Undecided, DestageEvent::Decide) => Self::Due,
            (Self::Due, DestageEvent::Clean) => Self::Cleaning,
            (Self::Cleaning, DestageEvent::Settle) => Self::Settling,
            (Self::Settling, DestageEvent::Repeat { flushes }) => Self::Flushing { left: flushes },
            _ => return None,
        })
    }

    /// Whether a destage in this stage may end.
    fn may_end(self) -> bool {
        matches!(self, Self::Undecided | Self::Cleaning | Self::Settling)
    }
}

/// A destage of everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destage {
    purpose: DestagePurpose,
    stage: DestageStage,
    result: Destaged,
    /// Regions that were added because dirty records moved there.
    pub followed: u32,
    /// How often it was repeated.
    repeated: u32,
    /// The volumes of stores that have not answered, and that it leaves out.
    silent: VolumeSet,
    /// It ends although a cleaning waits for them.
    gives_up: bool,
}

impl Destage {
    /// A destage that waits for `flushes` flushes.
    pub fn new(purpose: DestagePurpose, flushes: u32) -> Destage {
        let stage = DestageStage::Flushing { left: flushes };
        let mut destage = Destage {
            purpose,
            stage,
            result: Ok(()),
            followed: 0,
            repeated: 0,
            silent: VolumeSet::EMPTY,
            gives_up: false,
        };
        destage.note_flushed();
        destage
    }

    pub fn purpose(&self) -> DestagePurpose {
        self.purpose
    }

    pub fn stage(&self) -> DestageStage {
        self.stage
    }

    pub fn result(&self) -> Destaged {
        self.result
    }

    /// How often it was repeated.
    pub fn repeated(&self) -> u32 {
        self.repeated
    }

    /// Whether the blocks in memory are on flash, so that regions are being cleaned.
    pub fn is_cleaning(&self) -> bool {
        matches!(self.stage, DestageStage::Cleaning | DestageStage::Settling)
    }

    /// Notes that some records stay dirty.
    pub fn fail(&mut self, error: IoError) {
        self.result = self.result.and(Err(error.into()));
    }

    /// Notes that cleanings may leave out the stores of these volumes, which do not answer; if they may already, it ends.
    pub fn fail_silent(&mut self, volumes: VolumeSet) {
        self.gives_up = (volumes & !self.silent).is_empty();
        self.silent |= volumes;
        self.result = self.result.and(Err(DestageError::Silent));
    }

    /// The volumes of stores that do not answer, and that it leaves out.
    pub fn silent(&self) -> VolumeSet {
        self.silent
    }

    /// Whether it ends although a cleaning waits for such stores.
    pub fn gives_up(&self) -> bool {
        self.gives_up
    }

    /// Called when a flush has ended.
    pub fn flush_ended(&mut self, outcome: Outcome) {
        let DestageStage::Flushing { left } = &mut self.stage else {
            panic!("a flush ends in the stage {:?} of a destage", self.stage);
        };
        *left -= 1;
        self.result = self.result.and(outcome.map_err(DestageError::Failed));
        self.note_flushed();
    }

    /// Notes that the stop has decided that regions are cleaned.
    pub fn decide(&mut self) {
        self.move_on(DestageEvent::Decide);
    }

    /// Begins the cleaning of regions.
    pub fn clean(&mut self) {
        self.move_on(DestageEvent::Clean);
    }

    /// Called when the regions are clean: the destage waits for appends.
    pub fn settle(&mut self) {
        self.move_on(DestageEvent::Settle);
    }

    /// Destages everything again: `flushes` flushes have begun.
    pub fn repeat(&mut self, flushes: u32) {
        self.repeated += 1;
        self.move_on(DestageEvent::Repeat { flushes });
        self.note_flushed();
    }

    /// Ends the destage; returns its purpose.
    pub fn end(self) -> DestagePurpose {
        assert!(self.stage.may_end(), "a destage ends in the stage {:?}", self.stage);
        self.purpose
    }

    /// Enters the next stage if no flush is left.
    fn note_flushed(&mut self) {
        if self.stage == (DestageStage::Flushing { left: 0 }) {
            self.move_on(match self.purpose {
                DestagePurpose::Service => DestageEvent::Flushed,
                DestagePurpose::Stop => DestageEvent::FlushedForStop,
            });
        }
    }

    fn move_on(&mut self, event: DestageEvent) {
        let Some(next) = self.stage.after(event) else {
            panic!("{event:?} is not possible in the stage {:?} of a destage", self.stage);
        };
        self.stage = next;
    }
}

#[cfg(test)]
mod tests {
    use core::fmt;
    use std::panic::catch_unwind;

    use super::*;

    const STAGES: [DestageStage; 5] = [
        DestageStage::Flushing { left: 0 },
        DestageStage::Undecided,
        DestageStage::Due,
        DestageStage::Cleaning,
        DestageStage::Settling,
    ];
    const EVENTS: [DestageEvent; 6] = [
        DestageEvent::Flushed,
        DestageEvent::FlushedForStop,
        DestageEvent::Decide,
        DestageEvent::Clean,
        DestageEvent::Settle,
        DestageEvent::Repeat { flushes: 0 },
    ];

    /// The name of a stage or an event, without its fields.
    fn name(of: impl fmt::Debug) -> String {
        format!("{of:?}").split(' ').next().unwrap_or_default().to_owned()
    }

    /// A destage in this stage.
    fn destage(stage: DestageStage) -> Destage {
        Destage { stage, ..Destage::new(DestagePurpose::Service, 1) }
    }

    /// Goal: the table in the module documentation is correct. Method: all pairs of stages and
    /// events.
    #[test]
    fn stages_follow_each_other_as_the_table_says() {
        let lines = include_str!("stage.rs").lines();
        let rows = lines.skip_while(|line| !line.starts_with("//! | stage |")).skip(2);
        let rows = rows.map_while(|line| line.strip_prefix("//! | ")?.strip_suffix(" |"));
        let mut table: Vec<Vec<&str>> =
            rows.map(|row| row.split(" | ").map(|cell| cell.trim_matches('`')).collect()).collect();
        for stage in STAGES {
            for event in EVENTS {
                if let Some(next) = stage.after(event) {
                    let row = [name(stage), name(event), name(next)];
                    let at = table.iter().position(|cells| *cells == row);
                    table.remove(at.unwrap_or_else(|| panic!("the table lacks {row:?}")));
                    let mut destage = destage(stage);
                    destage.move_on(event);
                    assert_eq!(destage.stage, next);
                } else {
                    let moved = catch_unwind(move || destage(stage).move_on(event));
                    assert!(moved.is_err(), "{event:?} in {stage:?}");
                }
            }
        }
        assert!(table.is_empty(), "not possible: {table:?}");
    }

    #[test]
    fn a_destage_goes_on_when_its_last_flush_has_ended_and_fails_if_one_has_failed() {
        for (purpose, next) in [
            (DestagePurpose::Service, DestageStage::Due),
            (DestagePurpose::Stop, DestageStage::Undecided),
        ] {
            assert_eq!(Destage::new(purpose, 0).stage, next, "no volume");
            let mut destage = Destage::new(purpose, 2);
            destage.flush_ended(Err(IoError::NoSpace));
            assert_eq!(destage.stage, DestageStage::Flushing { left: 1 });
            destage.flush_ended(Ok(()));
            assert_eq!((destage.stage, destage.result), (next, Err(IoError::NoSpace.into())));
            assert!(catch_unwind(move || destage.flush_ended(Ok(()))).is_err(), "one too many");
        }
    }

    #[test]
    fn a_destage_that_is_repeated_flushes_again_and_keeps_the_rest() {
        let mut settling = Destage { followed: 3, ..destage(DestageStage::Settling) };
        settling.repeat(2);
        assert_eq!(settling.stage, DestageStage::Flushing { left: 2 });
        assert_eq!((settling.followed, settling.repeated), (3, 1));
        let mut settling = destage(DestageStage::Settling);
        settling.repeat(0);
        assert_eq!(settling.stage, DestageStage::Due, "no volume");
    }

    #[test]
    fn a_destage_ends_only_where_nothing_of_it_is_in_progress() {
        for (stage, may) in STAGES.into_iter().zip([false, true, false, true, true]) {
            let ended = catch_unwind(move || destage(stage).end());
            assert_eq!(ended.is_ok(), may, "{stage:?}");
        }
    }

    #[test]
    fn regions_are_being_cleaned_until_all_has_settled() {
        for (stage, cleaning) in STAGES.into_iter().zip([false, false, false, true, true]) {
            assert_eq!(destage(stage).is_cleaning(), cleaning, "{stage:?}");
        }
    }
}
