//! Lets others use the stores, and takes them back: quiesce and resume, the fingerprints that a
//! stop records, and dropping cached data.
//!
//! Fingerprints are taken when nothing is dirty and nothing modifies the stores. They are written
//! to the stores' headers. Then they are written to the flash tier, together with the times of
//! files, which the headers have just changed. Before a store may be written again, the notes are
//! withdrawn: first the headers say *dirty*, then the tier drops its notes. A start that finds a
//! store that differs from its note (`Store::is_changed`) drops the tier's data for it.

use std::ops::ControlFlow;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use forebay_block::Volume;
use forebay_cache::Notice as MachineNotice;
use forebay_effect::Outcome;
use forebay_flash::{SEAL_BYTES, Sealed};

use crate::core::Life;
use crate::engine::{Engine, StoreState};
use crate::error::EngineError;
use crate::fingerprint::{self, Fingerprint};
use crate::operate::{Orders, Quiesced};
use crate::store::Store;

/// Time between two checks whether the machine is quiet.
const QUIET_POLL_PERIOD: Duration = Duration::from_millis(2);

impl Engine {
    /// Destages all dirty data while requests continue, then holds new requests back, finishes
    /// those in flight and destages the rest. The stores are then complete until
    /// [`resume`](Engine::resume): their headers say so, including those in a copy made meanwhile,
    /// and the next start notices if others have written to them. The quiesce ends `limit` after all
    /// is destaged if [`end_overdue_quiesce`](Engine::end_overdue_quiesce) is called regularly.
    ///
    /// # Errors
    /// As [`destage`](Engine::destage), if the state cannot be recorded, or if a stop is announced
    /// meanwhile; requests then continue.
    pub fn quiesce(
        &self,
        limit: Option<Duration>,
        mut progress: impl FnMut(u64),
    ) -> Result<(), EngineError> {
        let mut orders = self.begin_order()?;
        if orders.quiesced.is_none() {
            self.destage_all(&mut orders, &mut progress)?;
        }
        let held = self.hold_all(&mut orders, progress).and_then(|()| {
            let since = orders.quiesced.map_or_else(Instant::now, |quiesced| quiesced.since);
            let until = limit.map(|limit| Instant::now() + limit);
            orders.quiesced = Some(Quiesced { since, until });
            self.note_stores("the quiesce", StoreState::Whole)
        });
        if held.is_err() {
            // What keeps clients waiting is the greater trouble.
            self.resume_or_say(&mut orders)?;
        }
        held
    }

    /// Lets requests continue if a quiesce has exceeded its limit; true if so.
    ///
    /// # Errors
    /// As [`resume`](Engine::resume).
    pub fn end_overdue_quiesce(&self) -> Result<bool, EngineError> {
        // An order that is being carried out will end; then is time enough.
        let Ok(mut orders) = self.orders.try_lock() else { return Ok(false) };
        let until = orders.quiesced.and_then(|quiesced| quiesced.until);
        let overdue = until.is_some_and(|until| until <= Instant::now());
        if overdue {
            self.resume_or_say(&mut orders)?;
        }
        Ok(overdue)
    }

    /// Lets requests continue after a [`quiesce`](Engine::quiesce).
    ///
    /// # Errors
    /// If headers or the flash tier cannot be written; requests are then still held back.
    pub fn resume(&self) -> Result<(), EngineError> {
        self.resume_or_say(&mut self.orders())
    }

    /// As [`resume`](Engine::resume); the error says that clients are still held back.
    fn resume_or_say(&self, orders: &mut Orders) -> Result<(), EngineError> {
        let resumed = self.resume_during(orders);
        resumed.map_err(|error| EngineError::StillQuiesced(Box::new(error)))
    }

    /// As [`resume`](Engine::resume), as a part of an order.
    pub(crate) fn resume_during(&self, orders: &mut Orders) -> Result<(), EngineError> {
        if orders.quiesced.is_some() {
            self.withdraw_notes(orders)?;
            orders.quiesced = None;
        }
        self.let_go();
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
        let drop = |v: &Volume| Sealed {
            index: v.0 as u16,
            seal: [0; SEAL_BYTES],
            distrust: true,
            stamp: 0,
        };
        let volumes = volumes.iter().map(drop).collect();
        let mut orders = self.begin_order()?;
        let what = "dropping cached data";
        if orders.quiesced.is_some() {
            return self.seal(volumes, what);
        }
        let held = self.hold_all(&mut orders, |_| {});
        let dropped = held.and_then(|()| self.seal(volumes, what));
        self.let_go();
        dropped
    }

    /// Holds requests back until nothing is dirty or in progress.
    fn hold_all(
        &self,
        orders: &mut Orders,
        mut progress: impl FnMut(u64),
    ) -> Result<(), EngineError> {
        self.shared.with_core(|core, now| core.hold(true, now));
        loop {
            let core = self.shared.lock();
            if core.life != Life::Serving {
                return Err(EngineError::Stopping);
            }
            if !core.is_busy() {
                break;
            }
            drop(core);
            std::thread::sleep(QUIET_POLL_PERIOD);
        }
        self.destage_all(orders, &mut progress)
    }

    fn destage_all(
        &self,
        orders: &mut Orders,
        progress: &mut impl FnMut(u64),
    ) -> Result<(), EngineError> {
        self.destage_during(orders, "the destage", |dirty| {
            progress(dirty);
            ControlFlow::Continue(())
        })
    }

