//! The backing stores of an engine, each with its own lock: a header that is slow to write delays
//! no other.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use forebay_block::{PerVolume, Volume};
use forebay_device::StoreSyncs;
use forebay_device::nbd::Export;
use forebay_effect::IoError;

use crate::patience::{Answers, Patience};
use crate::store::Store;

/// How often a question to stores looks which of them are still waited for.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// Why operations on a backing store fail.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreFailure {
    /// The last operation failed with this error.
    #[error("{0}")]
    Io(IoError),
    /// The session with the NBD server of the store has ended, for this reason.
    #[error("{0}")]
    Session(String),
    /// The header of the store could not be written, for this reason.
    #[error("{0}")]
    Header(String),
}

/// All stores, locked.
pub(crate) type LockedStores<'a> = PerVolume<MutexGuard<'a, Store>>;

/// The stores of the volumes.
pub(crate) struct BackingStores {
    stores: PerVolume<Mutex<Store>>,
    /// The exports among them, for what needs no lock.
    exports: PerVolume<Option<Arc<Export>>>,
    syncs: PerVolume<Arc<StoreSyncs>>,
    answers: PerVolume<Arc<Answers>>,
    /// Whether a thread that [asks](BackingStores::ask) has not ended, by volume.
    asked: PerVolume<AtomicBool>,
    /// Whether exports that do not answer are given up.
    given_up: AtomicBool,
}

impl BackingStores {
    pub fn new(stores: Vec<Store>) -> BackingStores {
        let exports = stores.iter().map(|store| store.export.clone()).collect();
        let syncs = stores.iter().map(|store| store.syncs().clone()).collect();
        let answers = stores.iter().map(|store| store.answers().clone()).collect();
        let asked = stores.iter().map(|_| AtomicBool::new(false)).collect();
        let stores = stores.into_iter().map(Mutex::new).collect();
        let given_up = AtomicBool::new(false);
        BackingStores { stores, exports, syncs, answers, asked, given_up }
    }

    /// All volumes.
    pub fn volumes(&self) -> impl Iterator<Item = Volume> + use<> {
        self.stores.volumes()
    }

    /// The store of a volume.
    pub fn lock(&self, volume: Volume) -> MutexGuard<'_, Store> {
        self.stores[volume].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them.
    pub fn lock_all(&self) -> LockedStores<'_> {
        self.stores.volumes().map(|volume| self.lock(volume)).collect()
    }

    /// Calls `what` for each of these stores, all at the same time, and waits for each as long as `patience` says. A
    /// store that is waited for no longer gives `None`: a call in progress continues without its result, and under the
    /// store's lock; a call that has not begun is left out. There is at most one such call for each store, so a store
    /// that an earlier call still waits for gives `None` as well.
    pub fn ask<T: Send + 'static>(
        self: &Arc<BackingStores>,
        volumes: &[Volume],
        patience: &Patience<'_>,
        what: impl Fn(Volume, &mut Store) -> T + Send + Sync + 'static,
    ) -> PerVolume<Option<T>> {
        let asked = Instant::now();
        let mut results: PerVolume<Option<T>> = self.volumes().map(|_| None).collect();
        let late: PerVolume<AtomicBool> = self.volumes().map(|_| AtomicBool::new(false)).collect();
        let (what, late) = (Arc::new(what), Arc::new(late));
        let (tell, told) = channel();
        let mut awaited = Vec::new();
        let mut threads: PerVolume<Option<JoinHandle<()>>> = self.volumes().map(|_| None).collect();
        for &volume in volumes {
            let is_asked = self.asked[volume].swap(true, Ordering::AcqRel);
            if is_asked {
                continue;
            }
            let (stores, what, late, tell) =
                (self.clone(), what.clone(), late.clone(), tell.clone());
            let call = Arc::new(move || {
                let mut store = stores.lock(volume);
                let in_time = !late[volume].load(Ordering::Acquire);
                let result = in_time.then(|| what(volume, &mut store));
                drop(store);
                stores.asked[volume].store(false, Ordering::Release);
                // (If nobody waits any more, the result is dropped.)
                let _ = tell.send((volume, result));
            });
            let other = call.clone();
            let thread = Builder::new().name(format!("forebay-store-{volume}"));
            match thread.spawn(move || other()) {
                Ok(thread) => threads[volume] = Some(thread),
                // Where no more threads may be started, this one does it.
                Err(_) => call(),
            }
            awaited.push(volume);
        }
        drop(tell);
        // A thread that has answered keeps the stores open until it ends, and the caller may open them again.
        let mut end = |volume: Volume| {
            let ended = threads[volume].take().map_or(Ok(()), JoinHandle::join);
            ended.unwrap_or_else(|panic| resume_unwind(panic));
        };
        while !awaited.is_empty() {
            match told.recv_timeout(LOOK_PERIOD) {
                Ok((volume, result)) => {
                    results[volume] = result;
                    awaited.retain(|&other| other != volume);
                    end(volume);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // All threads have ended, and these have panicked.
                Err(RecvTimeoutError::Disconnected) => awaited.drain(..).for_each(&mut end),
            }
            awaited.retain(|&volume| {
                let waits = patience.waits_for(&self.answers[volume], asked);
                late[volume].fetch_or(!waits, Ordering::AcqRel);
                waits
            });
        }
        results
    }

    /// Whether the store does not answer: a thread still waits for it on behalf of a question.
    pub fn is_asked(&self, volume: Volume) -> bool {
        self.asked[volume].load(Ordering::Acquire)
    }

    /// The start that the headers announce has ended before its epoch: they say again how the stores
    /// were left.
    pub fn retract(&self) {
        for (_, store) in self.lock_all().iter_mut() {
            // (Where that fails, the next start does not count the times of the file.)
            let _ = store.retract();
        }
    }

    /// Why operations on a store fail, the last one with `error`. If the session with its NBD server
    /// has ended, the reason for that says more than the error.
    pub fn failure(&self, volume: Volume, error: IoError) -> StoreFailure {
        self.session_failure(volume).map_or(StoreFailure::Io(error), StoreFailure::Session)
    }

    /// From `at` on, all operations on exports fail, so that nothing waits for a server that hangs.
    pub fn give_up_at(&self, at: Instant) {
        self.given_up.store(true, Ordering::Release);
        for (_, export) in self.exports.iter() {
            export.iter().for_each(|export| export.give_up_at(at));
        }
    }

    /// From now on nobody takes in the ends of device operations, so no write of a header waits for one.
    pub fn end_waits(&self) {
        self.syncs.iter().for_each(|(_, syncs)| syncs.close());
    }

    /// Whether exports that do not answer are given up.
    pub fn are_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Why the session with a store's NBD server has ended, if it has.
    pub fn session_failure(&self, volume: Volume) -> Option<String> {
        self.exports[volume].as_ref()?.failure()
    }
}
