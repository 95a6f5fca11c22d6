//! Why requests of clients are held back, and until when.
//!
//! Two orders hold requests: a quiesce, until a later order or a stop ends the quiesce, and an invalidation, only
//! while it runs. The end of an invalidation during a quiesce must not let clients continue, so each order removes
//! only its own reason. (A change of policy, and a destage that clients keep from ending, hold requests within the
//! machine.)
//!
//! The end of a quiesce keeps holding the requests to a volume whose header it could not write, until the header is
//! written and nothing cached of the volume can be out of date, or until a stop is announced. Until then the header
//! may say that the store is complete and unchanged, and a write would make that false.

use std::collections::BTreeMap;
use std::time::Instant;

use forebay_block::Volume;

use crate::notes::{NoteEvent, VolumeNotes};
use crate::operate::Orders;
use crate::shared::Shared;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ClientHolds {
    quiesce: Quiesce,
    invalidation: bool,
    /// What a quiesce knows of each store, and which volumes it still holds after its end.
    notes: VolumeNotes,
    /// How often operators have ordered to let clients continue.
    resumes: u64,
    /// The orders of quiesces that have not ended; some may wait for other orders.
    ordered: u32,
}

/// What a [`resume`](crate::Engine::resume) found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resumed {
    /// A quiesce. It has ended, unless another order extended it before this one had its turn.
    Ended,
    /// No quiesce: it had ended before, for example because it had reached its limit, or none had begun.
    Nothing,
}

/// How far a quiesce is.
#[derive(Clone, Copy, Default, Debug)]
enum Quiesce {
    #[default]
    No,
    /// All is destaged first, and nobody is held back yet.
    Preparing,
    Holding(HoldingQuiesce),
}

/// A quiesce that holds requests back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldingQuiesce {
    /// When it began to hold them back.
    pub since: Instant,
    /// When clients continue in any case.
    pub until: Option<Instant>,
    /// How many resumes had been ordered when the quiesce was, or its last extension: they do not end it.
    pub resumes: u64,
    /// Its order has succeeded, so a later order that fails to extend it does not end it.
    pub stands: bool,
}

impl ClientHolds {
    /// Whether anything holds requests back.
    #[inline]
    pub fn any(&self) -> bool {
        self.invalidation || matches!(self.quiesce, Quiesce::Holding(_))
    }

    /// Whether a quiesce is in progress; it may hold nobody back yet.
    pub fn is_quiescing(&self) -> bool {
        !matches!(self.quiesce, Quiesce::No)
    }

    /// What a resume finds that is ordered at this moment. (A quiesce that still holds volumes has not ended for them.)
    pub fn resumed(&self) -> Resumed {
        let quiesced = self.ordered > 0 || self.is_quiescing() || !self.held().is_empty();
        if quiesced { Resumed::Ended } else { Resumed::Nothing }
    }

    /// The quiesce that holds requests back.
    pub fn quiesced(&self) -> Option<HoldingQuiesce> {
        match self.quiesce {
            Quiesce::Holding(quiesced) => Some(quiesced),
            Quiesce::No | Quiesce::Preparing => None,
        }
    }

    /// A quiesce is ordered.
    pub fn order_quiesce(&mut self) {
        self.ordered += 1;
    }

    /// The order of a quiesce has ended.
    pub fn end_order_of_quiesce(&mut self) {
        self.ordered -= 1;
    }

    /// The order of a quiesce has its turn. A quiesce that already holds requests back continues to.
    pub fn prepare_quiesce(&mut self) {
        if !self.is_quiescing() {
            self.quiesce = Quiesce::Preparing;
        }
    }

    /// The order of a quiesce has ended: if it holds nobody back by now, it never will.
    pub fn forget_preparation(&mut self) {
        if self.quiesced().is_none() {
            self.quiesce = Quiesce::No;
        }
    }

    /// The quiesce holds requests back from now on, or still does.
    pub fn begin_quiesce(&mut self) {
        if self.quiesced().is_none() {
            let since = Instant::now();
            let (until, resumes, stands) = (None, 0, false);
            self.quiesce = Quiesce::Holding(HoldingQuiesce { since, until, resumes, stands });
        }
    }

