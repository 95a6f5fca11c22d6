//! Lets others use the stores, and takes them back: quiesce and resume, the fingerprints that a
//! stop records, and dropping cached data.
//!
//! Fingerprints are taken when nothing is dirty and nothing modifies the stores. They are written
//! to the stores' headers. Then they are written to the flash tier, together with the times of
//! files, which the headers have just changed. Before a store may be written again, the notes are
//! withdrawn: first the headers say *dirty*, then the tier drops its notes. A start that finds a
//! store that differs from its note (`Store::is_changed`) drops the tier's data for it.
//!
//! If a header cannot be written at the end of a quiesce, its note stands: the header says that the store is complete
//! and unchanged. Requests to its volume stay held, so that this remains true, and everything cached of the volume is
//! dropped durably, so that nothing is out of date whatever becomes of the store. The other volumes continue. The
//! volume follows as soon as its header is written, which needs no other change of the tier.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::TryLockError;
use std::thread::{Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

use forebay_block::{PerVolume, Volume};
use forebay_cache::{Notice, Order};
use forebay_effect::Outcome;
use forebay_flash::{Fingerprint, HeaderChange, SEAL_BYTES, Sealed};

use crate::backing_stores::LockedStores;
use crate::client_holds::{ClientHolds, HeldBack};
use crate::core::Life;
use crate::engine::{Engine, StoreState};
use crate::error::{EngineError, HeldVolume};
use crate::faults::OrderNews;
use crate::fingerprint::SealContents;
use crate::news::Rest;
use crate::operate::Orders;
use crate::options::VolumeDescription;
use crate::shared::CoreGuard;
use crate::store::Store;

/// How long the end of a quiesce waits for a store that does not answer, while the clients of all volumes wait.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

impl Engine {
    /// Destages all dirty data while requests continue, then holds new requests back, finishes
    /// those in flight and destages the rest. The stores are then complete until
    /// [`resume`](Engine::resume): their headers say so, including those in a copy made meanwhile,
    /// and the next start notices if others have written to them. The quiesce ends `limit` after all
    /// is destaged if [`end_overdue_quiesce`](Engine::end_overdue_quiesce) is called regularly.
    ///
    /// # Errors
    /// As [`destage`](Engine::destage), if the state cannot be recorded, or if a stop is announced
    /// meanwhile; requests then continue, except those to the volumes that the error or
    /// [`faults`](Engine::faults) name.
    pub fn quiesce(
        &self,
        limit: Option<Duration>,
        mut progress: impl FnMut(u64),
    ) -> Result<(), EngineError> {
        let mut orders = self.begin_order()?;
        if !self.shared.lock().holds().noted().is_empty() {
            // Stores that still have a note of the last quiesce need not take another.
            self.resume_during(&mut orders)?;
            self.still_held().map_or(Ok(()), Err)?;
        }
        self.change_holds(ClientHolds::prepare_quiesce);
        let quiesced = self.quiesce_during(&mut orders, limit, &mut progress);
        self.change_holds(ClientHolds::forget_preparation);
        quiesced
    }

    fn quiesce_during(
        &self,
        orders: &mut Orders,
        limit: Option<Duration>,
        mut progress: impl FnMut(u64),
    ) -> Result<(), EngineError> {
        let mut progress = |dirty| {
            progress(dirty);
            ControlFlow::Continue(())
        };
        let lasts = self.shared.lock().holds().quiesced().is_some();
        if orders.notes.is_some() {
            // The new notes must not cover up what others have changed since the last ones.
            self.drop_changed(orders)?;
        }
        if !lasts {
            self.destage_during(orders, "the destage", &mut progress)?;
        }
        self.change_holds(ClientHolds::begin_quiesce);
        let quiesced = self.finish_held(orders, &mut progress).and_then(|()| self.note(orders));
        // The limit holds even if the quiesce fails and cannot end now. (One beyond what the clock can say is none.)
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.change_holds(|holds| holds.limit_quiesce(until));
        if quiesced.is_err() {
            // That clients have to wait is more serious than the error.
            self.resume_or_say(orders)?;
            self.still_held().map_or(Ok(()), Err)?;
        }
        quiesced
    }

    /// Notes that the stores are complete.
    fn note(&self, orders: &mut Orders) -> Result<(), EngineError> {
        // Should it fail, some stores have a note already.
        orders.notes.get_or_insert_with(|| PerVolume::filled(None, self.volumes().len()));
        let noted = self.note_stores(StoreState::Whole).map_err(failed("the quiesce"))?;
        orders.notes = Some(noted);
        Ok(())
    }

    /// Lets requests continue if a quiesce has exceeded its limit; true if so. Also lets requests continue to volumes
    /// that a quiesce still holds although it has ended, if their headers can be written now. Call it about once a
    /// second; it takes at most some seconds, even if a store does not answer.
    ///
    /// # Errors
    /// If the flash tier cannot be written; requests are then still held back. [`faults`](Engine::faults) names the
    /// volumes whose headers cannot be written.
    pub fn end_overdue_quiesce(&self) -> Result<bool, EngineError> {
        let is_overdue = || {
            let core = self.shared.lock();
            let until = core.holds().quiesced().map(|quiesced| quiesced.until);
            core.life() == Life::Serving
                && match until {
                    Some(until) => until.is_some_and(|until| until <= Instant::now()),
                    None => !core.holds().noted().is_empty(),
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
        self.resume_or_say(&mut orders)?;
        Ok(quiesced)
    }

    /// Lets requests continue after a [`quiesce`](Engine::quiesce). If other programs have changed a
    /// store meanwhile, this first drops the cached data of its volume, and
    /// [`faults`](Engine::faults) says so.
    ///
    /// # Errors
    /// If the flash tier cannot be written; requests are then still held back. If the headers of some stores cannot
    /// be written; then only requests to their volumes are.
    pub fn resume(&self) -> Result<(), EngineError> {
        let core = self.shared.lock();
        if !core.holds().is_quiescing() && core.holds().noted().is_empty() {
            // Nothing to end, so nothing to wait for.
            return Ok(());
        }
        drop(core);
        let mut orders = self.begin_order()?;
        self.resume_or_say(&mut orders)?;
        self.still_held().map_or(Ok(()), Err)
    }

    /// The error that names the volumes that a quiesce still holds although it has ended, if there are any.
    pub(crate) fn still_held(&self) -> Option<EngineError> {
        let core = self.shared.lock();
        let noted = core.holds().noted();
        let held = |v: &VolumeDescription| {
            let why = noted.get(&v.volume)?.clone();
            Some(HeldVolume { volume: v.name.clone(), why })
        };
        let volumes: Vec<_> = self.volumes().iter().filter_map(held).collect();
        (!volumes.is_empty()).then_some(EngineError::VolumesHeld(volumes))
    }

    /// As [`resume`](Engine::resume); the error says that clients are still held back.
    fn resume_or_say(&self, orders: &mut Orders) -> Result<(), EngineError> {
        let resumed = self.resume_during(orders);
        resumed.map_err(|error| EngineError::StillQuiesced(Box::new(error)))
    }

    /// As [`resume`](Engine::resume), as a part of an order. Holds back requests to the volumes whose headers cannot
    /// be written.
    pub(crate) fn resume_during(&self, orders: &mut Orders) -> Result<(), EngineError> {
        let noted = match orders.notes {
            Some(_) => {
                self.drop_changed(orders)?;
                self.withdraw_notes(orders)?
            }
            // What is cached of these volumes is void, and the tier has no note of them.
            None => {
                let noted = self.shared.lock().holds().noted().keys().copied().collect::<Vec<_>>();
                self.withdraw_from_headers(orders, &noted)
            }
        };
        orders.notes = None;
        self.shared.with_core(|core, now| core.end_quiesce(now, noted));
        Ok(())
    }

    /// Drops the cached data of volumes whose stores are not as they were noted. It is clean.
    fn drop_changed(&self, orders: &mut Orders) -> Result<(), EngineError> {
        let Some(notes) = &mut orders.notes else { return Ok(()) };
        let (former, shared) = (notes.clone(), self.shared.clone());
        let noted: Vec<Volume> = notes.volumes().filter(|&v| notes[v].is_some()).collect();
        let compared = self.stores.ask(&noted, ANSWER_WAIT_MAX, move |volume, store| {
            // The header of a volume that passes through may have been written meanwhile.
            let times = !shared.lock().cache().passes_through(volume);
            former[volume].map_or(Ok(false), |note| store.differs(&note, times))
        });
        let volumes = |is: fn(Option<&Result<bool, EngineError>>) -> bool| -> Vec<_> {
            let is = |v: &&VolumeDescription| {
                noted.contains(&v.volume) && is(compared[v.volume].as_ref())
            };
            self.volumes().iter().filter(is).collect()
        };
        // What cannot be read may have changed.
        let dropped = volumes(|differs| !matches!(differs, Some(Ok(false))));
        if dropped.is_empty() {
            return Ok(());
        }
        let what = "dropping cached data for stores that other programs may have changed";
        self.seal(dropped.iter().map(|v| void(v.volume)).collect()).map_err(failed(what))?;
        // Until clients continue, nothing of them is cached that could be out of date.
        dropped.iter().for_each(|v| notes[v.volume] = None);
        let names = |is: fn(Option<&Result<bool, EngineError>>) -> bool| -> Vec<String> {
            volumes(is).into_iter().map(|v| v.name.clone()).collect()
        };
        let changed = names(|differs| matches!(differs, Some(Ok(true))));
        let unread = names(|differs| !matches!(differs, Some(Ok(_))));
        let news = [
            OrderNews::StoresChanged { volumes: changed },
            OrderNews::StoresUnread { volumes: unread },
        ];
        self.news().extend(news.into_iter().filter(|news| !news.volumes().is_empty()));
        Ok(())
    }

    /// Durably drops the cached data of these volumes, in memory and on flash: others have written
    /// or will write to their stores. Dirty data is destaged first. Requests wait meanwhile; after
    /// a [`quiesce`](Engine::quiesce) they stay held back.
    ///
    /// # Errors
    /// As [`destage`](Engine::destage), or if the flash tier cannot be written; then nothing was
    /// dropped.
    pub fn invalidate(&self, volumes: &[Volume]) -> Result<(), EngineError> {
        self.invalidate_watched(volumes, |_| ControlFlow::Continue(()))
    }

    /// Like [`invalidate`](Engine::invalidate), and reports the number of dirty blocks, until
    /// `progress` abandons it with an error. Then nothing was dropped.
    pub(crate) fn invalidate_watched(
        &self,
        volumes: &[Volume],
        progress: impl FnMut(u64) -> ControlFlow<EngineError>,
    ) -> Result<(), EngineError> {
        let volumes = volumes.iter().map(|&volume| void(volume)).collect();
        let mut orders = self.begin_order()?;
        let what = "dropping cached data";
        if self.shared.lock().holds().quiesced().is_some() {
            return self.seal(volumes).map_err(failed(what));
        }
        let _held = HeldBack::new(&self.shared, &mut orders);
        self.finish_held(&mut orders, progress)?;
        self.seal(volumes).map_err(failed(what))
    }

    /// Changes why requests are held back.
    fn change_holds(&self, change: impl FnOnce(&mut ClientHolds)) {
        self.shared.with_core(|core, now| core.change_holds(now, change));
    }

    /// Requests are held back: waits until none is in progress and nothing is dirty.
    fn finish_held(
        &self,
        orders: &mut Orders,
        mut progress: impl FnMut(u64) -> ControlFlow<EngineError>,
    ) -> Result<(), EngineError> {
        self.wait_for_rest(Rest::Unused, Life::Serving)?;
        self.destage_during(orders, "the destage", &mut progress)
    }

    /// Records how the stores are left; nothing is in progress. Returns the notes, by volume. If that fails for some
    /// stores, the others have their notes nevertheless.
    pub(crate) fn note_stores(
        &self,
        left: StoreState,
    ) -> Result<PerVolume<Option<SealContents>>, EngineError> {
        self.end_stamping()?;
        let stamp = self.shared.lock().cache().stamp_now(left != StoreState::Dirty);
        let mut stores = self.stores.lock_all();
        let passes_through = self.pass_through(&stores);
        let prints = self.fingerprints(&stores);
        let mut sealed = Vec::new();
        let mut notes = PerVolume::EMPTY;
        let (mut failed, mut others) = (None, Vec::new());
        for ((volume, store), print) in stores.iter_mut().zip(prints) {
            let data_bytes = store.size_bytes;
            let leave = |print: Option<Fingerprint>| HeaderChange::Leave {
                whole: left != StoreState::Dirty,
                // What flash holds of a volume that passes through is void, whatever becomes of flash.
                released: left == StoreState::Released || passes_through[volume],
                // Without flash, no later run has anything cached that could be out of date.
                fingerprint: print.filter(|_| self.has_flash),
                data_bytes,
                stamp,
            };
            let left_so = print.and_then(|print| store.leave(&leave(print), print));
            let note = left_so.unwrap_or_else(|error| {
                match failed {
                    None => failed = Some(error),
                    Some(_) => others.push(store.name.clone()),
                }
                None
            });
            notes.push(note);
            if let Some(note) = note {
                let seal = note.seal();
                let stamp = store.keeps_stamps().then(|| store.stamp_number());
                let distrust = left == StoreState::Released;
                sealed.push(Sealed { volume, seal, distrust, stamp });
            }
        }
        drop(stores);
        if self.has_flash {
            self.seal(sealed)?;
        }
        match failed {
            None => Ok(notes),
            Some(error) if others.is_empty() => Err(error),
            Some(error) => Err(EngineError::SeveralStores { error: Box::new(error), others }),
        }
    }

    /// The fingerprints of all stores, if something cached could be out of date later: on flash, or
    /// in memory after a quiesce.
    fn fingerprints(
        &self,
        stores: &LockedStores<'_>,
    ) -> PerVolume<Result<Option<Fingerprint>, EngineError>> {
        let quiesces = self.shared.lock().holds().quiesced().is_some();
        match self.has_flash || quiesces {
            true => fingerprints(stores).into_iter().map(|print| print.map(Some)).collect(),
            false => stores.volumes().map(|_| Ok(None)).collect(),
        }
    }

    /// From now on no stamps are written until requests continue. Data that was destaged but not
    /// stamped yet is stamped now: else the cleaner would order a stamp after the note. (If this
    /// fails, the note will fail too.)
    fn end_stamping(&self) -> Result<(), EngineError> {
        let mut core = self.shared.lock();
        core.end_stamps();
        let life = core.life();
        for _ in 0..2 {
            if core.cache().owes_stamps() && !core.cache().is_stamping() {
                core.order(self.shared.clock.now(), Order::Stamp);
            }
            drop(core);
            core = self.wait_for_rest(Rest::Unstamped, life)?;
        }
        Ok(())
    }

    /// Waits for rest, and returns the locked core.
    ///
    /// # Errors
    /// If there is none yet and the engine is no longer at this point of its `life`: a stop does not wait for orders.
    fn wait_for_rest(&self, rest: Rest, life: Life) -> Result<CoreGuard<'_>, EngineError> {
        let core = self.shared.wait_for_rest(rest, |core| core.life() == life);
        core.ok_or(EngineError::Stopping)
    }

    /// Which volumes bypass flash. A volume that begins to do so after the answer releases
    /// its store after what is written to `stores`, all of them, under these locks.
    pub(crate) fn pass_through(&self, stores: &LockedStores<'_>) -> PerVolume<bool> {
        let core = self.shared.lock();
        stores.volumes().map(|volume| core.cache().passes_through(volume)).collect()
    }

    /// The stores are about to be written again. Returns the volumes whose headers cannot be written, and why; what
    /// is cached of them is dropped.
    fn withdraw_notes(&self, orders: &mut Orders) -> Result<BTreeMap<Volume, String>, EngineError> {
        let all: Vec<Volume> = self.stores.volumes().collect();
        let noted = self.withdraw_from_headers(orders, &all);
        let open = |volume| Sealed { volume, seal: [0; SEAL_BYTES], distrust: false, stamp: None };
        let close = |volume| if noted.contains_key(&volume) { void(volume) } else { open(volume) };
        let withdrawn = self.seal(all.into_iter().map(close).collect());
        // A log that has failed forgets no note. If it has one, the next start finds the store changed, and
        // drops what is clean; nothing becomes dirty there any more.
        if let Err(error) = withdrawn.map_err(failed("resuming clients"))
            && !self.shared.lock().cache().has_given_up()
        {
            return Err(error);
        }
        Ok(noted)
    }

    /// Takes back what the headers of these volumes say of how a quiesce left their stores. Returns the volumes
    /// whose headers cannot be written, and why.
    fn withdraw_from_headers(
        &self,
        orders: &mut Orders,
        volumes: &[Volume],
    ) -> BTreeMap<Volume, String> {
        let (marks_dirty, shared) = (orders.marks_dirty, self.shared.clone());
        let asked = self.stores.ask(volumes, ANSWER_WAIT_MAX, move |volume, store| {
            let passes_through = shared.lock().cache().passes_through(volume);
            let dirty = marks_dirty && !store.read_only && !passes_through;
            match store.withdraw_note(dirty) {
                // Nobody writes to this store, so its note stays true.
                Err(_) if store.read_only => {}
                withdrawn => withdrawn?,
            }
            store.times()
        });
        let mut noted = BTreeMap::new();
        for (volume, answer) in asked.into_iter().enumerate() {
            let volume = Volume(volume as u32);
            match answer {
                Some(Ok(times)) => {
                    // Should this be tried again, the file's new times are no sign of others.
                    let note = orders.notes.as_mut().and_then(|notes| notes[volume].as_mut());
                    note.into_iter().for_each(|note| note.times = times);
                }
                _ if !volumes.contains(&volume) => {}
                Some(Err(error)) => drop(noted.insert(volume, error.to_string())),
                None => drop(noted.insert(volume, "the store does not answer".to_owned())),
            }
        }
        noted
    }

    /// Lets the machine take a note, once it is quiet.
    fn seal(&self, volumes: Vec<Sealed>) -> Result<(), EngineError> {
        let life = self.shared.lock().life();
        let mut core = self.wait_for_rest(Rest::Quiet, life)?;
        core.order(self.shared.clock.now(), Order::Seal(volumes));
        drop(core);
        let sealed: Outcome = self.shared.wait_for(|notice| match notice {
            Notice::Sealed(result) => Some(*result),
            _ => None,
        });
        sealed.map_err(EngineError::FlashNote)
    }
}

/// The fingerprints of all stores, taken in parallel.
fn fingerprints(stores: &LockedStores<'_>) -> PerVolume<Result<Fingerprint, EngineError>> {
    for_each_store(stores, |_, store| Ok(store.contents(store.size_bytes)?.print))
}

/// Calls `what` for each store, with its number, in parallel.
fn for_each_store<T: Send>(
    stores: &LockedStores<'_>,
    what: impl Fn(Volume, &Store) -> T + Sync,
) -> PerVolume<T> {
    let what = &what;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (stores.iter().map(|(volume, store)| (volume, &**store)))
            .map(|(volume, store)| {
                let thread = Builder::new();
                // Where no more threads may be started, this one does it, below.
                let thread = thread.spawn_scoped(scope, move || what(volume, store)).ok();
                (volume, store, thread)
            })
            .collect();
        let result = |(volume, store, thread): (_, _, Option<ScopedJoinHandle<'_, T>>)| match thread
        {
            Some(thread) => thread.join().expect("reading does not panic"),
            None => what(volume, store),
        };
        threads.into_iter().map(result).collect()
    })
}

/// The note that the cached data of a volume no longer counts.
fn void(volume: Volume) -> Sealed {
    Sealed { volume, seal: [0; SEAL_BYTES], distrust: true, stamp: None }
}

/// The error of an order of which a part has failed.
fn failed(what: &'static str) -> impl Fn(EngineError) -> EngineError {
    move |error| match error {
        EngineError::Stopping => error,
        error => EngineError::Order { what, error: Box::new(error) },
    }
}
