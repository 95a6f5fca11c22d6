//! LRU, FIFO, and LRU with positions. The first element of a vector is evicted next.

use super::{Oracle, find, take};

pub struct Lru {
    pub list: Vec<u64>,
    pub capacity: usize,
}

impl Oracle for Lru {
    fn access(&mut self, key: u64, _position: u8) -> bool {
        let hit = take(&mut self.list, key);
        if !hit && self.list.len() >= self.capacity {
            self.list.remove(0);
        }
        self.list.push(key);
        hit
    }
    fn remove(&mut self, key: u64) {
        take(&mut self.list, key);
    }
    fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.list.drain(..self.list.len().saturating_sub(capacity));
    }
    fn resident(&self) -> Vec<u64> {
        self.list.clone()
    }
}

pub struct Fifo {
    pub list: Vec<u64>,
    pub capacity: usize,
}

impl Oracle for Fifo {
    fn access(&mut self, key: u64, _position: u8) -> bool {
        if find(&self.list, key).is_some() {
            return true;
        }
        if self.list.len() >= self.capacity {
            self.list.remove(0);
        }
        self.list.push(key);
        false
    }
    fn remove(&mut self, key: u64) {
        take(&mut self.list, key);
    }
    fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.list.drain(..self.list.len().saturating_sub(capacity));
    }
    fn resident(&self) -> Vec<u64> {
        self.list.clone()
    }
}

/// HR LRU and Priority LRU: a block enters with a share of the others behind it, in steps of one in
/// `k`.
pub struct Positioned {
    pub list: Vec<u64>,
    pub capacity: usize,
    pub k: usize,
}

impl Oracle for Positioned {
    fn access(&mut self, key: u64, position: u8) -> bool {
        if take(&mut self.list, key) {
            self.list.push(key);
            return true;
        }
        if self.list.len() >= self.capacity {
            self.list.remove(0);
        }
        // The paper: `position` percent of the queue is evicted first. Here this is rounded to the
        // nearest k-th; ahead of the block are whole sub-queues, whose lengths are rounded down.
        let below = (usize::from(position) * self.k + 50) / 100;
        let ahead = self.list.len() * (self.k - below) / self.k;
        self.list.insert(self.list.len() - ahead, key);
        false
    }
    fn remove(&mut self, key: u64) {
        take(&mut self.list, key);
    }
    fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.list.drain(..self.list.len().saturating_sub(capacity));
    }
    fn resident(&self) -> Vec<u64> {
        self.list.clone()
    }
}
