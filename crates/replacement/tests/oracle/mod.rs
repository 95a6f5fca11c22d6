//! Naive versions of the policies, written from their papers: vectors, searched from end to end,
//! that serve one request at a time. They share no code with the crate.
//!
//! Where a paper leaves a choice, the module documentation of the policy says what it chose; the
//! oracle makes the same choice.

mod adaptive;
mod counting;
mod hands;
mod queues;

pub use adaptive::{Arc, TwoQ};
pub use counting::{Lfu, WTinyLfu};
pub use hands::{Clock, S3Fifo, Sieve};
pub use queues::{Fifo, Lru, Positioned};

/// A cache that serves requests one by one.
pub trait Oracle {
    /// Serves a request; returns whether it was a hit. A missed block enters at `position` percent
    /// if the policy has positions.
    fn access(&mut self, key: u64, position: u8) -> bool;
    /// Invalidates a block, if it is cached.
    fn remove(&mut self, key: u64);
    /// Makes the cache smaller or larger.
    fn resize(&mut self, capacity: usize);
    /// The blocks in the cache, in any order.
    fn resident(&self) -> Vec<u64>;
}

/// The index of `key`.
fn find(list: &[u64], key: u64) -> Option<usize> {
    list.iter().position(|&k| k == key)
}

/// Removes `key`; returns whether it was there.
fn take(list: &mut Vec<u64>, key: u64) -> bool {
    let at = find(list, key);
    at.map(|at| list.remove(at)).is_some()
}

/// `percent` of a capacity, rounded down.
fn percent(capacity: usize, percent: usize) -> usize {
    capacity * percent / 100
}
