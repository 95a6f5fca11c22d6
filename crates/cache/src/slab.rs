//! Fixed-capacity slabs and queues by number: no allocation after construction.

/// "Nothing" in links.
pub(crate) const NONE: u32 = u32::MAX;

/// A slab of at most `capacity` items, named by number.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new(capacity: u32) -> Self {
        Slab { items: (0..capacity).map(|_| None).collect(), free: (0..capacity).rev().collect() }
    }
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }
    pub fn capacity(&self) -> usize {
        self.items.len()
    }
    pub fn in_use(&self) -> usize {
        self.items.len() - self.free.len()
    }
    /// # Panics
    /// If the slab is full: callers ask [`Slab::is_full`] first.
    pub fn insert(&mut self, item: T) -> u32 {
        let i = self.free.pop().expect("slab is full");
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
