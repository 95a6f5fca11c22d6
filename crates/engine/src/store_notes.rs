//! The notes of how an order leaves the stores: in their headers, and on flash.

use forebay_block::{PerVolume, Volume};
use forebay_cache::{Notice, Order};
use forebay_effect::Outcome;
use forebay_flash::{HeaderChange, Sealed};

use crate::engine::{Engine, StoreState};
use crate::error::EngineError;
use crate::fingerprint::StoreNote;
use crate::held_wait::{HELD_WAIT_MAX, HeldWait};
use crate::news::Rest;
use crate::options::VolumeDescription;
use crate::patience::Patience;

/// How an order has left the stores.
#[derive(Debug)]
pub(crate) struct LeftStores {
    /// By volume; none for a store that could not be noted.
    pub notes: PerVolume<Option<StoreNote>>,
    /// The volumes whose stores are not as an earlier note says. The flash tier drops what is cached of them with the
    /// seal, so that the new notes cannot cover up what others have written.
    pub changed: Vec<Volume>,
    /// Whether the flash tier has recorded the notes.
    pub sealed: Result<(), EngineError>,
    /// Whether all stores have been noted.
    pub noted: Result<(), EngineError>,
}

impl LeftStores {
    /// Whether the stores were left as intended.
    pub fn result(self) -> Result<(), EngineError> {
        self.sealed.and(self.noted)
    }
}

/// Records how the stores are left; nothing is in progress, and no stamps are written. If that fails for
/// some stores, the others have their notes nevertheless.
pub(crate) fn note_stores(
    engine: &Engine,
    left: StoreState,
    patience: &Patience<'_>,
) -> LeftStores {
    let core = engine.shared.lock();
    let stamp = core.cache().stamp_now(left != StoreState::Dirty);
    // Something cached could be out of date later: on flash, or in memory after a quiesce.
    let needs_notes = engine.has_flash || core.holds().quiesced().is_some();
    let former = |of: &VolumeDescription| core.holds().notes().of(of.volume).note().copied();
    let former: Vec<Option<StoreNote>> = engine.volumes().iter().map(former).collect();
    drop(core);
    let (shared, has_flash) = (engine.shared.clone(), engine.has_flash);
    let all: Vec<Volume> = engine.stores.volumes().collect();
    let left_so = engine.stores.ask(&all, patience, move |volume, store| {
        let contents = needs_notes.then(|| store.contents(store.size_bytes)).transpose()?;
        let fingerprint = contents.map(|contents| contents.fingerprint);
        // (A volume that begins to pass through after the answer releases its store after what is written here,
        // under the lock of the store.)
        let passes_through = shared.lock().cache().passes_through(volume);
        let change = HeaderChange::Leave {
            whole: left != StoreState::Dirty,
            // What flash holds of a volume that passes through is void, whatever becomes of flash.
            released: left == StoreState::Released || passes_through,
            // Without flash, no later run has anything cached that could be out of date.
            fingerprint: fingerprint.filter(|_| has_flash),
            data_bytes: store.size_bytes,
            stamp,
        };
        let note = store.leave(&change, fingerprint)?;
        Ok((note, store.keeps_stamps().then(|| store.stamp_number())))
    });
    let (mut sealed, mut notes, mut changed) = (Vec::new(), PerVolume::EMPTY, Vec::new());
    let (mut failed, mut others) = (None, Vec::new());
    for ((left_so, of), former) in left_so.into_iter().zip(engine.volumes()).zip(former) {
        let silent = || EngineError::NoAnswer {
            volumes: vec![of.name.clone()],
            seconds: patience.silence.as_secs(),
        };
        let (note, stamp) = left_so.unwrap_or_else(|| Err(silent())).unwrap_or_else(|error| {
            match failed {
                None => failed = Some(error),
                Some(_) => others.push(of.name.clone()),
            }
            (None, None)
        });
        notes.push(note);
        if let Some(note) = note {
            let (volume, seal) = (of.volume, note.seal());
            let is_changed = former.is_some_and(|former| !former.has_contents_of(&note));
            changed.extend(is_changed.then_some(volume));
            let distrust = left == StoreState::Released || is_changed;
            sealed.push(Sealed { volume, seal, distrust, stamp });
        }
    }
    // (Without flash, this drops what memory has.)
    let seals = engine.has_flash || !changed.is_empty();
    let sealed = if seals { seal(engine, sealed) } else { Ok(()) };
    let noted = match failed {
        None => Ok(()),
        Some(error) if others.is_empty() => Err(error),
        Some(error) => Err(EngineError::SeveralStores { error: Box::new(error), others }),
    };
    LeftStores { notes, changed, sealed, noted }
}

/// From now on no stamps are written until requests continue. Data that was destaged but not
/// stamped yet is stamped now: else the cleaner would order a stamp after the note. (If this
/// fails, the note will fail too.)
pub(crate) fn end_stamping(engine: &Engine, mut wait: HeldWait) -> Result<(), EngineError> {
    let mut core = engine.shared.lock();
    core.end_stamps();
    for _ in 0..2 {
        if core.cache().owes_stamps() && !core.cache().is_stamping() {
            core.order(engine.shared.clock.now(), Order::Stamp);
        }
        drop(core);
        core = engine.wait_for_rest(Rest::Unstamped, &mut wait)?;
    }
    Ok(())
}

/// Lets the machine take a note, once it is quiet.
pub(crate) fn seal(engine: &Engine, volumes: Vec<Sealed>) -> Result<(), EngineError> {
    let mut wait = HeldWait::endless(engine.shared.lock().life()).limited(HELD_WAIT_MAX);
    let mut core = engine.wait_for_rest(Rest::Quiet, &mut wait)?;
    core.order(engine.shared.clock.now(), Order::Seal(volumes));
    drop(core);
    let sealed: Outcome = engine.shared.wait_for(|notice| match notice {
        Notice::Sealed(result) => Some(*result),
        _ => None,
    });
    sealed.map_err(EngineError::FlashNote)
}
