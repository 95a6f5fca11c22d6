//! What a quiesce knows about each store, and which volumes it still holds after its end.
//!
//! A *note* says how Forebay left a store: its size, its fingerprint, and the times of its file. The store's header
//! and the flash tier record the note durably; the flash tier records it in a *seal*. A store that is noted is not
//! written, and others may use it, so what is cached of its volume counts only if the store is still as noted. A
//! volume is *held* if the quiesce ended without it: requests to it wait, while those to other volumes continue.
//!
//! | state | what the header says | what is cached of the volume |
//! | --- | --- | --- |
//! | `Open` | Forebay uses the store | is up to date |
//! | `Unnoted` | perhaps that the store is complete: its write has failed | is up to date, as the quiesce has failed |
//! | `Noted` | the store is complete | is up to date if the store is as noted |
//! | `Changed` | the store is complete | is out of date, and could not be dropped |
//! | `Dropped` | perhaps that the store is complete | is nothing |
//! | `HeldNoted` | the store is complete: its write has failed | is up to date if the store is as noted |
//! | `HeldChanged` | the store is complete | may be out of date, and could not be dropped |
//! | `HeldDropped` | the store is complete: its write has failed | is nothing |
//!
//! Each [`NoteEvent`] leads to another state:
//!
//! | state | event | next state |
//! | --- | --- | --- |
//! | `Open` | `Note` | `Noted` |
//! | `Open` | `FailNote` | `Unnoted` |
//! | `Unnoted` | `Note` | `Noted` |
//! | `Unnoted` | `FailNote` | `Unnoted` |
//! | `Unnoted` | `Rewrite` | `Unnoted` |
//! | `Unnoted` | `Drop` | `Dropped` |
//! | `Unnoted` | `Hold` | `HeldChanged` |
//! | `Unnoted` | `Withdraw` | `Open` |
//! | `Noted` | `Note` | `Noted` |
//! | `Noted` | `FailNote` | `Noted` |
//! | `Noted` | `Rewrite` | `Noted` |
//! | `Noted` | `Agree` | `Noted` |
//! | `Noted` | `Differ` | `Changed` |
//! | `Noted` | `Drop` | `Dropped` |
//! | `Noted` | `Hold` | `HeldNoted` |
//! | `Noted` | `Withdraw` | `Open` |
//! | `Changed` | `Agree` | `Noted` |
//! | `Changed` | `Differ` | `Changed` |
//! | `Changed` | `Drop` | `Dropped` |
//! | `Changed` | `Hold` | `HeldChanged` |
//! | `Dropped` | `Note` | `Noted` |
//! | `Dropped` | `FailNote` | `Dropped` |
//! | `Dropped` | `Rewrite` | `Dropped` |
//! | `Dropped` | `Drop` | `Dropped` |
//! | `Dropped` | `Hold` | `HeldDropped` |
//! | `Dropped` | `Withdraw` | `Open` |
//! | `HeldNoted` | `Rewrite` | `HeldNoted` |
//! | `HeldNoted` | `Agree` | `HeldNoted` |
//! | `HeldNoted` | `Differ` | `HeldChanged` |
//! | `HeldNoted` | `Hold` | `HeldNoted` |
//! | `HeldNoted` | `Withdraw` | `Open` |
//! | `HeldChanged` | `Agree` | `HeldNoted` |
//! | `HeldChanged` | `Differ` | `HeldChanged` |
//! | `HeldChanged` | `Drop` | `HeldDropped` |
//! | `HeldChanged` | `Hold` | `HeldChanged` |
//! | `HeldDropped` | `Rewrite` | `HeldDropped` |
//! | `HeldDropped` | `Hold` | `HeldDropped` |
//! | `HeldDropped` | `Withdraw` | `Open` |
//!
//! Any other event is a bug, and panics. In particular, clients of a volume never continue while what is cached of it
//! is out of date: `Changed` and `HeldChanged` lead to `Open` only through a state in which it is not. A store without
//! a note cannot be compared, so `HeldChanged` without a note refuses `Agree`.

use std::collections::BTreeMap;

use forebay_block::Volume;

use crate::fingerprint::StoreNote;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum VolumeNote {
    /// No quiesce has begun to note the store, or the last one has ended completely.
    #[default]
    Open,
    /// The store could not be noted.
    Unnoted,
    /// The store is noted.
    Noted(StoreNote),
    /// The store is not as noted, and what is cached of it could not be dropped.
    Changed(StoreNote),
    /// All that was cached has been dropped.
    Dropped,
    /// The volume is held, and its store has to be compared with the note.
    HeldNoted(StoreNote),
    /// The volume is held, and what is cached of it has to be dropped, unless its store is as noted.
    HeldChanged(Option<StoreNote>),
    /// The volume is held, and nothing of it is cached.
    HeldDropped,
}

/// What happens to the note of a volume's store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoteEvent {
    /// The store was noted.
    Note(StoreNote),
    /// The store could not be noted.
    FailNote,
    /// Forebay has rewritten the header, and its file has these times now.
    Rewrite(u64),
    /// A comparison has found the store as noted.
    Agree,
    /// A comparison has found that others have changed the store, or could not read it.
    Differ,
    /// All that was cached of the volume has been dropped durably.
    Drop,
    /// The quiesce ends without the volume, or an attempt to let its clients continue has failed.
    Hold,
    /// The header no longer notes anything, and clients continue.
    Withdraw,
}

