//! Fixed-capacity slabs and queues by number: no allocation after construction.
//!
//! A slab reserves room for its capacity when it is made, and uses a new number only if no freed one is left. So a slab
//! sized for the worst case touches memory only for the most items that were ever in use at once.

/// "Nothing" in links.
pub(crate) const NONE: u32 = u32::MAX;

/// A slab of at most `capacity` items, named by number.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    /// Items ever in use.
    items: Vec<Option<T>>,
    /// The vacant ones among them.
    free: Vec<u32>,
    capacity: u32,
}

impl<T> Slab<T> {
    pub fn new(capacity: u32) -> Self {
        let room = capacity as usize;
        Slab { items: Vec::with_capacity(room), free: Vec::with_capacity(room), capacity }
    }
    pub fn is_full(&self) -> bool {
        self.in_use() == self.capacity()
    }
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }
    /// One more than the highest number that an item has had.
    pub fn numbers(&self) -> u32 {
        self.items.len() as u32
    }
    /// Bytes of memory touched so far.
    pub fn memory_bytes(&self) -> u64 {
        (self.items.len() * (size_of::<Option<T>>() + size_of::<u32>())) as u64
    }
    pub fn in_use(&self) -> usize {
        self.items.len() - self.free.len()
    }
    /// # Panics
    /// If the slab is full: callers ask [`Slab::is_full`] first.
    pub fn insert(&mut self, item: T) -> u32 {
        assert!(!self.is_full(), "slab is full");
        let Some(i) = self.free.pop() else {
            self.items.push(Some(item));
            return self.items.len() as u32 - 1;
        };
        self.items[i as usize] = Some(item);
        i
    }
    pub fn remove(&mut self, i: u32) -> T {
        self.free.push(i);
        self.items[i as usize].take().expect("vacant slab item removed")
    }
    pub fn get(&self, i: u32) -> Option<&T> {
        self.items.get(i as usize)?.as_ref()
    }
}

impl<T> core::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, i: u32) -> &T {
        self.items[i as usize].as_ref().expect("vacant slab item")
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, i: u32) -> &mut T {
        self.items[i as usize].as_mut().expect("vacant slab item")
    }
}

/// A first-in first-out list of slab items linked through a `next` field the items carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fifo {
    pub head: u32,
    pub tail: u32,
}

impl Fifo {
    pub const EMPTY: Fifo = Fifo { head: NONE, tail: NONE };

    pub fn is_empty(self) -> bool {
        self.head == NONE
    }
}

/// What a [`Fifo`] can link.
pub(crate) trait Linked {
    fn next(&mut self) -> &mut u32;
}

impl<T: Linked> Slab<T> {
    pub fn push_back(&mut self, list: &mut Fifo, i: u32) {
        *self[i].next() = NONE;
        match list.tail {
            NONE => list.head = i,
            t => *self[t].next() = i,
        }
        list.tail = i;
    }
    pub fn push_front(&mut self, list: &mut Fifo, i: u32) {
        *self[i].next() = list.head;
        if list.tail == NONE {
            list.tail = i;
        }
        list.head = i;
    }
    pub fn pop_front(&mut self, list: &mut Fifo) -> Option<u32> {
        let i = list.head;
        if i == NONE {
            return None;
        }
        list.head = *self[i].next();
        if list.head == NONE {
            list.tail = NONE;
        }
        Some(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_takes_memory_for_what_was_in_use_at_once_and_numbers_the_lowest_first() {
        let mut slab: Slab<u64> = Slab::new(1 << 20);
        assert_eq!(slab.memory_bytes(), 0);
        for round in 0..100 {
            let numbers: Vec<u32> = (0..3).map(|n| slab.insert(round + n)).collect();
            assert!(numbers.iter().all(|&i| i < 3), "{numbers:?}");
            numbers.into_iter().for_each(|i| assert!(slab.remove(i) >= round));
        }
        assert_eq!(slab.memory_bytes(), 3 * (16 + 4));
        assert!(slab.in_use() == 0 && slab.capacity() == 1 << 20 && !slab.is_full());
    }

    #[test]
    #[should_panic(expected = "slab is full")]
    fn a_full_slab_takes_no_more() {
        let mut slab = Slab::new(2);
        (0..3).for_each(|n| {
            slab.insert(n);
        });
    }
}
