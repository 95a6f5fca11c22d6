//! W-TinyLFU (G. Einziger, R. Friedman and B. Manes, *TinyLFU: a highly efficient cache admission
//! policy*, ACM Transactions on Storage 2017): new blocks enter a small LRU window. What leaves the window is a candidate
//! for the main cache, which is segmented: blocks on probation, and protected ones that were used
//! there. If the main cache is full, the candidate replaces the next on probation only if it was used
//! more often, by a sketch of recent uses, hits and misses, of all keys; else the candidate gives way.
//!
//! As in the paper and in Caffeine: a window of 1 %, 80 % of the main cache protected, counts up to
//! 15, halved every 10 times the capacity uses. Caffeine also adapts the window, and lets a
//! loser in at random; both are left out. libCacheSim's `wtinylfu` has another sketch (no ageing by
//! sample, a minimal increment), so that its counts differ.
//!
//! Does badly on bursts of new blocks that are used again soon: the window is small.

use std::cell::Cell;

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
    meaning: "size of its protected segment",
};
const SAMPLE: Parameter = Parameter {
    name: "sample_capacities",
    unit: "times the capacity",
    default: 10,
    min: 1,
    max: 1_000_000,
    meaning: "uses between two halvings of the sketch",
};

/// The lists, by number.
const IN_WINDOW: u8 = 0;
const ON_PROBATION: u8 = 1;
const IS_PROTECTED: u8 = 2;

/// Who gives way, and the candidate that replaces it in the main cache if it was in there.
type Choice = (u32, Option<u32>);

/// See the module.
#[derive(Debug)]
pub struct WTinyLfu {
    links: Links,
    lists: [List; 3],
    /// The list of each node, or that from which it was evicted.
    list_of: Box<[u8]>,
    hashes: Box<[u64]>,
    sketch: Sketch,
    /// What [`WTinyLfu::choose`] said last, until something happens.
    chosen: Cell<Option<Choice>>,
    capacity: u32,
    window_percent: u32,
    protected_percent: u32,
    sample_capacities: u32,
}

impl WTinyLfu {
    fn window_max(&self) -> u32 {
        percent_of(self.capacity, self.window_percent).max(1)
    }

    fn list_len(&self, list: u8) -> u32 {
        self.lists[usize::from(list)].len()
    }

    fn put(&mut self, list: u8, node: u32) {
        self.chosen.set(None);
        self.list_of[node as usize] = list;
        self.links.push_front(&mut self.lists[usize::from(list)], node);
    }

    fn take(&mut self, node: u32) {
        self.chosen.set(None);
        let list = usize::from(self.list_of[node as usize]);
        self.links.remove(&mut self.lists[list], node);
    }

    /// The block of the main cache that would give way.
    fn main_back(&self) -> Option<u32> {
        let [_, probation, protected] = &self.lists;
        probation.back().or(protected.back())
    }

    fn estimate(&self, node: u32) -> u8 {
        self.sketch.estimate(self.hashes[node as usize])
    }

    /// `None` if nothing is resident. Asked several times between two things that happen.
    fn choose(&self) -> Option<Choice> {
        let chosen = self.chosen.get().or_else(|| self.compare());
        self.chosen.set(chosen);
        chosen
    }

    fn compare(&self) -> Option<Choice> {
        // The window is about to receive a block.
        let overflows = self.list_len(IN_WINDOW) >= self.window_max();
        let candidate = self.lists[usize::from(IN_WINDOW)].back();
        match (candidate.filter(|_| overflows), self.main_back()) {
            (Some(candidate), Some(victim)) => {
                if self.estimate(candidate) > self.estimate(victim) {
                    Some((victim, Some(candidate)))
                } else {
                    Some((candidate, None))
                }
            }
            (_, Some(victim)) => Some((victim, None)),
            (_, None) => candidate.map(|candidate| (candidate, None)),
        }
    }
}

impl Documented for WTinyLfu {
    const ABOUT: About = About {
        source: "Einziger, Friedman and Manes, ACM Transactions on Storage 2017",
        weakness: "does badly on bursts of new blocks that are used again soon",
        tiers: Tier::ALL,
        parameters: &[WINDOW, PROTECTED, SAMPLE],
    };
}

