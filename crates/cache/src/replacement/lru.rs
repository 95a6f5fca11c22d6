//! Least recently used: a doubly linked list by slot number.
//!
//! Does badly on scans and loops larger than the cache: every block is evicted just before it
//! is used again.

const NONE: u32 = u32::MAX;

/// The list; the head is the most recently used slot.
#[derive(Debug)]
pub struct Lru {
    links: Vec<(u32, u32)>,
    head: u32,
    tail: u32,
    len: u32,
}

impl Lru {
    /// An empty list over slot numbers below `slots`.
    pub fn new(slots: u32) -> Self {
        Lru { links: vec![(NONE, NONE); slots as usize], head: NONE, tail: NONE, len: 0 }
    }
    /// Puts `slot`, which is in no list, at the protected end.
    pub fn insert(&mut self, slot: u32) {
        self.links[slot as usize] = (NONE, self.head);
        match self.head {
            NONE => self.tail = slot,
            head => self.links[head as usize].0 = slot,
        }
        self.head = slot;
        self.len += 1;
    }
    /// Moves `slot` to the protected end.
    pub fn touch(&mut self, slot: u32) {
        if self.head != slot {
            self.remove(slot);
            self.insert(slot);
        }
    }
    /// Takes `slot` out.
    pub fn remove(&mut self, slot: u32) {
        let (prev, next) = self.links[slot as usize];
        match prev {
            NONE => self.head = next,
            p => self.links[p as usize].1 = next,
        }
        match next {
            NONE => self.tail = prev,
            n => self.links[n as usize].0 = prev,
        }
        self.len -= 1;
    }
    /// Takes out the least recently used slot.
    pub fn evict(&mut self) -> Option<u32> {
        let tail = self.tail;
        (tail != NONE).then(|| {
            self.remove(tail);
            tail
        })
    }
    /// The least recently used slot.
    pub fn coldest(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }
    /// The slot used next after `slot`.
    pub fn warmer(&self, slot: u32) -> Option<u32> {
        let (prev, _) = self.links[slot as usize];
        (prev != NONE).then_some(prev)
    }
    /// Slots in the list.
    pub fn len(&self) -> u32 {
        self.len
    }
    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicts_in_order_of_last_use() {
        let mut lru = Lru::new(4);
        for s in 0..4 {
            lru.insert(s);
        }
        lru.touch(0);
        lru.remove(2);
        lru.touch(1);
        assert_eq!(
            (lru.evict(), lru.evict(), lru.evict(), lru.evict()),
            (Some(3), Some(0), Some(1), None)
        );
        assert!(lru.is_empty());
    }
}
