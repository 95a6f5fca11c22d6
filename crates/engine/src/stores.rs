//! The backing stores of an engine, each with its own lock: a header that is slow to write delays
//! no other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::Store;

/// By volume.
pub(crate) struct Stores(Vec<Mutex<Store>>);

impl Stores {
    pub fn new(stores: Vec<Store>) -> Stores {
        Stores(stores.into_iter().map(Mutex::new).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The store of a volume.
    pub fn lock(&self, volume: usize) -> MutexGuard<'_, Store> {
        self.0[volume].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them.
    pub fn lock_all(&self) -> Vec<MutexGuard<'_, Store>> {
        (0..self.len()).map(|volume| self.lock(volume)).collect()
    }
}
