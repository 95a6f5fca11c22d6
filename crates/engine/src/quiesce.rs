//! Lets others use the stores, and takes them back: quiesce and resume, and dropping cached data. `notes.rs` explains
//! the terms, and lists the states of a volume's note.
//!
//! Notes are taken when nothing is dirty and nothing modifies the stores. They are written to the stores' headers.
//! Then they are written to the flash tier, together with the times of files, which the headers have just changed.
//! Before a store may be written again, the notes are withdrawn: first the headers say *dirty*, then the tier drops
//! its seals. A start that finds a store that differs from its note (`Store::is_changed`) drops the tier's data for
//! it.
//!
//! If a header cannot be written at the end of a quiesce, it still says that the store is complete and unchanged.
//! Requests to its volume stay held, so that this remains true, and everything cached of the volume is dropped durably,
//! so that nothing is out of date whatever becomes of the store. The other volumes continue. The volume follows as
//! soon as its header is written, which needs no other change of the tier.
//!
//! If flash has failed, nothing can be dropped of a volume that still depends on it. Such a volume keeps its note, and
//! its store is compared with the note again before the volume follows. If others have changed the store, the volume
//! stays held until it passes through, when what memory has of it can be dropped.
//!
//! A store that hangs holds only its own volume, and a store that is slow loses nothing that is cached: each step ends
//! when a store has answered nothing for some time, not when the step has taken that long. A call that nobody waits for
//! any more may still change the header of its store, so its volume stays held until the call has ended.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::TryLockError;
use std::time::{Duration, Instant};

use forebay_block::{PerVolume, Volume};
use forebay_effect::IoError;
use forebay_flash::{SEAL_BYTES, Sealed};

use crate::backing_stores::LockedStores;
use crate::client_holds::{ClientHolds, HeldBack, Resumed};
use crate::core::Life;
use crate::engine::{Engine, StoreState};
use crate::error::{EngineError, HeldVolume};
use crate::faults::OrderNews;
use crate::fingerprint::StoreNote;
use crate::held_wait::{HELD_WAIT_MAX, HeldWait};
use crate::news::Rest;
use crate::notes::{NoteEvent, VolumeNote};
use crate::operate::Orders;
use crate::options::VolumeDescription;
use crate::patience::Patience;
use crate::shared::CoreGuard;
use crate::store_notes;

/// How long a quiesce and its end wait for a store that does not answer, while the clients of all volumes wait.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long they wait for a store that answers: many stores on one busy disk take minutes to read.
const READ_WAIT_MAX: Duration = Duration::from_secs(300);

/// How long they wait for a header to be written to a store that answers: the headers of many volumes may wait for each
/// other on one busy disk.
const HEADER_WAIT_MAX: Duration = Duration::from_secs(60);

/// The time between attempts to drop what is cached of volumes that are held, while clients continue.
const DROP_PERIOD: Duration = Duration::from_secs(300);

impl Engine {
    /// Destages all dirty data while requests continue, then holds new requests back, finishes
    /// those in flight and destages the rest. The stores are then complete until
    /// [`resume`](Engine::resume): their headers say so, including those in a copy made meanwhile,
    /// and the next start notices if others have written to them. The quiesce ends `limit` after all
    /// is destaged if [`end_overdue_quiesce`](Engine::end_overdue_quiesce) is called regularly.
    /// A `resume` before that ends it, too.
    ///
    /// # Errors
    /// As [`destage`](Engine::destage), if the state cannot be recorded, if no operation ends for 30 s while requests
    /// are held back, or if a stop or a resume is ordered meanwhile; requests then continue, except those to the
    /// volumes that the error or [`faults`](Engine::faults) name. But an earlier quiesce that this one was to extend
    /// continues ([`EngineError::NotExtended`]), unless the stop or the resume ends it.
    pub fn quiesce(
        &self,
        limit: Option<Duration>,
        mut progress: impl FnMut(u64),
    ) -> Result<(), EngineError> {
        // (A resume also counts while this waits for another order.)
        let resumes = self.shared.lock().holds().resumes();
        self.change_holds(ClientHolds::order_quiesce);
        let quiesced = self.quiesce_in_turn(limit, resumes, &mut progress);
        self.change_holds(ClientHolds::end_order_of_quiesce);
        quiesced
    }

