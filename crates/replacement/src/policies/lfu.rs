//! LFU with ageing (J. T. Robinson and M. V. Devarakonda, *Data cache management using
//! frequency-based replacement*, SIGMETRICS 1990, also halve counts): each block has a count of its
//! uses while it is resident, 1 when it comes in. The block with the lowest count is evicted; among
//! equals, the one that has had that count for the longest time. After `ageing_capacities` times
//! the capacity accesses, all counts are halved (never below 1).
//!
//! Counts are limited to 255; libCacheSim's `lfu` has no limit and no ageing
//! (`ageing_capacities = 0`). There is a list for each count. Halving joins the lists in pairs, in
//! 255 steps, and touches no block: each block records the halving at which its stored count was
//! correct.
//!
//! Performs badly when the set of frequently used blocks changes; the slower the ageing, the worse.

use crate::links::{Links, List};
use crate::parameters::{Parameter, Parameters};
use crate::policy::{About, Documented, Hint, Policy, Tier};

const AGEING: Parameter = Parameter {
    name: "ageing_capacities",
    unit: "times the capacity",
    default: 10,
    min: 0,
    max: 1_000_000,
    meaning: "number of accesses after which all counts are halved; 0: never",
};

/// The largest count; counts start at 1.
const COUNT_MAX: usize = 255;

/// See the module.
#[derive(Debug)]
pub struct Lfu {
    links: Links,
    /// The list of each count. Its back is the block that has had the count for the longest time.
    lists: Box<[List; COUNT_MAX + 1]>,
    counts: Box<[u8]>,
    /// The number of halvings when the count of each node was stored.
    halved: Box<[u32]>,
    halvings: u32,
    /// All lists below this count are empty.
    lowest: usize,
    len: u32,
    capacity: u32,
    ageing_capacities: u32,
    accesses: u64,
    steps: u64,
}

impl Lfu {
    fn count(&self, node: u32) -> usize {
        let halvings = self.halvings.wrapping_sub(self.halved[node as usize]).min(8);
        usize::from((u32::from(self.counts[node as usize]) >> halvings).max(1) as u8)
    }

    fn set_count(&mut self, node: u32, count: usize) {
        self.counts[node as usize] = count as u8;
        self.halved[node as usize] = self.halvings;
        self.lowest = self.lowest.min(count);
    }

    fn accessed(&mut self) {
        self.accesses += 1;
        let interval = u64::from(self.ageing_capacities) * u64::from(self.capacity);
        if interval > 0 && self.accesses >= interval {
            self.accesses = 0;
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.halvings = self.halvings.wrapping_add(1);
        for count in 2..=COUNT_MAX {
            // Blocks with the lower count are evicted first, so they go behind the others.
            let mut lower = core::mem::take(&mut self.lists[count / 2]);
            let mut higher = core::mem::take(&mut self.lists[count]);
            self.links.append(&mut higher, &mut lower);
            self.lists[count / 2] = higher;
        }
        self.lowest = 1;
        self.steps += COUNT_MAX as u64;
    }

    /// The lowest count of any block.
    fn lowest(&self) -> Option<usize> {
        (self.lowest..=COUNT_MAX).find(|&count| !self.lists[count].is_empty())
    }

    fn take(&mut self, node: u32) -> usize {
        let count = self.count(node);
        self.links.remove(&mut self.lists[count], node);
        count
    }
}

impl Documented for Lfu {
    const ABOUT: About = About {
        source: "folklore; ageing as in Robinson and Devarakonda, SIGMETRICS 1990",
        weakness: "performs badly when the set of frequently used blocks changes",
        tiers: Tier::ALL,
        parameters: &[AGEING],
    };
}

impl Policy for Lfu {
    fn new(nodes: u32, capacity: u32, parameters: &Parameters) -> Self {
        Lfu {
            links: Links::new(nodes),
            lists: Box::new([List::EMPTY; COUNT_MAX + 1]),
            counts: vec![1; nodes as usize].into(),
            halved: vec![0; nodes as usize].into(),
            halvings: 0,
            lowest: 1,
            len: 0,
            capacity,
            ageing_capacities: parameters.value(&AGEING),
            accesses: 0,
            steps: 0,
        }
    }

    fn on_access(&mut self, node: u32) {
        let count = (self.take(node) + 1).min(COUNT_MAX);
        self.set_count(node, count);
        self.links.push_front(&mut self.lists[count], node);
        self.accessed();
    }

    fn insert(&mut self, node: u32, _key: u64, _hint: Hint) {
        self.set_count(node, 1);
        self.links.push_front(&mut self.lists[1], node);
        self.len += 1;
        self.accessed();
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
        self.lowest = self.lowest()?;
        let node = self.lists[self.lowest].back()?;
        self.take(node);
        self.len -= 1;
        Some(node)
    }

    fn restore(&mut self, node: u32) {
        let count = self.count(node);
        self.set_count(node, count);
        self.links.push_back(&mut self.lists[count], node);
        self.len += 1;
    }

    fn remove(&mut self, node: u32) {
        if self.links.is_linked(node) {
            self.take(node);
            self.len -= 1;
        }
    }

    fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        match after {
            None => self.lists[self.lowest()?].back(),
            Some(node) => self
                .links
                .ahead(node)
                .or_else(|| self.lists[self.count(node) + 1..].iter().find_map(List::back)),
        }
    }

    fn len(&self) -> u32 {
        self.len
    }

    fn metadata_bytes(&self) -> u64 {
        let lists = size_of_val(&*self.lists) + size_of_val(&*self.counts);
        let own = size_of::<Self>() + lists + size_of_val(&*self.halved);
        own as u64 + self.links.memory_bytes()
    }

    fn steps_max(_parameters: &Parameters) -> u64 {
        COUNT_MAX as u64
    }

    fn steps(&self) -> u64 {
        self.steps
    }
}
