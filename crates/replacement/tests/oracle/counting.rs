//! Policies that count uses: LFU and W-TinyLFU.

use std::collections::HashMap;

use super::{Oracle, find, percent, take};

/// Blocks with their counts, those that give way first in front.
pub struct Lfu {
    pub blocks: Vec<(u64, u32)>,
    pub capacity: usize,
    pub ageing: usize,
    pub accesses: usize,
}

impl Oracle for Lfu {
    fn access(&mut self, key: u64, _position: u8) -> bool {
        let at = self.blocks.iter().position(|b| b.0 == key);
        let count = match at {
            Some(at) => (self.blocks.remove(at).1 + 1).min(255),
            None => 1,
        };
        if at.is_none() && self.blocks.len() >= self.capacity {
            self.blocks.remove(0);
        }
        let place = self.blocks.iter().take_while(|b| b.1 <= count).count();
        self.blocks.insert(place, (key, count));
        self.accesses += 1;
        let interval = self.ageing * self.capacity;
        if interval > 0 && self.accesses >= interval {
            self.accesses = 0;
            self.blocks.iter_mut().for_each(|b| b.1 = (b.1 / 2).max(1));
        }
        at.is_some()
    }
    fn remove(&mut self, key: u64) {
        self.blocks.retain(|b| b.0 != key);
    }
    fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.blocks.drain(..self.blocks.len().saturating_sub(capacity));
    }
    fn resident(&self) -> Vec<u64> {
        self.blocks.iter().map(|b| b.0).collect()
    }
}

/// W-TinyLFU with exact counts in the place of a sketch. The first of a vector is the least
/// recently used.
#[derive(Default)]
pub struct WTinyLfu {
    pub window: Vec<u64>,
    pub probation: Vec<u64>,
    pub protected: Vec<u64>,
    pub counts: HashMap<u64, u32>,
    pub uses: usize,
    pub capacity: usize,
    pub window_percent: usize,
    pub protected_percent: usize,
    pub sample: usize,
}

impl WTinyLfu {
    fn window_max(&self) -> usize {
        percent(self.capacity, self.window_percent).max(1)
    }
    fn len(&self) -> usize {
        self.window.len() + self.probation.len() + self.protected.len()
    }
    fn count(&self, key: u64) -> u32 {
        self.counts.get(&key).copied().unwrap_or(0)
    }
    fn used(&mut self, key: u64) {
        let count = self.counts.entry(key).or_default();
        *count = (*count + 1).min(15);
        self.uses += 1;
        if self.uses >= (self.sample * self.capacity).max(2) {
            self.uses = 0;
            self.counts.values_mut().for_each(|count| *count /= 2);
        }
    }
    fn evict(&mut self) {
        let overflows = self.window.len() >= self.window_max();
        let main = self.probation.first().or(self.protected.first()).copied();
        let Some(victim) = main else {
            self.window.remove(0);
            return;
        };
        if overflows && !self.window.is_empty() {
            let candidate = self.window.remove(0);
            if self.count(candidate) <= self.count(victim) {
                return;
            }
            self.probation.push(candidate);
        }
        take(&mut self.probation, victim);
        take(&mut self.protected, victim);
    }
}

impl Oracle for WTinyLfu {
    fn access(&mut self, key: u64, _position: u8) -> bool {
        let hit = find(&self.resident(), key).is_some();
        if !hit && self.len() >= self.capacity {
            self.evict();
        }
        self.used(key);
        if take(&mut self.window, key) || !hit {
            self.window.push(key);
            if !hit && self.window.len() > self.window_max() {
                let candidate = self.window.remove(0);
                self.probation.push(candidate);
            }
            return hit;
        }
        let was_on_probation = take(&mut self.probation, key);
        take(&mut self.protected, key);
        self.protected.push(key);
        let main = self.capacity.saturating_sub(self.window_max());
        if was_on_probation && self.protected.len() > percent(main, self.protected_percent) {
            let back = self.protected.remove(0);
            self.probation.push(back);
        }
        true
    }
    fn remove(&mut self, key: u64) {
        take(&mut self.window, key);
        take(&mut self.probation, key);
        take(&mut self.protected, key);
    }
    fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.len() > capacity {
            self.evict();
        }
    }
    fn resident(&self) -> Vec<u64> {
        [&self.window[..], &self.probation, &self.protected].concat()
    }
}
