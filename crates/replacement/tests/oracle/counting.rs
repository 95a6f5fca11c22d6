//! Policies that count uses: LFU and W-TinyLFU.

use super::{Oracle, percent, take};
use crate::common::Numbers;

/// Blocks with their counts, in order of eviction.
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

/// A count-min sketch as the module documentation of the crate's `sketch.rs` defines it: four rows of counters up to
/// 15, in groups of 32; a use adds one to a key's counter in each row, and after every `sample` uses all
/// counters are halved, at once.
struct Sketch {
    rows: [Vec<u8>; 4],
    uses: u64,
    sample: u64,
}

impl Sketch {
    fn new(capacity: usize, sample_capacities: usize) -> Sketch {
        // Eight keys per group; the number of groups is a power of two.
        let groups = (capacity.max(1024) as f64).log2().ceil().exp2() as usize / 8;
        let sample = ((sample_capacities * capacity) as u64).max(groups as u64 / 64);
        Sketch { rows: [(); 4].map(|()| vec![0; 32 * groups]), uses: 0, sample }
    }

    /// The index of a key's counter in a row. The low bits of the key's hash select the group; five
    /// of its upper half, different ones for each row, select the counter in the group.
    fn place(&self, row: usize, key: u64) -> usize {
        let hash = Numbers(key).next();
        let group = hash % (self.rows[row].len() as u64 / 32);
        (32 * group + (hash >> (32 + 8 * row)) % 32) as usize
    }

    fn add(&mut self, key: u64) {
        for row in 0..4 {
            let place = self.place(row, key);
            let count = &mut self.rows[row][place];
            *count = (*count + 1).min(15);
        }
        self.uses += 1;
        if self.uses >= self.sample {
            self.uses = 0;
            self.rows.iter_mut().flatten().for_each(|count| *count /= 2);
        }
    }

    fn estimate(&self, key: u64) -> u8 {
        (0..4).map(|row| self.rows[row][self.place(row, key)]).min().expect("four rows")
    }

    /// A sketch that has to grow forgets its counts.
    fn resize(&mut self, capacity: usize, sample_capacities: usize) {
        let other = Sketch::new(capacity, sample_capacities);
        if other.rows[0].len() > self.rows[0].len() {
            *self = other;
        } else {
            self.sample = other.sample.max(self.rows[0].len() as u64 / 32 / 64);
        }
    }
}

/// W-TinyLFU. The first element of a vector is the least recently used.
pub struct WTinyLfu {
    window: Vec<u64>,
    probation: Vec<u64>,
    protected: Vec<u64>,
    sketch: Sketch,
    capacity: usize,
    window_percent: usize,
    protected_percent: usize,
    sample_capacities: usize,
}

impl WTinyLfu {
    pub fn new(
        capacity: usize,
        window_percent: usize,
        protected_percent: usize,
        sample_capacities: usize,
    ) -> WTinyLfu {
        WTinyLfu {
            window: Vec::new(),
            probation: Vec::new(),
            protected: Vec::new(),
            sketch: Sketch::new(capacity, sample_capacities),
            capacity,
            window_percent,
            protected_percent,
            sample_capacities,
        }
    }
    fn window_max(&self) -> usize {
        percent(self.capacity, self.window_percent).max(1)
    }
    fn len(&self) -> usize {
        self.window.len() + self.probation.len() + self.protected.len()
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
            if self.sketch.estimate(candidate) <= self.sketch.estimate(victim) {
                return;
            }
            self.probation.push(candidate);
        }
        let _ = take(&mut self.probation, victim) || take(&mut self.protected, victim);
    }
}

impl Oracle for WTinyLfu {
    fn access(&mut self, key: u64, _position: u8) -> bool {
        let main = self.capacity.saturating_sub(self.window_max());
        if take(&mut self.window, key) {
            self.window.push(key);
        } else if take(&mut self.protected, key) {
            self.protected.push(key);
        } else if take(&mut self.probation, key) {
            self.protected.push(key);
            if self.protected.len() > percent(main, self.protected_percent) {
                let back = self.protected.remove(0);
                self.probation.push(back);
            }
        } else {
            if self.len() >= self.capacity {
                self.evict();
            }
            self.sketch.add(key);
            self.window.push(key);
            if self.window.len() > self.window_max() {
                let candidate = self.window.remove(0);
                self.probation.push(candidate);
            }
            return false;
        }
        self.sketch.add(key);
        true
    }
    fn remove(&mut self, key: u64) {
        take(&mut self.window, key);
        take(&mut self.probation, key);
        take(&mut self.protected, key);
    }
    fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.sketch.resize(capacity, self.sample_capacities);
        while self.len() > capacity {
            self.evict();
        }
    }
    fn resident(&self) -> Vec<u64> {
        [&self.window[..], &self.probation, &self.protected].concat()
    }
}
