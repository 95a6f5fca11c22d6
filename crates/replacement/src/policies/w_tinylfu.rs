//! W-TinyLFU (G. Einziger, R. Friedman and B. Manes, *TinyLFU: a highly efficient cache admission
//! policy*, ACM Transactions on Storage 2017): new blocks enter a small LRU window. A block that
//! leaves the window is a candidate for the main cache, which has two segments: blocks on
//! probation, and protected ones, which were used while on probation. If the main cache is full,
//! the candidate replaces the next victim on probation only if it was used more often, according to
//! a sketch of the recent uses (hits and misses) of all keys; otherwise the candidate is evicted.
//!
//! As in the paper and in Caffeine: a window of 1 %, 80 % of the main cache protected, and counts
//! up to 15 that are halved after a number of uses of 10 times the capacity. If counts are equal,
//! the candidate is evicted. Caffeine also adapts the window and admits a losing candidate at
//! random; the paper also has a doorkeeper, a filter of keys used once. All three are left out. The
//! sketch of libCacheSim's `wtinylfu` differs (no ageing by sample, a minimal increment), and so do
//! its counts.
//!
//! Performs badly on bursts of new blocks that are used again soon, because the window is small.

use super::s3_fifo::percent_of;
use crate::hash::mix;
use crate::links::{Links, List, prefetch};
use crate::parameters::{Parameter, Parameters};
use crate::policy::{About, Documented, Hint, Policy, Tier};
use crate::sketch::Sketch;

const WINDOW: Parameter = Parameter {
    name: "window_percent",
    unit: "percent of the capacity",
    default: 1,
    min: 1,
    max: 99,
    meaning: "size of the window for new blocks, at least one block",
};
const PROTECTED: Parameter = Parameter {
    name: "protected_percent",
    unit: "percent of the main cache",
    default: 80,
    min: 0,
    max: 99,
    meaning: "size of the protected segment of the main cache",
};
const SAMPLE: Parameter = Parameter {
    name: "sample_capacities",
    unit: "times the capacity",
    default: 10,
    min: 1,
    max: 1_000_000,
    meaning: "number of accesses after which all counters of the sketch are halved",
};

/// The numbers of the lists.
const IN_WINDOW: u8 = 0;
const ON_PROBATION: u8 = 1;
const IS_PROTECTED: u8 = 2;
/// Position of the list number in a hash: above the bits that the sketch uses.
const LIST_SHIFT: u32 = 62;
const _: () = assert!(Sketch::HASH_BITS <= LIST_SHIFT);
const LIST_MASK: u64 = 3 << LIST_SHIFT;

/// See the module.
#[derive(Debug)]
pub struct WTinyLfu {
    links: Links,
    lists: [List; 3],
    /// The hash of each node's key. The two highest bits are the list that the node is in, or from
    /// which it was evicted.
    hashes: Box<[u64]>,
    sketch: Sketch,
    capacity: u32,
    window_max: u32,
    protected_max: u32,
    window_percent: u32,
    protected_percent: u32,
    sample_capacities: u32,
}

impl WTinyLfu {
    fn share_out(&mut self) {
        self.window_max = percent_of(self.capacity, self.window_percent).max(1);
        let main_max = self.capacity.saturating_sub(self.window_max);
        self.protected_max = percent_of(main_max, self.protected_percent);
    }

    fn list_len(&self, list: u8) -> u32 {
        self.lists[usize::from(list)].len()
    }

    fn list_of(&self, node: u32) -> u8 {
        (self.hashes[node as usize] >> LIST_SHIFT) as u8
    }

    fn put(&mut self, list: u8, node: u32) {
        let hash = &mut self.hashes[node as usize];
        *hash = *hash & !LIST_MASK | u64::from(list) << LIST_SHIFT;
        self.links.push_front(&mut self.lists[usize::from(list)], node);
    }

    fn take(&mut self, node: u32) {
        let list = usize::from(self.list_of(node));
        self.links.remove(&mut self.lists[list], node);
    }

    /// The next victim of the main cache.
    fn main_back(&self) -> Option<u32> {
        let [_, probation, protected] = &self.lists;
        probation.back().or(protected.back())
    }

    fn estimate(&self, node: u32) -> u8 {
        self.sketch.estimate(self.hashes[node as usize])
    }

    /// The block that would leave the window for one that comes in.
    fn candidate(&self) -> Option<u32> {
        let overflows = self.list_len(IN_WINDOW) >= self.window_max;
        self.lists[usize::from(IN_WINDOW)].back().filter(|_| overflows)
    }
}

