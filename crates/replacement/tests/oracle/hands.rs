//! Policies with a hand: CLOCK, SIEVE, S3-FIFO. The first element of a vector is the oldest.

use super::{Oracle, find, percent, take};

pub struct Clock {
    pub ring: Vec<(u64, u32)>,
    pub capacity: usize,
    pub count_max: u32,
    pub steps_max: usize,
}

impl Clock {
    fn evict(&mut self) {
        let mut steps = 0;
        while self.ring[0].1 > 0 && steps < self.steps_max {
            let (key, count) = self.ring.remove(0);
            self.ring.push((key, count - 1));
            steps += 1;
        }
        self.ring.remove(0);
    }
}

impl Oracle for Clock {
    fn access(&mut self, key: u64, _position: u8) -> bool {
        if let Some(block) = self.ring.iter_mut().find(|b| b.0 == key) {
            block.1 = (block.1 + 1).min(self.count_max);
            return true;
        }
        if self.ring.len() >= self.capacity {
            self.evict();
        }
        self.ring.push((key, 0));
        false
    }
    fn remove(&mut self, key: u64) {
        self.ring.retain(|b| b.0 != key);
    }
    fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.ring.len() > capacity {
            self.evict();
        }
    }
    fn resident(&self) -> Vec<u64> {
        self.ring.iter().map(|b| b.0).collect()
    }
}

/// Algorithm 1 of the SIEVE paper, with the hand as the key it points at.
pub struct Sieve {
    pub queue: Vec<(u64, bool)>,
    pub hand: Option<u64>,
    pub capacity: usize,
    pub steps_max: usize,
}

impl Sieve {
    fn at(&self, key: u64) -> usize {
        self.queue.iter().position(|b| b.0 == key).expect("in the queue")
    }
    /// The block towards the head, where new ones enter.
    fn younger(&self, at: usize) -> Option<u64> {
        self.queue.get(at + 1).map(|b| b.0)
    }
    fn evict(&mut self) {
        let mut at = self.hand.map_or(0, |key| self.at(key));
        let mut steps = 0;
        while self.queue[at].1 && steps < self.steps_max {
            self.queue[at].1 = false;
            at = (at + 1) % self.queue.len();
            steps += 1;
        }
        self.hand = self.younger(at);
        self.queue.remove(at);
    }
}

impl Oracle for Sieve {
    fn access(&mut self, key: u64, _position: u8) -> bool {
        if let Some(block) = self.queue.iter_mut().find(|b| b.0 == key) {
            block.1 = true;
            return true;
        }
        if self.queue.len() >= self.capacity {
            self.evict();
        }
        self.queue.push((key, false));
        false
    }
    fn remove(&mut self, key: u64) {
        if self.hand == Some(key) {
            self.hand = self.younger(self.at(key));
        }
        self.queue.retain(|b| b.0 != key);
    }
    fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.queue.len() > capacity {
            self.evict();
        }
    }
    fn resident(&self) -> Vec<u64> {
        self.queue.iter().map(|b| b.0).collect()
    }
}

#[derive(Default)]
pub struct S3Fifo {
    pub small: Vec<(u64, u32)>,
    pub main: Vec<(u64, u32)>,
    pub ghosts: Vec<u64>,
    pub capacity: usize,
    pub small_percent: usize,
    pub ghost_percent: usize,
    pub uses_to_move: u32,
    pub steps_max: usize,
}

impl S3Fifo {
    fn evict(&mut self) {
        let small_max = percent(self.capacity, self.small_percent).max(1).min(self.capacity);
        let main_max = self.capacity - small_max;
        let mut steps = 0;
        if self.main.len() <= main_max {
            while !self.small.is_empty() {
                let (key, count) = self.small.remove(0);
                if count < self.uses_to_move || steps == self.steps_max {
                    self.ghosts.push(key);
                    return;
                }
                self.main.push((key, 0));
                steps += 1;
            }
        }
        while !self.main.is_empty() {
            let (key, count) = self.main.remove(0);
            if count == 0 || steps == self.steps_max {
                return;
            }
            self.main.push((key, count - 1));
            steps += 1;
        }
        self.ghosts.push(self.small.remove(0).0);
    }
    fn cut(&mut self) {
        let ghosts_max = percent(self.capacity, self.ghost_percent);
        self.ghosts.drain(..self.ghosts.len().saturating_sub(ghosts_max));
    }
}

impl Oracle for S3Fifo {
    fn access(&mut self, key: u64, _position: u8) -> bool {
        if let Some(block) = self.small.iter_mut().chain(&mut self.main).find(|b| b.0 == key) {
            block.1 = (block.1 + 1).min(3);
            return true;
        }
        let was_ghost = take(&mut self.ghosts, key);
        if self.small.len() + self.main.len() >= self.capacity {
            self.evict();
        }
        if was_ghost {
            self.main.push((key, 0))
        } else {
            self.small.push((key, 0))
        };
        self.cut();
        false
    }
    fn remove(&mut self, key: u64) {
        self.small.retain(|b| b.0 != key);
        self.main.retain(|b| b.0 != key);
    }
    /// Ghosts are trimmed when the next block comes in.
    fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.small.len() + self.main.len() > capacity {
            self.evict();
        }
    }
    fn resident(&self) -> Vec<u64> {
        let resident: Vec<u64> = self.small.iter().chain(&self.main).map(|b| b.0).collect();
        assert!(resident.iter().all(|&key| find(&self.ghosts, key).is_none()));
        resident
    }
}