    /// As [`quiesce`](Engine::quiesce), once other orders have ended. `resumes`: how many resumes were ordered before it.
    fn quiesce_in_turn(
        &self,
        limit: Option<Duration>,
        resumes: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), EngineError> {
        let mut orders = self.begin_order()?;
        let wait = HeldWait::endless(Life::Serving).until_resume(resumes);
        if !self.shared.lock().holds().held().is_empty() {
            // Stores that still have a note of the last quiesce need not take another.
            self.resume_during(&mut orders, &|| true)?;
            self.still_held().map_or(Ok(()), Err)?;
        }
        self.change_holds(ClientHolds::prepare_quiesce);
        // (A resume that was ordered before that did not wait, or does nothing when its turn comes. One that comes later
        // waits for the end of this order.)
        let quiesced = match self.waits(&wait) {
            true => self.quiesce_during(&mut orders, limit, wait, progress),
            false => Err(wait.error(&self.shared.lock(), self.volumes())),
        };
        self.change_holds(ClientHolds::forget_preparation);
        quiesced
    }

    fn quiesce_during(
        &self,
        orders: &mut Orders,
        limit: Option<Duration>,
        mut wait: HeldWait,
        mut progress: impl FnMut(u64),
    ) -> Result<(), EngineError> {
        let former = self.shared.lock().holds().quiesced();
        let extended = former.filter(|former| former.stands);
        let lasting = |error| if extended.is_some() { not_extended(error) } else { error };
        if self.shared.lock().holds().notes().any() {
            // The new notes must not cover up what others have changed since the last ones.
            self.drop_changed(orders, &|| self.shared.lock().life() == Life::Serving)
                .map_err(lasting)?;
        }
        let mut progress = |dirty| {
            progress(dirty);
            ControlFlow::Continue(())
        };
        if former.is_none() {
            self.destage_while(orders, &mut wait, &mut progress)?;
        }
        self.change_holds(|holds| {
            holds.begin_quiesce();
            holds.date_quiesce(wait.resumes());
        });
        wait = wait.limited(HELD_WAIT_MAX);
        let finished = self.finish_held(orders, &mut wait, &mut progress);
        let quiesced = finished.and_then(|()| self.note(&wait));
        // A resume that is about to let clients continue makes an answer of success untrue.
        let quiesced = match self.waits(&wait) {
            true => quiesced,
            false => Err(wait.error(&self.shared.lock(), self.volumes())),
        };
        // The limit holds even if the quiesce fails and cannot end now. (One beyond what the clock can say is none.)
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.change_holds(|holds| match extended {
            // The earlier quiesce keeps its limit, and a resume that was ordered before this still ends it.
            Some(former) if quiesced.is_err() => holds.date_quiesce(former.resumes),
            _ => {
                holds.limit_quiesce(until);
                holds.mark_quiesce(quiesced.is_ok());
            }
        });
        if quiesced.is_err() && extended.is_none() {
            // That clients have to wait is more serious than the error.
            self.resume_or_say(orders, &|| true)?;
            self.still_held().map_or(Ok(()), Err)?;
        }
        quiesced.map_err(lasting)
    }