    fn let_go(&self) {
        self.shared.with_core(|core, now| {
            core.noted = false;
            core.hold(false, now);
        });
    }

    /// Records the state of the stores; nothing is in progress.
    pub(crate) fn note_stores(
        &self,
        what: &'static str,
        left: StoreState,
    ) -> Result<(), EngineError> {
        self.settle_stamps();
        let stamp = self.shared.lock().cache.stamp_now(left != StoreState::Dirty);
        let mut stores = self.stores.lock_all();
        let passes_through = self.pass_through(&stores);
        let unsealed = |error: EngineError| EngineError::Unsealed { what, why: error.to_string() };
        let prints = match self.has_flash {
            true => fingerprints(&stores).map_err(unsealed)?,
            // Nobody has anything cached that could be out of date.
            false => vec![None; stores.len()],
        };
        let mut sealed = Vec::new();
        for (number, (store, print)) in stores.iter_mut().zip(prints).enumerate() {
            let size = store.size_bytes;
            store.write_header(|header| {
                if left != StoreState::Dirty {
                    (header.dirty, header.opening) = (false, false);
                }
                // What flash holds of a volume that passes through is void, whatever becomes of flash.
                header.released = left == StoreState::Released || passes_through[number];
                header.fingerprint = print.map_or([0; 16], Fingerprint::bytes);
                header.data_bytes = size;
                header.put_stamp(stamp);
            })?;
            if let Some(print) = print {
                store.sync_times().map_err(unsealed)?;
                let times = store.times().map_err(unsealed)?;
                let seal = fingerprint::SealContents { size, print, times }.seal();
                let distrust = left == StoreState::Released;
                let stamp = store.stamp_number();
                sealed.push(Sealed { index: number as u16, seal, distrust, stamp });
            }
        }
        drop(stores);
        self.seal(sealed, what)
    }

    /// From now on no stamps are written until requests continue. Data that was destaged but not
    /// stamped yet is stamped now: else the cleaner would order a stamp after the note. (If this
    /// fails, the note will fail too.)
    fn settle_stamps(&self) {
        let mut core = self.shared.lock_anyway();
        core.noted = true;
        for _ in 0..2 {
            if core.cache.owes_stamps() && !core.cache.is_stamping() {
                core.order_stamps(self.shared.clock.now());
            }
            while core.cache.is_stamping() {
                self.shared.unlock(core, None);
                std::thread::sleep(QUIET_POLL_PERIOD);
                core = self.shared.lock_anyway();
            }
        }
        self.shared.unlock(core, None);
    }

    /// By volume: whether it bypasses flash. A volume that begins to do so after the answer releases
    /// its store after what is written to `stores`, all of them, under these locks.
    pub(crate) fn pass_through(&self, _stores: &[MutexGuard<'_, Store>]) -> Vec<bool> {
        let core = self.shared.lock();
        self.volumes().iter().map(|v| core.cache.passes_through(v.volume)).collect()
    }

    /// The stores are about to be written again.
    fn withdraw_notes(&self, orders: &Orders) -> Result<(), EngineError> {
        let mut stores = self.stores.lock_all();
        let passes_through = self.pass_through(&stores);
        for (store, passes_through) in stores.iter_mut().zip(passes_through) {
            let dirty = orders.marks_dirty && !store.read_only && !passes_through;
            store.write_header(|header| (header.dirty, header.fingerprint) = (dirty, [0; 16]))?;
        }
        let numbers = 0..stores.len() as u16;
        drop(stores);
        let open = |index| Sealed { index, seal: [0; SEAL_BYTES], distrust: false, stamp: 0 };
        let told = self.seal(numbers.map(open).collect(), "resuming clients");
        // A log that has failed forgets no note. If it has one, the next start finds the store changed, and
        // drops what is clean; nothing becomes dirty there any more.
        told.or_else(
            |error| if self.shared.lock().cache.has_given_up() { Ok(()) } else { Err(error) },
        )
    }

    /// Lets the machine take a note, once it is quiet.
    fn seal(&self, volumes: Vec<Sealed>, what: &'static str) -> Result<(), EngineError> {
        let mut core = self.shared.lock();
        while !core.cache.is_quiet() {
            self.shared.unlock(core, None);
            std::thread::sleep(QUIET_POLL_PERIOD);
            core = self.shared.lock();
        }
        core.seal(self.shared.clock.now(), volumes);
        self.shared.unlock(core, None);
        let sealed: Option<Outcome> = self.shared.wait_notice(
            |notice| match notice {
                MachineNotice::Sealed(result) => Some(*result),
                _ => None,
            },
            |_| ControlFlow::Continue(()),
        );
        let failed =
            |error| EngineError::Unsealed { what, why: format!("the flash tier: {error}") };
        sealed.unwrap_or(Ok(())).map_err(failed)
    }
}

/// The fingerprints of all stores, taken in parallel.
fn fingerprints(stores: &[MutexGuard<'_, Store>]) -> Result<Vec<Option<Fingerprint>>, EngineError> {
    std::thread::scope(|scope| {
        let taken: Vec<_> = (stores.iter())
            .map(|store| &**store)
            .map(|store| scope.spawn(move || store.fingerprint(store.size_bytes)))
            .collect();
        let join =
            |t: std::thread::ScopedJoinHandle<'_, _>| t.join().expect("reading does not panic");
        taken.into_iter().map(|t| join(t).map(Some)).collect()
    })
}