    /// The first `resumes` resumes do not end the quiesce that holds requests back.
    pub fn date_quiesce(&mut self, resumes: u64) {
        if let Quiesce::Holding(quiesced) = &mut self.quiesce {
            quiesced.resumes = resumes;
        }
    }

    /// The quiesce, if it holds requests back, ends at that time in any case. An order that extends it does not make
    /// it end earlier.
    pub fn limit_quiesce(&mut self, until: Option<Instant>) {
        if let Quiesce::Holding(quiesced) = &mut self.quiesce {
            let later = quiesced.until.zip(until).map(|(former, until)| former.max(until));
            quiesced.until = if quiesced.stands { later } else { until };
        }
    }

    /// The order of the quiesce that holds requests back has succeeded, or its end has failed, which may have
    /// taken a part of its notes back.
    pub fn mark_quiesce(&mut self, stands: bool) {
        if let Quiesce::Holding(quiesced) = &mut self.quiesce {
            quiesced.stands = stands;
        }
    }

    /// The quiesce has ended, except for the volumes in `held`, for these reasons.
    ///
    /// # Panics
    /// As [`VolumeNotes::end`].
    pub fn end_quiesce(&mut self, held: BTreeMap<Volume, String>) {
        self.quiesce = Quiesce::No;
        self.notes.end(held);
    }

    /// Something happened to the notes of these volumes' stores.
    ///
    /// # Panics
    /// As [`VolumeNotes::take`].
    #[track_caller]
    pub fn take_note(&mut self, volumes: &[Volume], event: NoteEvent) {
        volumes.iter().for_each(|&volume| self.notes.take(volume, event));
    }

    /// What a quiesce knows of each store.
    pub fn notes(&self) -> &VolumeNotes {
        &self.notes
    }

    /// An operator orders to let clients continue. A quiesce that has begun, or waits for another order, and has not
    /// noted all stores yet, ends. Returns the number of resumes, including this one.
    pub fn order_resume(&mut self) -> u64 {
        self.resumes += 1;
        self.resumes
    }

    /// How often operators have ordered to let clients continue.
    pub fn resumes(&self) -> u64 {
        self.resumes
    }

    /// The volumes that a quiesce still holds although it has ended, and why.
    pub fn held(&self) -> &BTreeMap<Volume, String> {
        self.notes.held()
    }

    /// Whether a quiesce still holds requests to this volume although it has ended.
    #[inline]
    pub fn holds_volume(&self, volume: Volume) -> bool {
        !self.held().is_empty() && self.held().contains_key(&volume)
    }
}

/// Requests are held back for an invalidation until this is dropped, whatever happens meanwhile.
#[must_use]
pub(crate) struct HeldBack<'a>(&'a Shared);