    /// Notes that the stores are complete.
    fn note(&self, wait: &HeldWait) -> Result<(), EngineError> {
        // Until here, no header and no tier has a note of a quiesce that begins, and its end has nothing to take back.
        store_notes::end_stamping(self, wait.limited(SILENCE_MAX))?;
        let left =
            store_notes::note_stores(self, StoreState::Whole, &patience(&|| self.waits(wait)));
        let is_sealed = left.sealed.is_ok();
        self.change_holds(|holds| {
            if is_sealed {
                holds.take_note(&left.changed, NoteEvent::Drop);
            } else {
                // A new note would cover up what others have written.
                holds.take_note(&left.changed, NoteEvent::Differ);
            }
            for (volume, note) in left.notes.iter() {
                match note {
                    // A store without a new note keeps the former one, which shows what others have changed since.
                    None => holds.take_note(&[volume], NoteEvent::FailNote),
                    Some(_) if !is_sealed && left.changed.contains(&volume) => {}
                    // The new notes know the times of the headers that were written, so they count even if others
                    // failed.
                    Some(note) => holds.take_note(&[volume], NoteEvent::Note(*note)),
                }
            }
        });
        if is_sealed && !left.changed.is_empty() {
            let changed = self.volumes().iter().filter(|of| left.changed.contains(&of.volume));
            let volumes = changed.map(|of| of.name.clone()).collect();
            self.news().push(OrderNews::StoresChanged { volumes });
        }
        left.result().map_err(failed("the quiesce"))
    }

    /// Whether an order goes on.
    fn waits(&self, wait: &HeldWait) -> bool {
        !wait.is_called_off(&self.shared.lock())
    }

    /// Lets requests continue if a quiesce has exceeded its limit; true if so. Also lets requests continue to volumes
    /// that a quiesce still holds although it has ended, if their headers can be written now. Call it about once a
    /// second. It takes at most some seconds if a store does not answer, and some minutes if stores are slow to read.
    ///
    /// # Errors
    /// If the flash tier cannot be written; requests are then still held back. [`faults`](Engine::faults) names the
    /// volumes whose headers cannot be written.
    pub fn end_overdue_quiesce(&self) -> Result<bool, EngineError> {
        self.end_overdue_quiesce_while(|| true)
    }

