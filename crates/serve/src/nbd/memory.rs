//! The memory of one connection: its share of the budget, lent memory, and the buffers that it
//! keeps for its next requests.

use std::sync::Arc;

use forebay_device::{AlignedBuffer, Doorbell};
use forebay_engine::BufferPool;

use super::budget::{Budget, Claim, Lease};

/// Bytes that a request costs in addition to the memory for its data: its place in queues, and its
/// reply.
pub(super) const REQUEST_BYTES: u64 = 512;
/// Maximum size, in bytes, of the buffers kept for later requests.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The memory of one connection. Memory in use and kept buffers together never exceed the share
/// plus lent memory.
#[derive(Debug)]
pub(super) struct Memory {
    budget: Arc<Budget>,
    bell: Arc<Doorbell>,
    /// For modest requests.
    modest: Lease,
    /// For large requests.
    large: Lease,
    claim: Option<(bool, Claim)>,
    /// Bytes in use.
    used_bytes: u64,
    /// Number of releases so far.
    releases: u64,
    pool: BufferPool,
}

impl Memory {
    /// The memory of a connection that has only its share. `bell` rings when memory that it waits
    /// for is available.
    pub fn new(budget: Arc<Budget>, bell: Arc<Doorbell>) -> Memory {
        let modest = Lease::none(budget.modest().clone());
        let large = Lease::none(budget.large().clone());
        let pool = BufferPool::new(KEPT_BYTES_MAX);
        Memory { budget, bell, modest, large, claim: None, used_bytes: 0, releases: 0, pool }
    }

    /// What a request with `bytes` bytes of data costs, in bytes.
    pub fn cost(bytes: u64) -> u64 {
        REQUEST_BYTES + if bytes == 0 { 0 } else { BufferPool::buffer_bytes(bytes as usize) as u64 }
    }

    /// Reserves `bytes` of memory. If there is not enough, reserves nothing and returns false: call
    /// it again with the same `bytes` when the doorbell rings, or after a release.
    pub fn reserve(&mut self, bytes: u64) -> bool {
        let large = Budget::is_large(bytes);
        if let Some((large, claim)) = self.claim.take() {
            match claim.take() {
                Ok(lease) => self.lease(large).add(lease),
                Err(claim) => self.claim = Some((large, claim)),
            }
        }
        let missing = self.missing(bytes);
        if missing > 0 && (self.claim.is_some() || !self.lend(missing, large)) {
            if self.claim.is_none() {
                // From here on, the memory in use only shrinks, so the claim suffices when it is
                // granted: no connection holds a part of what it needs and waits for the rest.
                self.trim();
                if self.is_lent() {
                    // Others come first. Requests in flight use the lent memory, and return it
                    // without waiting for this one.
                    return false;
                }
                let missing = self.missing(bytes);
                let pool = self.lease(large).pool().clone();
                self.claim = Some((large, pool.claim(missing, self.bell.clone())));
            }
            return false;
        }
        self.claim = None;
        self.use_more(bytes);
        true
    }

    /// As [`Memory::reserve`], for memory that is not essential: never queues a claim.
    pub fn reserve_at_once(&mut self, bytes: u64) -> bool {
        if self.claim.is_some() {
            return false;
        }
        let missing = self.missing(bytes);
        if missing > 0 && !self.lend(missing, Budget::is_large(bytes)) {
            return false;
        }
        self.use_more(bytes);
        true
    }

    /// Reserves memory that may be kept while requests wait for memory. At most half of the share
    /// is available for this, so that lent memory is never kept in this way.
    pub fn reserve_of_share(&mut self, bytes: u64) -> bool {
        let fits = self.used_bytes + bytes <= self.budget.share_bytes() / 2;
        fits && self.reserve_at_once(bytes)
    }

    fn lend(&mut self, bytes: u64, large: bool) -> bool {
        let held = self.modest.bytes() + self.large.bytes();
        let lease = self.lease(large).pool().lend(bytes, held);
        lease.map(|lease| self.lease(large).add(lease)).is_some()
    }

    fn lease(&mut self, large: bool) -> &mut Lease {
        if large { &mut self.large } else { &mut self.modest }
    }

    /// Whether the connection waits for memory.
    pub fn waits(&self) -> bool {
        self.claim.is_some()
    }

    /// Whether the connection holds lent memory.
    pub fn is_lent(&self) -> bool {
        self.modest.bytes() > 0 || self.large.bytes() > 0
    }

    /// Whether the connection holds lent memory that others wait for.
    pub fn is_wanted(&self) -> bool {
        [&self.modest, &self.large]
            .iter()
            .any(|lease| lease.bytes() > 0 && lease.pool().is_contended())
    }

    /// Number of releases so far.
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// Releases `bytes` that were reserved. Returns unused lent memory if others wait for it.
    pub fn release(&mut self, bytes: u64) {
        self.used_bytes -= bytes;
        self.releases += 1;
        self.budget.used(bytes);
        if self.is_wanted() {
            self.trim();
        }
    }

    /// Releases all but `bytes` of the memory in use, and all that is lent, kept or claimed beyond
    /// that.
    pub fn keep_only(&mut self, bytes: u64) {
        self.claim = None;
        self.release(self.used_bytes - bytes);
        self.trim();
    }