impl Policy for WTinyLfu {
    fn new(nodes: u32, capacity: u32, parameters: &Parameters) -> Self {
        let sample_capacities = parameters.value(&SAMPLE);
        WTinyLfu {
            links: Links::new(nodes),
            lists: [List::EMPTY; 3],
            list_of: vec![IN_WINDOW; nodes as usize].into(),
            hashes: vec![0; nodes as usize].into(),
            chosen: Cell::new(None),
            sketch: Sketch::new(capacity, u64::from(sample_capacities) * u64::from(capacity)),
            capacity,
            window_percent: parameters.value(&WINDOW),
            protected_percent: parameters.value(&PROTECTED),
            sample_capacities,
        }
    }

    fn on_access(&mut self, node: u32) {
        self.chosen.set(None);
        self.sketch.add(self.hashes[node as usize]);
        let list = self.list_of[node as usize];
        if list != ON_PROBATION {
            self.links.move_to_front(&mut self.lists[usize::from(list)], node);
            return;
        }
        self.take(node);
        self.put(IS_PROTECTED, node);
        let main_max = self.capacity.saturating_sub(self.window_max());
        if self.list_len(IS_PROTECTED) > percent_of(main_max, self.protected_percent) {
            let back = self.lists[usize::from(IS_PROTECTED)].back().expect("one was put in");
            self.take(back);
            self.put(ON_PROBATION, back);
        }
    }

    fn insert(&mut self, node: u32, key: u64, _hint: Hint) {
        self.hashes[node as usize] = mix(key);
        self.sketch.add(self.hashes[node as usize]);
        self.put(IN_WINDOW, node);
        // While the main cache has room, what leaves the window enters it.
        if self.list_len(IN_WINDOW) > self.window_max() {
            let candidate = self.lists[usize::from(IN_WINDOW)].back().expect("one was put in");
            self.take(candidate);
            self.put(ON_PROBATION, candidate);
        }
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
        let (victim, candidate) = self.choose()?;
        self.take(victim);
        if let Some(candidate) = candidate {
            self.take(candidate);
            self.put(ON_PROBATION, candidate);
        }
        Some(victim)
    }

    /// The place that it had. A candidate that took it stays in the main cache as well.
    fn restore(&mut self, node: u32) {
        self.chosen.set(None);
        let list = usize::from(self.list_of[node as usize]);
        self.links.push_back(&mut self.lists[list], node);
    }

    fn remove(&mut self, node: u32) {
        if self.links.is_linked(node) {
            self.take(node);
        }
    }

    fn set_capacity(&mut self, capacity: u32) {
        self.chosen.set(None);
        self.capacity = capacity;
        self.sketch.resize(capacity, u64::from(self.sample_capacities) * u64::from(capacity));
    }

    fn prefetch(&self, node: u32, near: bool) {
        let Some(hash) = self.hashes.get(node as usize) else { return };
        if near {
            self.sketch.prefetch(*hash);
        } else {
            prefetch(hash);
            prefetch(&self.list_of[node as usize]);
        }
        self.links.prefetch(node, near);
    }

    fn prefetch_absent(&self, key: u64, near: bool) {
        if near {
            self.sketch.prefetch(mix(key));
        }
    }

    /// The next one, then those on probation, which the next candidates are compared with.
    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        let (first, _) = self.choose()?;
        let Some(after) = after else { return Some(first) };
        let next = if after == first && self.list_of[first as usize] == IN_WINDOW {
            self.main_back()
        } else {
            self.links.ahead(after).or_else(|| {
                let protected = self.lists[usize::from(IS_PROTECTED)].back();
                protected.filter(|_| self.list_of[after as usize] == ON_PROBATION)
            })
        };
        next.filter(|&next| next != first)
    }

    fn len(&self) -> u32 {
        self.lists.iter().map(List::len).sum()
    }

    fn metadata_bytes(&self) -> u64 {
        let own = size_of::<Self>() + size_of_val(&*self.list_of) + size_of_val(&*self.hashes);
        own as u64 + self.links.memory_bytes() + self.sketch.memory_bytes()
    }
}
