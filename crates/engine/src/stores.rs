//! The backing stores of an engine, each with its own lock: a header that is slow to write delays
//! no other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_block::{PerVolume, Volume};
use forebay_device::nbd::Export;
use forebay_effect::IoError;

use crate::store::Store;

/// All stores, locked.
pub(crate) type LockedStores<'a> = PerVolume<MutexGuard<'a, Store>>;

/// The stores of the volumes.
pub(crate) struct Stores {
    stores: PerVolume<Mutex<Store>>,
    /// The exports among them, for what needs no lock.
    exports: PerVolume<Option<Arc<Export>>>,
}

impl Stores {
    pub fn new(stores: Vec<Store>) -> Stores {
        let exports = stores.iter().map(|store| store.export.clone()).collect();
        Stores { stores: stores.into_iter().map(Mutex::new).collect(), exports }
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

    /// Why operations on a store fail, the last one with `error`. If the session with its NBD server
    /// has ended, the reason for that says more than the error.
    pub fn why(&self, volume: Volume, error: IoError) -> String {
        self.session_failure(volume).unwrap_or_else(|| error.to_string())
    }

    /// Why the session with a store's NBD server has ended, if it has.
    pub fn session_failure(&self, volume: Volume) -> Option<String> {
        self.exports[volume].as_ref()?.failure()
    }
}
