//! Memory for requests: the limit for all connections together.
//!
//! Half of the budget is divided: each possible connection has a *share* that no other can take.
//! The other half is *lent* to connections that need more than their share. It consists of two
//! pools, one for small requests and one for large ones, so that a few large requests do not delay
//! the rest. Connections wait for memory that cannot be lent at once, first come, first served. A
//! connection with lent memory gets more at once only while enough is left for others.
//!
//! No connection waits forever:
//!
//! - A request that fits into its connection's share waits for no other connection.
//! - A larger request claims all missing memory at once, from one pool, before its payload is read.
//!   A connection has one claim at a time, and accepts no request after it until it is granted.
//!   Each pool is at least as large as its largest request, so the first claim in the queue waits
//!   only until others return memory.
//! - A borrower returns its memory without waiting for memory. While a payload arrives or a reply
//!   leaves, only its client can delay that, and a connection whose client is too slow is closed
//!   when others wait. The engine's answers need no memory of this budget. A connection returns the
//!   memory that it keeps for its next requests when others wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_device::Doorbell;

/// The largest request that counts as modest, in bytes with its overhead.
const MODEST_BYTES_MAX: u64 = (4 << 20) + (4 << 10);
/// A connection with lent memory gets more at once only while its total is at most this fraction of
/// the free memory: one part in `PART_MAX`.
const PART_MAX: u64 = 4;

/// The memory of all connections.
#[derive(Debug)]
pub(crate) struct Budget {
    share_bytes: u64,
    modest: Arc<Pool>,
    large: Arc<Pool>,
    /// Bytes that connections use, of their shares and of lent memory.
    used_bytes: AtomicU64,
}

/// Memory that can be lent.
#[derive(Debug)]
pub(super) struct Pool {
    bytes: u64,
    queue: Mutex<Queue>,
    /// Number of claims that wait.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Queue {
    free_bytes: u64,
    claims: VecDeque<Arc<PendingClaim>>,
}

/// A claim as the queue knows it.
#[derive(Debug)]
struct PendingClaim {
    bytes: u64,
    granted: AtomicBool,
    bell: Arc<Doorbell>,
}

/// Memory lent to a connection. Dropping this returns it.
#[derive(Debug)]
pub(super) struct Lease {
    pool: Arc<Pool>,
    bytes: u64,
}

/// A place in the queue.
#[derive(Debug)]
pub(super) struct Claim {
    pool: Arc<Pool>,
    pending: Arc<PendingClaim>,
}

/// What a budget is used for now.
#[derive(Clone, Copy, Debug, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct MemoryStatus {
    /// Maximum memory for the requests of all connections, in bytes.
    pub bytes_max: u64,
    /// Memory in use, in bytes.
    pub bytes: u64,
    /// Connections that are waiting for memory.
    pub waiting: u64,
}

impl Budget {
    /// A budget of `bytes`, for at most `connections` connections.
    pub fn new(bytes: u64, connections: u32) -> Budget {
        let pool = || Arc::new(Pool::new(bytes / 4));
        Budget {
            share_bytes: bytes / 2 / u64::from(connections.max(1)),
            modest: pool(),
            large: pool(),
            used_bytes: AtomicU64::new(0),
        }
    }

    /// The share of each connection, in bytes.
    pub fn share_bytes(&self) -> u64 {
        self.share_bytes
    }

    /// The pool for modest requests.
    pub(super) fn modest(&self) -> &Arc<Pool> {
        &self.modest
    }

    /// The pool for large requests.
    pub(super) fn large(&self) -> &Arc<Pool> {
        &self.large
    }

    /// Whether a request that costs `bytes` is a large one.
    pub(super) fn is_large(bytes: u64) -> bool {
        bytes > MODEST_BYTES_MAX
    }