    /// A buffer for data, out of the reserved memory.
    pub fn buffer(&mut self, bytes: u64) -> AlignedBuffer {
        self.pool.take(bytes as usize)
    }

    /// Keeps a buffer for later requests. Call this before releasing what the buffer cost.
    pub fn keep(&mut self, buffer: AlignedBuffer) {
        self.pool.give(buffer);
    }

    /// Gives back memory that is not in use.
    pub fn trim(&mut self) {
        self.pool.shrink(0);
        let lent = self.used_bytes.saturating_sub(self.budget.share_bytes());
        self.modest.keep(lent);
        self.large.keep(lent - self.modest.bytes());
    }

    /// Bytes that must be lent before `bytes` more can be used. Frees kept buffers to make room.
    fn missing(&mut self, bytes: u64) -> u64 {
        let own = self.budget.share_bytes() + self.modest.bytes() + self.large.bytes();
        let wanted = self.used_bytes + bytes;
        if wanted + self.pool.held_bytes() as u64 <= own {
            return 0;
        }
        self.pool.shrink((own.saturating_sub(wanted)) as usize);
        wanted.saturating_sub(own)
    }

    fn use_more(&mut self, bytes: u64) {
        self.used_bytes += bytes;
        self.budget.uses(bytes);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.budget.used(self.used_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn memory(budget: &Arc<Budget>) -> Memory {
        Memory::new(budget.clone(), Arc::new(Doorbell::new().unwrap()))
    }

    /// 2 MiB for each connection, and two pools of 64 MiB.
    fn budget() -> Arc<Budget> {
        Arc::new(Budget::new(256 * MIB, 64))
    }

    #[test]
    fn a_share_is_there_when_all_that_can_be_lent_is_gone() {
        let budget = budget();
        let (mut greedy, mut modest) = (memory(&budget), memory(&budget));
        assert!(greedy.reserve(66 * MIB));
        assert!(modest.reserve(2 * MIB) && !modest.is_lent());
        assert!(!modest.reserve(5 * MIB) && modest.waits() && greedy.is_wanted());
        assert_eq!((budget.status(64).bytes, budget.status(64).bytes_max), (68 * MIB, 256 * MIB));
        assert_eq!(budget.status(64).waiting, 1);
        drop(greedy);
        assert!(modest.reserve(5 * MIB) && modest.is_lent() && !modest.waits());
        drop(modest);
        assert_eq!((budget.status(64).bytes, budget.status(64).waiting), (0, 0));
        assert!(memory(&budget).reserve(66 * MIB));
    }

    #[test]
    fn a_connection_that_ends_keeps_only_the_memory_of_what_is_in_flight() {
        let budget = budget();
        let (mut lost, mut other) = (memory(&budget), memory(&budget));
        assert!(lost.reserve(66 * MIB) && !lost.reserve(66 * MIB));
        assert!(!other.reserve(66 * MIB));
        lost.keep_only(MIB);
        assert!(!lost.is_lent() && !lost.waits());
        assert_eq!(budget.status(64).bytes, MIB);
        assert!(other.reserve(66 * MIB));
        lost.release(MIB);
        assert_eq!(budget.status(64).bytes, 66 * MIB);
    }

    #[test]
    fn large_requests_do_not_hold_up_modest_ones() {
        let budget = budget();
        let (mut large, mut modest) = (memory(&budget), memory(&budget));
        assert!(large.reserve(66 * MIB));
        assert!(modest.reserve(MIB) && modest.reserve(4 * MIB));
    }

    #[test]
    fn who_holds_lent_memory_waits_for_itself_before_it_claims_more() {
        let budget = budget();
        let mut one = memory(&budget);
        assert!(one.reserve(2 * MIB) && one.reserve(4 * MIB));
        let mut held = Vec::new();
        while one.reserve(4 * MIB) {
            held.push(4 * MIB);
        }
        assert!((2..8).contains(&held.len()) && !one.waits());
        held.into_iter().for_each(|bytes| one.release(bytes));
        assert!(one.reserve(4 * MIB), "it has given enough back");
    }

    #[test]
    fn buffers_that_are_kept_are_part_of_the_memory_and_give_way() {
        let budget = budget();
        let mut one = memory(&budget);
        let cost = Memory::cost(8 * MIB);
        assert!(one.reserve(cost));
        let buffer = one.buffer(8 * MIB);
        one.keep(buffer);
        one.release(cost);
        assert!(one.is_lent(), "it is kept for the next request");
        let mut other = memory(&budget);
        assert!(!other.reserve(66 * MIB) && one.is_wanted());
        one.trim();
        assert!(other.reserve(66 * MIB) && !one.is_lent());
    }

    #[test]
    fn what_its_own_requests_give_back_serves_a_connection_that_waits() {
        let budget = budget();
        let (mut one, mut other) = (memory(&budget), memory(&budget));
        assert!(one.reserve(2 * MIB) && other.reserve(66 * MIB));
        assert!(!one.reserve(5 * MIB) && one.waits());
        one.release(2 * MIB);
        other.release(5 * MIB);
        assert!(one.reserve(5 * MIB) && !one.waits() && !other.is_wanted());
    }
}