impl HeldBack<'_> {
    /// Holds them back as a part of an order, so there is never a second one.
    pub fn new<'a>(shared: &'a Shared, _: &mut Orders) -> HeldBack<'a> {
        shared.with_core(|core, now| core.change_holds(now, |holds| holds.invalidation = true));
        HeldBack(shared)
    }
}

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        let mut core = self.0.lock_anyway();
        // (A core in which a thread has panicked is in an unknown state, and left alone.)
        if !self.0.is_broken() {
            core.change_holds(self.0.clock.now(), |holds| holds.invalidation = false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_one_order_holds_another_does_not_let_go() {
        let mut holds = ClientHolds::default();
        holds.prepare_quiesce();
        assert!(holds.is_quiescing() && !holds.any(), "it destages first");
        holds.begin_quiesce();
        holds.invalidation = true;
        holds.invalidation = false;
        assert!(holds.any(), "the quiesce still holds");
        holds.invalidation = true;
        holds.end_quiesce(BTreeMap::new());
        assert!(holds.any() && !holds.is_quiescing(), "the invalidation still holds");
        holds.invalidation = false;
        assert!(!holds.any());
    }

    #[test]
    fn a_second_quiesce_extends_the_first_and_its_failure_does_not_end_it() {
        let mut holds = ClientHolds::default();
        holds.prepare_quiesce();
        holds.begin_quiesce();
        let since = holds.quiesced().unwrap().since;
        holds.prepare_quiesce();
        assert!(holds.any(), "requests slip through");
        holds.begin_quiesce();
        let until = since + Duration::from_secs(9);
        holds.limit_quiesce(Some(until));
        holds.forget_preparation();
        let quiesced = holds.quiesced().unwrap();
        assert_eq!((quiesced.since, quiesced.until), (since, Some(until)));
        assert!(holds.any());
    }

    #[test]
    fn an_extension_keeps_the_later_limit() {
        let mut holds = ClientHolds::default();
        holds.prepare_quiesce();
        holds.begin_quiesce();
        let after = |seconds| Some(Instant::now() + Duration::from_secs(seconds));
        let (first, earlier, later) = (after(600), after(1), after(1200));
        holds.limit_quiesce(first);
        holds.mark_quiesce(true);
        for (until, expected) in [(earlier, first), (later, later), (None, None), (later, None)] {
            holds.limit_quiesce(until);
            assert_eq!(holds.quiesced().unwrap().until, expected);
        }
        // One that could not end is not extended.
        holds.mark_quiesce(false);
        holds.limit_quiesce(earlier);
        assert_eq!(holds.quiesced().unwrap().until, earlier);
    }

    #[test]
    fn a_resume_finds_a_quiesce_from_its_order_to_its_end() {
        let mut holds = ClientHolds::default();
        assert_eq!(holds.resumed(), Resumed::Nothing);
        holds.order_quiesce();
        assert_eq!(holds.resumed(), Resumed::Ended, "it waits for another order");
        holds.prepare_quiesce();
        holds.begin_quiesce();
        holds.end_order_of_quiesce();
        assert_eq!(holds.resumed(), Resumed::Ended);
        holds.take_note(&[Volume(1)], NoteEvent::FailNote);
        holds.end_quiesce(BTreeMap::from([(Volume(1), "no answer".to_owned())]));
        assert_eq!(holds.resumed(), Resumed::Ended, "clients of one volume still wait");
    }

    #[test]
    fn a_volume_whose_note_stands_is_held_alone_until_the_note_is_withdrawn() {
        let mut holds = ClientHolds::default();
        holds.prepare_quiesce();
        holds.begin_quiesce();
        holds.take_note(&[Volume(1)], NoteEvent::FailNote);
        holds.take_note(&[Volume(1)], NoteEvent::Drop);
        holds.end_quiesce(BTreeMap::from([(Volume(1), "no answer".to_owned())]));
        assert!(!holds.any() && !holds.is_quiescing());
        assert!(holds.holds_volume(Volume(1)) && !holds.holds_volume(Volume(0)));
        // Another quiesce that fails before it holds anybody changes nothing about that.
        holds.prepare_quiesce();
        holds.forget_preparation();
        assert!(holds.holds_volume(Volume(1)));
        holds.end_quiesce(BTreeMap::new());
        assert!(!holds.holds_volume(Volume(1)));
    }

    #[test]
    fn a_quiesce_knows_the_resumes_that_were_ordered_before_it() {
        let mut holds = ClientHolds::default();
        let earlier = holds.order_resume();
        let before = holds.resumes();
        let later = holds.order_resume();
        holds.date_quiesce(before);
        holds.begin_quiesce();
        assert_eq!(holds.quiesced().unwrap().resumes, 0, "only a quiesce that holds has a date");
        holds.date_quiesce(before);
        let dated = holds.quiesced().unwrap().resumes;
        assert!(earlier <= dated && dated < later);
    }

    #[test]
    fn a_quiesce_that_fails_before_it_holds_leaves_nothing() {
        let mut holds = ClientHolds::default();
        holds.prepare_quiesce();
        holds.limit_quiesce(Some(Instant::now()));
        holds.forget_preparation();
        assert!(!holds.any() && !holds.is_quiescing());
    }
}