    /// Like [`end_overdue_quiesce`](Engine::end_overdue_quiesce), but once `goes_on` is false, slow stores are waited
    /// for no longer than hung ones.
    ///
    /// # Errors
    /// As [`end_overdue_quiesce`](Engine::end_overdue_quiesce).
    pub fn end_overdue_quiesce_while(
        &self,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, EngineError> {
        let is_overdue = || {
            let core = self.shared.lock();
            let until = core.holds().quiesced().map(|quiesced| quiesced.until);
            core.life() == Life::Serving
                && match until {
                    Some(until) => until.is_some_and(|until| until <= Instant::now()),
                    None => !core.holds().held().is_empty(),
                }
        };
        if !is_overdue() {
            return Ok(false);
        }
        let mut orders = match self.orders.try_lock() {
            Ok(orders) => orders,
            Err(TryLockError::Poisoned(orders)) => orders.into_inner(),
            // An order is in progress. The next call comes soon.
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        // (An order may have extended it meanwhile.)
        if !is_overdue() {
            return Ok(false);
        }
        let quiesced = self.shared.lock().holds().quiesced().is_some();
        self.resume_or_say(&mut orders, &goes_on)?;
        Ok(quiesced)
    }

    /// Lets requests continue after a [`quiesce`](Engine::quiesce), and says whether there was one. If other programs
    /// have changed a store meanwhile, this first drops the cached data of its volume, and
    /// [`faults`](Engine::faults) says so. A quiesce that is still on its way, or waits for another order, ends with an
    /// error.
    ///
    /// # Errors
    /// If the flash tier cannot be written; requests are then still held back. If the headers of some stores cannot
    /// be written; then only requests to their volumes are.
    pub fn resume(&self) -> Result<Resumed, EngineError> {
        let mut core = self.shared.lock();
        let this = core.order_resume();
        let resumed = core.holds().resumed();
        if !core.holds().is_quiescing() && core.holds().held().is_empty() {
            // Nothing to end, so nothing to wait for.
            return Ok(resumed);
        }
        drop(core);
        let mut orders = self.begin_order()?;
        let quiesced = self.shared.lock().holds().quiesced();
        // A quiesce that was ordered later than this may have had its turn first.
        if quiesced.is_none_or(|quiesced| this > quiesced.resumes) {
            self.resume_or_say(&mut orders, &|| true)?;
        }
        self.still_held().map_or(Ok(resumed), Err)
    }

    /// The error that names the volumes that a quiesce still holds although it has ended, if there are any.
    pub(crate) fn still_held(&self) -> Option<EngineError> {
        let core = self.shared.lock();
        let held = |v: &VolumeDescription| {
            let why = core.holds().held().get(&v.volume)?.clone();
            Some(HeldVolume { volume: v.name.clone(), why })
        };
        let volumes: Vec<_> = self.volumes().iter().filter_map(held).collect();
        (!volumes.is_empty()).then_some(EngineError::VolumesHeld(volumes))
    }

    /// As [`resume`](Engine::resume); the error says that clients are still held back.
    fn resume_or_say(
        &self,
        orders: &mut Orders,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        let resumed = self.resume_during(orders, goes_on);
        if resumed.is_err() {
            self.change_holds(|holds| holds.mark_quiesce(false));
        }
        resumed.map_err(|error| EngineError::StillQuiesced(Box::new(error)))
    }

    /// As [`resume`](Engine::resume), as a part of an order. Holds back requests to the volumes whose headers cannot
    /// be written. Once `goes_on` is false, it waits no longer for slow stores than for hung ones.
    pub(crate) fn resume_during(
        &self,
        orders: &mut Orders,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        let core = self.shared.lock();
        let (life, holds) = (core.life(), core.holds());
        let (quiesced, noted) = (holds.quiesced().is_some(), holds.notes().any());
        drop(core);
        let goes_on = &|| goes_on() && life == Life::Serving && self.shared.lock().life() == life;
        let held = match noted {
            true if quiesced => {
                let changed = self.drop_or_hold(orders, goes_on)?;
                self.withdraw_notes(orders, changed, goes_on)?
            }
            // It had noted nothing yet.
            false if quiesced => BTreeMap::new(),
            _ => self.withdraw_held(orders, goes_on),
        };
        self.shared.with_core(|core, now| core.end_quiesce(now, held));
        Ok(())
    }

    /// Takes back the notes of volumes that a quiesce still holds although it has ended. Returns those for which that
    /// fails, and why. Nothing is cached of the others, or what is cached is as their stores are.
    fn withdraw_held(
        &self,
        orders: &mut Orders,
        goes_on: &dyn Fn() -> bool,
    ) -> BTreeMap<Volume, String> {
        let compared = self.drop_changed(orders, goes_on);
        let held = match compared {
            Ok(()) => BTreeMap::new(),
            Err(error) => self.held_as_changed(&error),
        };
        self.withdraw_from_headers(orders, held, goes_on)
    }

    /// At the end of a quiesce: as [`drop_changed`](Engine::drop_changed). If flash has failed, returns the volumes of
    /// which nothing can be dropped, and why. Only they stay held.
    fn drop_or_hold(
        &self,
        orders: &mut Orders,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<BTreeMap<Volume, String>, EngineError> {
        match self.drop_changed(orders, goes_on) {
            Ok(()) => Ok(BTreeMap::new()),
            Err(error) if self.shared.lock().cache().has_given_up() => {
                Ok(self.held_as_changed(&error))
            }
            Err(error) => Err(error),
        }
    }

    /// The volumes of which nothing could be dropped, with this reason.
    fn held_as_changed(&self, error: &EngineError) -> BTreeMap<Volume, String> {
        let changed = self.shared.lock().holds().notes().volumes(VolumeNote::is_changed);
        changed.into_iter().map(|volume| (volume, error.to_string())).collect()
    }

    /// Drops the cached data of volumes whose stores are not as they were noted. The data is clean. After the end of a
    /// quiesce, this concerns only volumes of which something could not be dropped. If this fails, nothing is dropped,
    /// and the volumes are [changed](VolumeNote::is_changed).
    fn drop_changed(
        &self,
        orders: &mut Orders,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), EngineError> {
        let core = self.shared.lock();
        let notes = core.holds().notes();
        let noted = notes.volumes(VolumeNote::needs_comparison);
        let note = |&volume: &Volume| (volume, notes.of(volume).note().copied());
        let former: BTreeMap<Volume, Option<StoreNote>> = noted.iter().map(note).collect();
        drop(core);
        let shared = self.shared.clone();
        let compared = self.stores.ask(&noted, &patience(goes_on), move |volume, store| {
            // The header of a volume that passes through may have been written meanwhile.
            let times = !shared.lock().cache().passes_through(volume);
            former[&volume].map_or(Ok(true), |note| store.differs(&note, times))
        });
        type Compared = Option<Result<bool, EngineError>>;
        let volumes = |is: fn(&Compared) -> bool| -> Vec<&VolumeDescription> {
            let is = |v: &&VolumeDescription| noted.contains(&v.volume) && is(&compared[v.volume]);
            self.volumes().iter().filter(is).collect()
        };
        // What cannot be read may have changed.
        let changed = volumes(|differs| !matches!(differs, Some(Ok(false))));
        let changed: Vec<Volume> = changed.into_iter().map(|v| v.volume).collect();
        let same: Vec<Volume> = noted.iter().copied().filter(|v| !changed.contains(v)).collect();
        self.change_holds(|holds| {
            holds.take_note(&same, NoteEvent::Agree);
            holds.take_note(&changed, NoteEvent::Differ);
        });
        if changed.is_empty() {
            return Ok(());
        }
        let what = "dropping cached data for stores that other programs may have changed";
        self.drop_all(orders, &changed).map_err(failed(what))?;
        self.change_holds(|holds| holds.take_note(&changed, NoteEvent::Drop));
        let names = |is: fn(&Compared) -> bool| -> Vec<String> {
            volumes(is).into_iter().map(|v| v.name.clone()).collect()
        };
        let news = [
            OrderNews::StoresChanged { volumes: names(|of| matches!(of, Some(Ok(true)))) },
            OrderNews::StoresUnread { volumes: names(|of| matches!(of, Some(Err(_)))) },
            OrderNews::StoresSilent { volumes: names(Option::is_none) },
        ];
        self.news().extend(news.into_iter().filter(|news| !news.volumes().is_empty()));
        Ok(())
    }

    /// Drops what is cached of these volumes, as a part of the end of a quiesce.
    fn drop_all(&self, orders: &mut Orders, volumes: &[Volume]) -> Result<(), EngineError> {
        let voids = || volumes.iter().map(|&volume| void(volume)).collect();
        let core = self.shared.lock();
        if core.holds().quiesced().is_some() {
            drop(core);
            return store_notes::seal(self, voids());
        }
        // Clients of other volumes continue, and wait only if this can succeed: flash has failed.
        if !volumes.iter().all(|&volume| core.cache().passes_through(volume)) {
            return Err(EngineError::FlashNote(IoError::Device));
        }
        // Each attempt may hold all clients back until it gives up.
        if orders.retry_drop_at.is_some_and(|at| Instant::now() < at) {
            return Err(EngineError::FlashNote(IoError::Device));
        }
        drop(core);
        let _held = HeldBack::new(&self.shared, orders);
        let mut wait = HeldWait::endless(Life::Serving).limited(HELD_WAIT_MAX);
        let finished = self.finish_held(orders, &mut wait, |_| ControlFlow::Continue(()));
        let dropped = finished.and_then(|()| store_notes::seal(self, voids()));
        orders.retry_drop_at = dropped.as_ref().err().map(|_| Instant::now() + DROP_PERIOD);
        dropped
    }

    /// Durably drops the cached data of these volumes, in memory and on flash: others have written
    /// or will write to their stores. Dirty data is destaged first. Requests wait meanwhile; after
    /// a [`quiesce`](Engine::quiesce) they stay held back.
    ///
    /// # Errors
    /// As [`destage`](Engine::destage), if the flash tier cannot be written, or if no operation ends for 30 s; then
    /// nothing was dropped.
    pub fn invalidate(&self, volumes: &[Volume]) -> Result<(), EngineError> {
        let wait = HeldWait::endless(Life::Serving).limited(HELD_WAIT_MAX);
        self.invalidate_held(volumes, wait, |_| ControlFlow::Continue(()))
    }

    /// Like [`invalidate`](Engine::invalidate), but before there are clients: waits without limit, and reports the
    /// number of dirty blocks, until `progress` abandons it with an error. Then nothing was dropped.
    pub(crate) fn invalidate_watched(
        &self,
        volumes: &[Volume],
        progress: impl FnMut(u64) -> ControlFlow<EngineError>,
    ) -> Result<(), EngineError> {
        self.invalidate_held(volumes, HeldWait::endless(Life::Serving), progress)
    }

    fn invalidate_held(
        &self,
        volumes: &[Volume],
        mut wait: HeldWait,
        progress: impl FnMut(u64) -> ControlFlow<EngineError>,
    ) -> Result<(), EngineError> {
        let volumes = volumes.iter().map(|&volume| void(volume)).collect();
        let mut orders = self.begin_order()?;
        let what = "dropping cached data";
        if self.shared.lock().holds().quiesced().is_some() {
            return store_notes::seal(self, volumes).map_err(failed(what));
        }
        let _held = HeldBack::new(&self.shared, &mut orders);
        self.finish_held(&mut orders, &mut wait, progress)?;
        store_notes::seal(self, volumes).map_err(failed(what))
    }

    /// Changes why requests are held back.
    fn change_holds(&self, change: impl FnOnce(&mut ClientHolds)) {
        self.shared.with_core(|core, now| core.change_holds(now, change));
    }

    /// Requests are held back: waits until none is in progress and nothing is dirty.
    fn finish_held(
        &self,
        orders: &mut Orders,
        wait: &mut HeldWait,
        mut progress: impl FnMut(u64) -> ControlFlow<EngineError>,
    ) -> Result<(), EngineError> {
        drop(self.wait_for_rest(Rest::Unused, wait)?);
        self.destage_while(orders, wait, &mut progress)
    }

    /// Destages as a part of an order, as long as it goes on.
    fn destage_while(
        &self,
        orders: &mut Orders,
        wait: &mut HeldWait,
        mut progress: impl FnMut(u64) -> ControlFlow<EngineError>,
    ) -> Result<(), EngineError> {
        self.destage_during(orders, "the destage", |dirty| {
            progress(dirty)?;
            let core = self.shared.lock();
            // A stop ends the destage itself, whose error says what is left.
            match wait.goes_on(&core) || core.life() != Life::Serving {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(wait.error(&core, self.volumes())),
            }
        })
    }

    /// Waits for rest, and returns the locked core.
    ///
    /// # Errors
    /// If there is none yet and the order does not go on.
    pub(crate) fn wait_for_rest(
        &self,
        rest: Rest,
        wait: &mut HeldWait,
    ) -> Result<CoreGuard<'_>, EngineError> {
        let core = self.shared.wait_for_rest(rest, |core| wait.goes_on(core));
        core.ok_or_else(|| wait.error(&self.shared.lock(), self.volumes()))
    }

    /// Which volumes bypass flash. A volume that begins to do so after the answer releases
    /// its store after what is written to `stores`, all of them, under these locks.
    pub(crate) fn pass_through(&self, stores: &LockedStores<'_>) -> PerVolume<bool> {
        let core = self.shared.lock();
        stores.volumes().map(|volume| core.cache().passes_through(volume)).collect()
    }

    /// The stores are about to be written again. Returns the volumes that stay held, and why: those in `changed`, and
    /// those whose headers cannot be written. What is cached of the latter is dropped, unless flash has failed.
    fn withdraw_notes(
        &self,
        orders: &Orders,
        changed: BTreeMap<Volume, String>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<BTreeMap<Volume, String>, EngineError> {
        let kept: Vec<Volume> = changed.keys().copied().collect();
        let held = self.withdraw_from_headers(orders, changed, goes_on);
        let open = |volume| Sealed { volume, seal: [0; SEAL_BYTES], distrust: false, stamp: None };
        let close = |volume| if held.contains_key(&volume) { void(volume) } else { open(volume) };
        let withdrawn = store_notes::seal(self, self.stores.volumes().map(close).collect());
        match withdrawn.map_err(failed("resuming clients")) {
            // (A changed volume is compared once more, so that operators learn that its store was changed.)
            Ok(()) => self.change_holds(|holds| {
                let dropped = held.keys().copied().filter(|volume| !kept.contains(volume));
                holds.take_note(&dropped.collect::<Vec<_>>(), NoteEvent::Drop);
            }),
            // A log that has failed forgets no note. If it has one, the next start finds the store changed, and
            // drops what is clean; nothing becomes dirty there any more. Nor does it note what no longer counts, so
            // that cannot be dropped: a write of a block that flash has would bypass its record.
            Err(_) if self.shared.lock().cache().has_given_up() => {}
            Err(error) => return Err(error),
        }
        Ok(held)
    }

    /// Takes back what the headers of noted stores say of how a quiesce left them, except for the volumes in `held`,
    /// which stay held for these reasons. Returns these, and the volumes whose headers cannot be written, and why.
    fn withdraw_from_headers(
        &self,
        orders: &Orders,
        mut held: BTreeMap<Volume, String>,
        goes_on: &dyn Fn() -> bool,
    ) -> BTreeMap<Volume, String> {
        let noted = self.shared.lock().holds().notes().volumes(|_| true);
        let volumes: Vec<Volume> = noted.into_iter().filter(|v| !held.contains_key(v)).collect();
        let (marks_dirty, shared) = (orders.marks_dirty, self.shared.clone());
        let patience = Patience { total: HEADER_WAIT_MAX, ..patience(goes_on) };
        let asked = self.stores.ask(&volumes, &patience, move |volume, store| {
            let passes_through = shared.lock().cache().passes_through(volume);
            let dirty = marks_dirty && !store.read_only && !passes_through;
            match store.withdraw_note(dirty) {
                // Nobody writes to this store, so its note stays true.
                Err(_) if store.read_only => {}
                withdrawn => withdrawn?,
            }
            store.times()
        });
        for (volume, answer) in asked.into_iter().enumerate() {
            let volume = Volume(volume as u32);
            match answer {
                // Should this be tried again, the file's new times are no sign of others.
                Some(Ok(times)) => {
                    self.change_holds(|holds| {
                        holds.take_note(&[volume], NoteEvent::Rewrite(times))
                    });
                }
                _ if !volumes.contains(&volume) => {}
                Some(Err(error)) => drop(held.insert(volume, error.to_string())),
                None => drop(held.insert(volume, "the store does not answer".to_owned())),
            }
        }
        held
    }
}

/// How long an order waits for answers of stores. A slow store is waited for as long as this `goes_on`.
pub(crate) fn patience(goes_on: &dyn Fn() -> bool) -> Patience<'_> {
    Patience { silence: SILENCE_MAX, total: READ_WAIT_MAX, goes_on }
}

/// The note that the cached data of a volume no longer counts.
fn void(volume: Volume) -> Sealed {
    Sealed { volume, seal: [0; SEAL_BYTES], distrust: true, stamp: None }
}

/// The error of a quiesce that was to extend an earlier one, which continues unless a stop or a resume ends it.
fn not_extended(error: EngineError) -> EngineError {
    match error {
        EngineError::Stopping | EngineError::QuiesceEnded => error,
        error => EngineError::NotExtended(Box::new(error)),
    }
}

/// The error of an order of which a part has failed.
fn failed(what: &'static str) -> impl Fn(EngineError) -> EngineError {
    move |error| match error {
        EngineError::Stopping => error,
        error => EngineError::Order { what, error: Box::new(error) },
    }
}
