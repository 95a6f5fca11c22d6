//! The backing stores of an engine, each with its own lock: a header that is slow to write delays
//! no other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use forebay_block::{PerVolume, Volume};
use forebay_device::StoreSyncs;
use forebay_device::nbd::Export;
use forebay_effect::IoError;

use crate::store::Store;

/// Why operations on a backing store fail.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreFailure {
    /// The last operation failed with this error.
    #[error("{0}")]
    Io(IoError),
    /// The session with the NBD server of the store has ended, for this reason.
    #[error("{0}")]
    Session(String),
}

/// All stores, locked.
pub(crate) type LockedStores<'a> = PerVolume<MutexGuard<'a, Store>>;

/// The stores of the volumes.
pub(crate) struct BackingStores {
    stores: PerVolume<Mutex<Store>>,
    /// The exports among them, for what needs no lock.
    exports: PerVolume<Option<Arc<Export>>>,
    syncs: PerVolume<Arc<StoreSyncs>>,
    /// Whether exports that do not answer are given up.
    given_up: AtomicBool,
}

impl BackingStores {
    pub fn new(stores: Vec<Store>) -> BackingStores {
        let exports = stores.iter().map(|store| store.export.clone()).collect();
        let syncs = stores.iter().map(|store| store.syncs().clone()).collect();
        let stores = stores.into_iter().map(Mutex::new).collect();
        BackingStores { stores, exports, syncs, given_up: AtomicBool::new(false) }
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