impl VolumeNote {
    /// The state after an event; `None` if the event is not possible in this state.
    fn after(self, event: NoteEvent) -> Option<VolumeNote> {
        use NoteEvent as E;
        Some(match (self, event) {
            (Self::Open | Self::Unnoted | Self::Noted(_) | Self::Dropped, E::Note(note)) => {
                Self::Noted(note)
            }
            (Self::Open, E::FailNote) => Self::Unnoted,
            (Self::Unnoted | Self::Noted(_) | Self::Dropped, E::FailNote) => self,
            (Self::Unnoted | Self::Dropped | Self::HeldDropped, E::Rewrite(_)) => self,
            (Self::Noted(note), E::Rewrite(times)) => Self::Noted(StoreNote { times, ..note }),
            (Self::HeldNoted(note), E::Rewrite(times)) => {
                Self::HeldNoted(StoreNote { times, ..note })
            }
            (Self::Noted(note) | Self::Changed(note), E::Agree) => Self::Noted(note),
            (Self::Noted(note) | Self::Changed(note), E::Differ) => Self::Changed(note),
            (Self::HeldNoted(note) | Self::HeldChanged(Some(note)), E::Agree) => {
                Self::HeldNoted(note)
            }
            (Self::HeldNoted(note), E::Differ) => Self::HeldChanged(Some(note)),
            (Self::HeldChanged(_), E::Differ | E::Hold) => self,
            (Self::Unnoted | Self::Noted(_) | Self::Changed(_) | Self::Dropped, E::Drop) => {
                Self::Dropped
            }
            (Self::HeldChanged(_), E::Drop) => Self::HeldDropped,
            (Self::Unnoted, E::Hold) => Self::HeldChanged(None),
            (Self::Noted(note), E::Hold) => Self::HeldNoted(note),
            (Self::Changed(note), E::Hold) => Self::HeldChanged(Some(note)),
            (Self::Dropped, E::Hold) => Self::HeldDropped,
            (Self::HeldNoted(_) | Self::HeldDropped, E::Hold) => self,
            (
                Self::Unnoted
                | Self::Noted(_)
                | Self::Dropped
                | Self::HeldNoted(_)
                | Self::HeldDropped,
                E::Withdraw,
            ) => Self::Open,
            _ => return None,
        })
    }

    /// The note with which the store can be compared.
    pub fn note(&self) -> Option<&StoreNote> {
        match self {
            Self::Noted(note) | Self::Changed(note) | Self::HeldNoted(note) => Some(note),
            Self::HeldChanged(note) => note.as_ref(),
            Self::Open | Self::Unnoted | Self::Dropped | Self::HeldDropped => None,
        }
    }

    /// Whether what is cached of the volume counts only after a comparison.
    pub fn needs_comparison(&self) -> bool {
        matches!(
            self,
            Self::Noted(_) | Self::Changed(_) | Self::HeldNoted(_) | Self::HeldChanged(_)
        )
    }

    /// Whether the last comparison has found the store changed, and what is cached could not be dropped.
    pub fn is_changed(&self) -> bool {
        matches!(self, Self::Changed(_) | Self::HeldChanged(_))
    }

    fn is_held(&self) -> bool {
        matches!(self, Self::HeldNoted(_) | Self::HeldChanged(_) | Self::HeldDropped)
    }
}

/// The notes of all volumes.
#[derive(Debug, Default)]
pub(crate) struct VolumeNotes {
    /// The volumes that are not `Open`.
    states: BTreeMap<Volume, VolumeNote>,
    /// Why volumes are held.
    held: BTreeMap<Volume, String>,
}

impl VolumeNotes {
    /// Whether a quiesce has noted a store, or tried to, and has not ended completely.
    pub fn any(&self) -> bool {
        !self.states.is_empty()
    }

    /// The state of a volume.
    pub fn of(&self, volume: Volume) -> VolumeNote {
        self.states.get(&volume).copied().unwrap_or_default()
    }

    /// The volumes in states of which this is true.
    pub fn volumes(&self, is: impl Fn(&VolumeNote) -> bool) -> Vec<Volume> {
        self.states.iter().filter(|(_, state)| is(state)).map(|(&volume, _)| volume).collect()
    }

    /// The volumes that a quiesce still holds although it has ended, and why.
    pub fn held(&self) -> &BTreeMap<Volume, String> {
        &self.held
    }

    /// Something happened to the note of a volume's store.
    ///
    /// # Panics
    /// If that is not possible in its state, or changes whether the volume is held: see [`end`](VolumeNotes::end).
    #[track_caller]
    pub fn take(&mut self, volume: Volume, event: NoteEvent) {
        self.advance(volume, event);
        self.check();
    }

