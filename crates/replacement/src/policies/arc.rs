//! ARC (N. Megiddo and D. S. Modha, *ARC: a self-tuning, low overhead replacement cache*, FAST
//! 2003): T1 holds blocks used once, T2 those used more often, both ordered by last use; B1 and B2
//! hold the keys of blocks evicted from them. A miss whose key is in B1 shows that T1 is too small,
//! one in B2 that T2 is; the target `p` for the size of T1 is adjusted accordingly. It is a real
//! number, as in the paper.
//!
//! Ghosts are trimmed when the next block comes in instead of at the eviction before it. The result
//! is the same: case IV of figure 4 forgets the oldest of B1 or B2 to make room for one more; and
//! where it drops a block of T1 without a ghost, because T1 alone fills the cache, the ghost here
//! lasts only until then. `evict` takes the incoming key, since a miss in B1 or B2 moves `p` before
//! the choice (cases II and III). libCacheSim does the same.
//!
//! The paper has no invalidation. After a `remove`, there may be up to twice as many ghosts as the
//! table holds; then the oldest ones of a list are forgotten early. Performs badly on loops
//! slightly larger than the cache, where `p` oscillates.

use crate::ghosts::{Ghosts, TRIM_MAX};
use crate::links::{Links, List};
use crate::parameters::Parameters;
use crate::policy::{About, Documented, Hint, Policy, Tier};

/// The numbers of B1 and B2 in the table of ghosts.
const B1: usize = 0;
const B2: usize = 1;

/// See the module.
#[derive(Debug)]
pub struct Arc {
    links: Links,
    t1: List,
    t2: List,
    /// Whether the node is in T2, or was when it was evicted.
    in_t2: Box<[bool]>,
    keys: Box<[u64]>,
    ghosts: Ghosts<2>,
    capacity: u32,
    /// The target size of T1.
    p: f64,
    /// The incoming key from which `p` has learned, until that block comes in.
    learned: Option<u64>,
    steps: u64,
}

impl Arc {
    /// Adjusts `p`, once for each incoming key; returns the ghost list that holds the key.
    fn learn(&mut self, key: u64) -> Option<usize> {
        let list = self.ghosts.list_of(key)?;
        if self.learned != Some(key) {
            self.learned = Some(key);
            let (b1, b2) = (f64::from(self.ghosts.len(B1)), f64::from(self.ghosts.len(B2)));
            self.p = match list {
                B1 => (self.p + (b2 / b1).max(1.0)).min(self.capacity.into()),
                _ => (self.p - (b1 / b2).max(1.0)).max(0.0),
            };
        }
        Some(list)
    }

    /// The choice of REPLACE in figure 4: whether to evict from T1.
    fn t1_first(&self, in_b2: bool) -> bool {
        let len = f64::from(self.t1.len());
        let too_long = len > self.p || (in_b2 && len == self.p);
        (!self.t1.is_empty() && too_long) || self.t2.is_empty()
    }
}

impl Documented for Arc {
    const ABOUT: About = About {
        source: "Megiddo and Modha, FAST 2003",
        weakness: "performs badly on loops slightly larger than the cache",
        tiers: Tier::ALL,
        parameters: &[],
    };
}

impl Policy for Arc {
    fn new(nodes: u32, capacity: u32, _parameters: &Parameters) -> Self {
        Arc {
            links: Links::new(nodes),
            t1: List::EMPTY,
            t2: List::EMPTY,
            in_t2: vec![false; nodes as usize].into(),
            keys: vec![0; nodes as usize].into(),
            ghosts: Ghosts::new(capacity),
            capacity,
            p: 0.0,
            learned: None,
            steps: 0,
        }
    }

    fn on_access(&mut self, node: u32) {
        if core::mem::replace(&mut self.in_t2[node as usize], true) {
            self.links.move_to_front(&mut self.t2, node);
        } else {
            self.links.remove(&mut self.t1, node);
            self.links.push_front(&mut self.t2, node);
        }
    }

    fn insert(&mut self, node: u32, key: u64, _hint: Hint) {
        let is_ghost = self.learn(key).is_some();
        self.learned = None;
        self.keys[node as usize] = key;
        self.in_t2[node as usize] = is_ghost;
        if is_ghost {
            self.ghosts.remove(key);
            self.links.push_front(&mut self.t2, node);
        } else {
            self.links.push_front(&mut self.t1, node);
        }
        // T1 and B1 together hold at most the capacity, all four lists twice that.
        let b1_max = self.capacity.saturating_sub(self.t1.len());
        let trimmed = self.ghosts.trim(B1, b1_max);
        let others = self.len().saturating_add(self.ghosts.len(B1));
        let b2_max = self.capacity.saturating_mul(2).saturating_sub(others);
        self.steps += u64::from(trimmed + self.ghosts.trim(B2, b2_max));
    }

    fn evict(&mut self, incoming: Option<u64>) -> Option<u32> {
        let ghost = incoming.and_then(|key| self.learn(key));
        if self.is_empty() {
            return None;
        }
        let (list, ghosts) =
            if self.t1_first(ghost == Some(B2)) { (&mut self.t1, B1) } else { (&mut self.t2, B2) };
        let node = self.links.pop_back(list)?;
        self.ghosts.push(ghosts, self.keys[node as usize]);
        Some(node)
    }

    fn restore(&mut self, node: u32) {
        self.ghosts.remove(self.keys[node as usize]);
        let list = if self.in_t2[node as usize] { &mut self.t2 } else { &mut self.t1 };
        self.links.push_back(list, node);
    }

    fn remove(&mut self, node: u32) {
        if !self.links.is_linked(node) {
            self.ghosts.remove(self.keys[node as usize]);
        } else if self.in_t2[node as usize] {
            self.links.remove(&mut self.t2, node);
        } else {
            self.links.remove(&mut self.t1, node);
        }
    }

    fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.p = self.p.min(capacity.into());
        self.ghosts.reserve(capacity);
    }

    fn prefetch(&self, node: u32, near: bool) {
        self.links.prefetch(node, near);
    }

    fn prefetch_absent(&self, key: u64, near: bool) {
        if near { self.ghosts.prefetch_entry(key) } else { self.ghosts.prefetch(key) }
    }

    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        let t1_first = self.t1_first(false);
        let (first, then) = if t1_first { (&self.t1, &self.t2) } else { (&self.t2, &self.t1) };
        let Some(after) = after else { return first.back().or(then.back()) };
        let in_first = self.in_t2[after as usize] != t1_first;
        self.links.ahead(after).or_else(|| then.back().filter(|_| in_first))
    }

    fn len(&self) -> u32 {
        self.t1.len() + self.t2.len()
    }

    fn metadata_bytes(&self) -> u64 {
        let own = size_of::<Self>() + size_of_val(&*self.in_t2) + size_of_val(&*self.keys);
        own as u64 + self.links.memory_bytes() + self.ghosts.memory_bytes()
    }

    fn steps_max(_parameters: &Parameters) -> u64 {
        2 * u64::from(TRIM_MAX)
    }

    fn steps(&self) -> u64 {
        self.steps
    }
}
