//! A minimal cache around a policy, and workloads.
#![allow(dead_code)] // (Each test file uses its part.)

use std::collections::HashMap;

use forebay_block::Volume;
use forebay_replacement::{Hint, Parameters, Percent, Policy, Replacement};

pub struct Cache {
    pub policy: Replacement,
    pub index: HashMap<u64, u32>,
    keys: Vec<u64>,
    free: Vec<u32>,
    pub capacity: u32,
    /// Number of blocks that are evicted, cannot leave and are restored before each eviction.
    pub stubborn: usize,
}

impl Cache {
    pub fn new(parameters: &Parameters, nodes: u32, capacity: u32) -> Cache {
        Cache {
            policy: Replacement::new(nodes, capacity, parameters),
            index: HashMap::new(),
            keys: vec![0; nodes as usize],
            free: (0..nodes).rev().collect(),
            capacity,
            stubborn: 0,
        }
    }

    pub fn access(&mut self, key: u64, position: u8) -> bool {
        if let Some(&node) = self.index.get(&key) {
            self.policy.on_access(node);
            return true;
        }
        while self.policy.len() >= self.capacity {
            self.evict(Some(key));
        }
        let node = self.free.pop().expect("a free node");
        let hint = Hint { position: Percent::new(position), volume: Volume(0), chunk: 0 };
        self.policy.insert(node, key, hint);
        self.keys[node as usize] = key;
        self.index.insert(key, node);
        false
    }

    pub fn evict(&mut self, incoming: Option<u64>) -> u64 {
        let stubborn: Vec<u32> =
            (0..self.stubborn).map_while(|_| self.policy.evict(incoming)).collect();
        stubborn.iter().rev().for_each(|&node| self.policy.restore(node));
        let node = self.policy.evict(incoming).expect("something is resident");
        let key = self.keys[node as usize];
        self.index.remove(&key).expect("the victim was resident");
        self.free.push(node);
        key
    }

    pub fn remove(&mut self, key: u64) {
        if let Some(node) = self.index.remove(&key) {
            self.policy.remove(node);
            self.free.push(node);
        }
    }

    pub fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.policy.set_capacity(capacity);
        while self.policy.len() > capacity {
            self.evict(None);
        }
    }

    pub fn resident(&self) -> Vec<u64> {
        let mut keys: Vec<u64> = self.index.keys().copied().collect();
        keys.sort_unstable();
        keys
    }
}

/// Random numbers (SplitMix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    /// The next number between 0 and 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Zipf with exponent 1 over `objects` keys.
pub fn zipf(objects: u64, count: usize, seed: u64) -> Vec<u64> {
    let mut sums: Vec<f64> = Vec::new();
    let mut sum = 0.0;
    for rank in 1..=objects {
        sum += 1.0 / rank as f64;
        sums.push(sum);
    }
    let mut numbers = Numbers(seed);
    let draw = |_| {
        let x = numbers.unit() * sum;
        sums.partition_point(|&s| s < x) as u64
    };
    (0..count).map(draw).collect()
}

/// Zipf, interrupted by loops over a few hundred blocks and by scans of blocks used once.
pub fn mixed(count: usize, seed: u64) -> Vec<u64> {
    let mut numbers = Numbers(seed);
    let zipf = zipf(4000, count, seed + 1);
    let mut keys = Vec::new();
    let mut fresh = 1_000_000;
    while keys.len() < count {
        match numbers.next() % 4 {
            0 => {
                let (length, rounds) = (50 + numbers.next() % 400, 2 + numbers.next() % 3);
                (0..length * rounds).for_each(|i| keys.push(500_000 + i % length));
            }
            1 => {
                let length = 100 + numbers.next() % 500;
                (0..length).for_each(|i| keys.push(fresh + i));
                fresh += length;
            }
            _ => {
                let at = keys.len();
                keys.extend(zipf.iter().skip(at).take(1000));
            }
        }
    }
    keys.truncate(count);
    keys
}

/// Twenty sizes from `smallest` to `largest`, in geometric progression.
pub fn twenty_sizes(smallest: f64, largest: f64) -> Vec<u32> {
    let step = (largest / smallest).ln() / 19.0;
    (0..20).map(|i| (smallest * (step * f64::from(i)).exp()).round() as u32).collect()
}