    /// Notes that a connection uses `bytes` more.
    pub(super) fn uses(&self, bytes: u64) {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that a connection uses `bytes` less.
    pub(super) fn used(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The status, for operators.
    pub fn status(&self, connections_max: u32) -> MemoryStatus {
        let pools = [&self.modest, &self.large];
        let lendable: u64 = pools.iter().map(|pool| pool.bytes).sum();
        MemoryStatus {
            bytes_max: lendable + self.share_bytes * u64::from(connections_max),
            bytes: self.used_bytes.load(Ordering::Relaxed),
            waiting: pools.iter().map(|pool| pool.waiting.load(Ordering::Relaxed) as u64).sum(),
        }
    }
}

impl Pool {
    fn new(bytes: u64) -> Pool {
        let queue = Queue { free_bytes: bytes, claims: VecDeque::new() };
        Pool { bytes, queue: Mutex::new(queue), waiting: AtomicUsize::new(0) }
    }

    /// Whether a connection waits for memory.
    pub fn is_contended(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Lends `bytes` to a connection that has already borrowed `held` bytes, if no connection waits
    /// and enough is left for others.
    pub fn lend(self: &Arc<Self>, bytes: u64, held: u64) -> Option<Lease> {
        let mut queue = self.queue();
        let enough =
            queue.free_bytes >= bytes && (held == 0 || held + bytes <= queue.free_bytes / PART_MAX);
        if !queue.claims.is_empty() || !enough {
            return None;
        }
        queue.free_bytes -= bytes;
        Some(Lease { pool: self.clone(), bytes })
    }

    /// Queues a claim for memory. The doorbell rings when the claim is granted.
    pub fn claim(self: &Arc<Self>, bytes: u64, bell: Arc<Doorbell>) -> Claim {
        // A claim larger than the pool would wait forever.
        let bytes = bytes.min(self.bytes);
        let pending = Arc::new(PendingClaim { bytes, granted: AtomicBool::new(false), bell });
        let mut queue = self.queue();
        queue.claims.push_back(pending.clone());
        self.grant(queue);
        Claim { pool: self.clone(), pending }
    }

    fn give_back(&self, bytes: u64) {
        let mut queue = self.queue();
        queue.free_bytes += bytes;
        self.grant(queue);
    }

    /// Grants claims in order, as far as memory goes, and unlocks the queue.
    fn grant(&self, mut queue: MutexGuard<'_, Queue>) {
        let mut granted = Vec::new();
        while queue.claims.front().is_some_and(|first| first.bytes <= queue.free_bytes) {
            let Some(first) = queue.claims.pop_front() else { break };
            queue.free_bytes -= first.bytes;
            first.granted.store(true, Ordering::Release);
            granted.push(first);
        }
        self.waiting.store(queue.claims.len(), Ordering::Relaxed);
        drop(queue);
        granted.iter().for_each(|pending| pending.bell.ring());
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // The queue is consistent at every moment, so a poisoned lock does no harm.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// An empty lease.
    pub fn none(pool: Arc<Pool>) -> Lease {
        Lease { pool, bytes: 0 }
    }

    /// The pool that lends the memory.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Bytes lent.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Merges another lease of the same pool into this one.
    pub fn add(&mut self, mut other: Lease) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Gives back all but `bytes`.
    pub fn keep(&mut self, bytes: u64) {
        if self.bytes > bytes {
            let surplus = self.bytes - bytes;
            self.bytes = bytes;
            self.pool.give_back(surplus);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.keep(0);
    }
}

impl Claim {
    /// Returns the lease if the claim has been granted, otherwise the claim.
    pub fn take(self) -> Result<Lease, Claim> {
        if !self.pending.granted.swap(false, Ordering::AcqRel) {
            return Err(self);
        }
        let bytes = self.pending.bytes;
        Ok(Lease { pool: self.pool.clone(), bytes })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut queue = self.pool.queue();
        if self.pending.granted.swap(false, Ordering::AcqRel) {
            queue.free_bytes += self.pending.bytes;
        }
        queue.claims.retain(|pending| !Arc::ptr_eq(pending, &self.pending));
        self.pool.grant(queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pool() -> (Arc<Pool>, Arc<Doorbell>) {
        (Arc::new(Pool::new(64 * MIB)), Arc::new(Doorbell::new().unwrap()))
    }

    #[test]
    fn claims_are_granted_in_their_order_whatever_their_size() {
        let (pool, bell) = pool();
        let first = pool.lend(60 * MIB, 0).unwrap();
        let large = pool.claim(32 * MIB, bell.clone());
        let small = pool.claim(MIB, bell.clone());
        assert!(pool.is_contended());
        assert!(pool.lend(1, 0).is_none(), "nobody passes those who wait");
        let large = large.take().unwrap_err();
        let small = small.take().unwrap_err();
        assert!(!bell.clear());
        drop(first);
        assert!(bell.clear() && !pool.is_contended());
        let (large, small) = (large.take().unwrap(), small.take().unwrap());
        assert_eq!(large.bytes() + small.bytes(), 33 * MIB);
        assert!(pool.lend(31 * MIB, 0).is_some() && pool.lend(32 * MIB, 0).is_none());
        drop((large, small));
        assert!(pool.lend(64 * MIB, 0).is_some());
    }

    #[test]
    fn a_claim_that_is_given_up_holds_up_nobody_and_keeps_nothing() {
        let (pool, bell) = pool();
        let mut lease = pool.lend(64 * MIB, 0).unwrap();
        let given_up = pool.claim(60 * MIB, bell.clone());
        let next = pool.claim(2 * MIB, bell.clone());
        lease.keep(62 * MIB);
        let next = next.take().unwrap_err();
        drop(given_up);
        let next = next.take().unwrap();
        let granted = pool.claim(62 * MIB, bell);
        drop(lease);
        drop((granted, next));
        assert!(pool.lend(64 * MIB, 0).is_some(), "something was lost");
    }

    #[test]
    fn a_few_that_want_everything_leave_something_for_others() {
        let (pool, _) = pool();
        let mut greedy = Vec::new();
        for _ in 0..8 {
            let mut lease = Lease::none(pool.clone());
            while let Some(more) = pool.lend(MIB / 4, lease.bytes()) {
                lease.add(more);
            }
            greedy.push(lease);
        }
        assert!(greedy[0].bytes() > 12 * MIB, "one has a good part of it");
        assert!(pool.lend(8 * MIB, 0).is_some(), "eight have taken everything");
    }
}