impl Documented for WTinyLfu {
    const ABOUT: About = About {
        source: "Einziger, Friedman and Manes, ACM Transactions on Storage 2017",
        weakness: "performs badly on bursts of new blocks that are soon used again",
        tiers: Tier::ALL,
        parameters: &[WINDOW, PROTECTED, SAMPLE],
    };
}

impl Policy for WTinyLfu {
    fn new(nodes: u32, capacity: u32, parameters: &Parameters) -> Self {
        let sample_capacities = parameters.value(&SAMPLE);
        let mut policy = WTinyLfu {
            links: Links::new(nodes),
            lists: [List::EMPTY; 3],
            hashes: vec![0; nodes as usize].into(),
            sketch: Sketch::new(capacity, u64::from(sample_capacities) * u64::from(capacity)),
            capacity,
            window_max: 0,
            protected_max: 0,
            window_percent: parameters.value(&WINDOW),
            protected_percent: parameters.value(&PROTECTED),
            sample_capacities,
        };
        policy.share_out();
        policy
    }

    fn on_access(&mut self, node: u32) {
        let hash = self.hashes[node as usize];
        self.sketch.add(hash);
        let list = (hash >> LIST_SHIFT) as u8;
        if list != ON_PROBATION {
            self.links.move_to_front(&mut self.lists[usize::from(list)], node);
            return;
        }
        self.take(node);
        self.put(IS_PROTECTED, node);
        if self.list_len(IS_PROTECTED) > self.protected_max {
            let back =
                self.lists[usize::from(IS_PROTECTED)].back().expect("a block was just inserted");
            self.take(back);
            self.put(ON_PROBATION, back);
        }
    }

    fn insert(&mut self, node: u32, key: u64, _hint: Hint) {
        let hash = mix(key);
        self.sketch.add(hash);
        self.hashes[node as usize] = hash;
        self.put(IN_WINDOW, node);
        // While the main cache has room, a block that leaves the window enters it.
        if self.list_len(IN_WINDOW) > self.window_max {
            let candidate =
                self.lists[usize::from(IN_WINDOW)].back().expect("a block was just inserted");
            self.take(candidate);
            self.put(ON_PROBATION, candidate);
        }
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
        let (candidate, victim) = (self.candidate(), self.main_back());
        if let (Some(candidate), Some(victim)) = (candidate, victim)
            && self.estimate(candidate) > self.estimate(victim)
        {
            self.take(victim);
            self.take(candidate);
            self.put(ON_PROBATION, candidate);
            return Some(victim);
        }
        let victim = candidate.or(victim).or(self.lists[usize::from(IN_WINDOW)].back())?;
        self.take(victim);
        Some(victim)
    }

    /// Puts the node back in its place. A candidate that took the place stays in the main cache as
    /// well.
    fn restore(&mut self, node: u32) {
        let list = usize::from(self.list_of(node));
        self.links.push_back(&mut self.lists[list], node);
    }

    fn remove(&mut self, node: u32) {
        if self.links.is_linked(node) {
            self.take(node);
        }
    }

    fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.share_out();
        self.sketch.resize(capacity, u64::from(self.sample_capacities) * u64::from(capacity));
    }

    fn prefetch(&self, node: u32, near: bool) {
        let Some(hash) = self.hashes.get(node as usize) else { return };
        if near {
            self.sketch.prefetch(*hash);
        } else {
            prefetch(hash);
        }
        self.links.prefetch(node, near);
    }

    fn prefetch_absent(&self, key: u64, near: bool) {
        if near {
            self.sketch.prefetch(mix(key));
        }
    }

    /// First the candidate, then the blocks on probation, with which the next candidates are
    /// compared; as if the first candidate won every comparison.
    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        let candidate = self.candidate();
        let Some(after) = after else {
            return candidate.or(self.main_back()).or(self.lists[usize::from(IN_WINDOW)].back());
        };
        match self.list_of(after) {
            IN_WINDOW => self.main_back().filter(|_| candidate == Some(after)),
            list => self.links.ahead(after).or_else(|| {
                let protected = self.lists[usize::from(IS_PROTECTED)].back();
                protected.filter(|_| list == ON_PROBATION)
            }),
        }
    }

    fn len(&self) -> u32 {
        self.lists.iter().map(List::len).sum()
    }

    fn metadata_bytes(&self) -> u64 {
        let own = size_of::<Self>() + size_of_val(&*self.hashes);
        own as u64 + self.links.memory_bytes() + self.sketch.memory_bytes()
    }
}
