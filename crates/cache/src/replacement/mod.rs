//! Replacement policies: which DRAM slot gives way.
//!
//! A policy orders *slots by number*; it knows nothing of blocks, masks or devices. A new one
//! is one file, one variant of [`Replacement`] and one line in [`Replacement::new`]; it then
//! runs in the server, the simulator and the adversary alike.

mod lru;

pub use lru::Lru;

/// The policies there are, by their configuration name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum ReplacementKind {
    /// Least recently used (Mattson 1970): the reference of every formula in `plan`.
    #[default]
    Lru,
}

/// A replacement policy at work. An enum, not a trait object: hits take this path.
#[derive(Debug)]
pub enum Replacement {
    /// See [`Lru`].
    Lru(Lru),
}

impl Replacement {
    /// A policy over slot numbers below `slots`.
    pub fn new(kind: ReplacementKind, slots: u32) -> Self {
        match kind {
            ReplacementKind::Lru => Replacement::Lru(Lru::new(slots)),
        }
    }
    /// A slot was filled.
    pub fn insert(&mut self, slot: u32) {
        match self {
            Replacement::Lru(p) => p.insert(slot),
        }
    }
    /// A slot was hit.
    pub fn touch(&mut self, slot: u32) {
        match self {
            Replacement::Lru(p) => p.touch(slot),
        }
    }
    /// A slot is no longer to be considered.
    pub fn remove(&mut self, slot: u32) {
        match self {
            Replacement::Lru(p) => p.remove(slot),
        }
    }
    /// Takes out the slot that gives way.
    pub fn evict(&mut self) -> Option<u32> {
        match self {
            Replacement::Lru(p) => p.evict(),
        }
    }
    /// The slot that would give way.
    pub fn coldest(&self) -> Option<u32> {
        match self {
            Replacement::Lru(p) => p.coldest(),
        }
    }
    /// The slot that would give way next after `slot`.
    pub fn warmer(&self, slot: u32) -> Option<u32> {
        match self {
            Replacement::Lru(p) => p.warmer(slot),
        }
    }
    /// Slots under the policy.
    pub fn len(&self) -> u32 {
        match self {
            Replacement::Lru(p) => p.len(),
        }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
