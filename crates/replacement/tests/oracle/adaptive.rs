//! 2Q and ARC. The first element of a vector is the oldest.

use super::{Oracle, find, percent, take};

/// The full version of 2Q, section 3.2 of the paper.
#[derive(Default)]
pub struct TwoQ {
    pub a1in: Vec<u64>,
    pub a1out: Vec<u64>,
    pub am: Vec<u64>,
    pub capacity: usize,
    pub in_percent: usize,
    pub out_percent: usize,
}

impl TwoQ {
    fn reclaim(&mut self) {
        if self.a1in.len() > percent(self.capacity, self.in_percent) || self.am.is_empty() {
            let key = self.a1in.remove(0);
            self.a1out.push(key);
        } else {
            self.am.remove(0);
        }
    }
}

impl Oracle for TwoQ {
    fn access(&mut self, key: u64, _position: u8) -> bool {
        if take(&mut self.am, key) {
            self.am.push(key);
            return true;
        }
        if find(&self.a1in, key).is_some() {
            return true;
        }
        let was_ghost = take(&mut self.a1out, key);
        if self.a1in.len() + self.am.len() >= self.capacity {
            self.reclaim();
        }
        if was_ghost {
            self.am.push(key)
        } else {
            self.a1in.push(key)
        };
        let out_max = percent(self.capacity, self.out_percent);
        self.a1out.drain(..self.a1out.len().saturating_sub(out_max));
        false
    }
    fn remove(&mut self, key: u64) {
        take(&mut self.a1in, key);
        take(&mut self.am, key);
    }
    fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        while self.a1in.len() + self.am.len() > capacity {
            self.reclaim();
        }
    }
    fn resident(&self) -> Vec<u64> {
        [&self.a1in[..], &self.am].concat()
    }
}

/// Figure 4 of the ARC paper.
#[derive(Default)]
pub struct Arc {
    pub t1: Vec<u64>,
    pub t2: Vec<u64>,
    pub b1: Vec<u64>,
    pub b2: Vec<u64>,
    pub p: f64,
    pub c: usize,
}

impl Arc {
    fn replace(&mut self, in_b2: bool) {
        let t1 = self.t1.len() as f64;
        if (!self.t1.is_empty() && (t1 > self.p || (in_b2 && t1 == self.p))) || self.t2.is_empty() {
            let key = self.t1.remove(0);
            self.b1.push(key);
        } else {
            let key = self.t2.remove(0);
            self.b2.push(key);
        }
    }
    fn is_full(&self) -> bool {
        self.t1.len() + self.t2.len() >= self.c
    }
    fn l1(&self) -> usize {
        self.t1.len() + self.b1.len()
    }
    fn all(&self) -> usize {
        self.l1() + self.t2.len() + self.b2.len()
    }
}

impl Oracle for Arc {
    fn access(&mut self, key: u64, _position: u8) -> bool {
        // Case I.
        if take(&mut self.t1, key) || take(&mut self.t2, key) {
            self.t2.push(key);
            return true;
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        let (in_b1, in_b2) = (take(&mut self.b1, key), take(&mut self.b2, key));
        if in_b1 || in_b2 {
            // Cases II and III.
            if in_b1 {
                self.p = (self.p + if b1 >= b2 { 1.0 } else { b2 / b1 }).min(self.c as f64);
            } else {
                self.p = (self.p - if b2 >= b1 { 1.0 } else { b1 / b2 }).max(0.0);
            }
            if self.is_full() {
                self.replace(in_b2);
            }
            self.t2.push(key);
            // This loop runs only after the cache was made smaller.
            while self.l1() > self.c && !self.b1.is_empty() {
                self.b1.remove(0);
            }
            while self.all() > 2 * self.c && !self.b2.is_empty() {
                self.b2.remove(0);
            }
            return false;
        }
        // Case IV. (Loops instead of conditions: the cache may have been made smaller.)
        let full = self.is_full();
        if full && self.t1.len() == self.c {
            self.t1.remove(0);
            self.b1.clear();
        } else {
            while self.l1() >= self.c && !self.b1.is_empty() {
                self.b1.remove(0);
            }
            if full {
                self.replace(false);
            }
        }
        while self.all() >= 2 * self.c && !self.b2.is_empty() {
            self.b2.remove(0);
        }
        self.t1.push(key);
        false
    }
    fn remove(&mut self, key: u64) {
        take(&mut self.t1, key);
        take(&mut self.t2, key);
    }
    fn resize(&mut self, capacity: usize) {
        self.c = capacity;
        self.p = self.p.min(capacity as f64);
        while self.t1.len() + self.t2.len() > capacity {
            self.replace(false);
        }
    }
    fn resident(&self) -> Vec<u64> {
        [&self.t1[..], &self.t2].concat()
    }
}