    /// A quiesce has ended, or an attempt to let the clients of held volumes continue. Volumes in `held` stay held, for
    /// these reasons; the clients of all others continue.
    ///
    /// # Panics
    /// If what is cached of one of the others is out of date.
    pub fn end(&mut self, held: BTreeMap<Volume, String>) {
        let volumes: Vec<Volume> = self.states.keys().copied().collect();
        for volume in volumes {
            let holds = held.contains_key(&volume);
            self.advance(volume, if holds { NoteEvent::Hold } else { NoteEvent::Withdraw });
        }
        self.held = held;
        self.check();
    }

    #[track_caller]
    fn advance(&mut self, volume: Volume, event: NoteEvent) {
        let state = self.of(volume);
        match state.after(event) {
            Some(VolumeNote::Open) => drop(self.states.remove(&volume)),
            Some(next) => drop(self.states.insert(volume, next)),
            None => panic!("{event:?} of volume {volume} is not possible in {state:?}"),
        }
    }

    /// Asserts that exactly the volumes in the states `Held...` are held.
    fn check(&self) {
        let held = self.volumes(VolumeNote::is_held);
        assert!(held.iter().eq(self.held.keys()), "{held:?} should be held");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_flash::Fingerprint;

    const NOTE: StoreNote = StoreNote { size: 1, fingerprint: Fingerprint::of_hash(2), times: 3 };
    const STATES: [VolumeNote; 8] = [
        VolumeNote::Open,
        VolumeNote::Unnoted,
        VolumeNote::Noted(NOTE),
        VolumeNote::Changed(NOTE),
        VolumeNote::Dropped,
        VolumeNote::HeldNoted(NOTE),
        VolumeNote::HeldChanged(Some(NOTE)),
        VolumeNote::HeldDropped,
    ];
    const EVENTS: [NoteEvent; 8] = [
        NoteEvent::Note(NOTE),
        NoteEvent::FailNote,
        NoteEvent::Rewrite(3),
        NoteEvent::Agree,
        NoteEvent::Differ,
        NoteEvent::Drop,
        NoteEvent::Hold,
        NoteEvent::Withdraw,
    ];

    /// Goal: the table of the module tells the truth. Method: all pairs of states and events.
    #[test]
    fn events_lead_where_the_table_says_and_are_refused_otherwise() {
        let name = |of: String| of.split('(').next().unwrap_or_default().to_owned();
        let lines = include_str!("notes.rs").lines();
        let rows = lines.skip_while(|line| !line.starts_with("//! | state | event |")).skip(2);
        let rows = rows.map_while(|line| line.strip_prefix("//! | ")?.strip_suffix(" |"));
        let mut table: Vec<Vec<&str>> =
            rows.map(|row| row.split(" | ").map(|cell| cell.trim_matches('`')).collect()).collect();
        for state in STATES {
            for event in EVENTS {
                let mut notes = VolumeNotes::default();
                notes.states.insert(Volume(1), state);
                let mut advance = move || {
                    notes.advance(Volume(1), event);
                    notes.of(Volume(1))
                };
                if let Some(next) = state.after(event) {
                    let row = [format!("{state:?}"), format!("{event:?}"), format!("{next:?}")];
                    let row = row.map(name);
                    let at = table.iter().position(|cells| *cells == row);
                    table.remove(at.unwrap_or_else(|| panic!("the table lacks {row:?}")));
                    assert_eq!(advance(), next);
                } else {
                    let advanced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(advance));
                    assert!(advanced.is_err(), "{event:?} in {state:?}");
                }
            }
        }
        assert!(table.is_empty(), "not possible: {table:?}");
    }

    #[test]
    fn clients_never_continue_while_what_is_cached_is_out_of_date() {
        for state in STATES.into_iter().filter(VolumeNote::is_changed) {
            assert_eq!(state.after(NoteEvent::Withdraw), None, "{state:?}");
            assert_eq!(state.after(NoteEvent::Note(NOTE)), None, "{state:?}: it covers that up");
        }
        assert_eq!(VolumeNote::HeldChanged(None).after(NoteEvent::Agree), None, "with what?");
    }

    #[test]
    fn a_header_that_forebay_rewrites_is_no_sign_of_others() {
        let rewritten = Some(StoreNote { times: 9, ..NOTE });
        for state in [VolumeNote::Noted(NOTE), VolumeNote::HeldNoted(NOTE)] {
            let next = state.after(NoteEvent::Rewrite(9)).unwrap();
            assert_eq!(next.note().copied(), rewritten);
        }
    }

    #[test]
    #[should_panic(expected = "Withdraw of volume 1 is not possible in Changed")]
    fn a_quiesce_does_not_end_for_a_volume_that_is_changed() {
        let mut notes = VolumeNotes::default();
        notes.take(Volume(1), NoteEvent::Note(NOTE));
        notes.take(Volume(1), NoteEvent::Differ);
        notes.end(BTreeMap::new());
    }

    #[test]
    #[should_panic(expected = "should be held")]
    fn a_volume_is_held_only_at_the_end_of_a_quiesce() {
        let mut notes = VolumeNotes::default();
        notes.take(Volume(1), NoteEvent::Note(NOTE));
        notes.take(Volume(1), NoteEvent::Hold);
    }
}
