//! Slabs and queues of fixed capacity, with numbered items: no allocation after construction.
//!
//! A slab reserves room for its capacity when it is made, and uses a new number only if no freed
//! one is left. So a slab sized for the worst case touches memory only for the largest number of
//! items ever in use at once.

/// The number of an item in a slab. Each slab has a key type of its own, so that the numbers of
/// different slabs cannot be confused.
pub(crate) trait Key: Copy + Eq {
    /// Stands for no item in links.
    const NONE: Self;

    /// The key with this number.
    fn new(number: u32) -> Self;

    /// The number of the key.
    fn number(self) -> u32;
}

/// Declares types for the numbers of items.
macro_rules! keys {
    ($($(#[$about:meta])* $name:ident)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub(crate) struct $name(u32);

        impl $name {
            /// Stands for no item in links.
            pub const NONE: $name = $name(u32::MAX);
        }

        impl $crate::slab::Key for $name {
            const NONE: $name = $name::NONE;

            #[inline]
            fn new(number: u32) -> $name {
                $name(number)
            }

            #[inline]
            fn number(self) -> u32 {
                self.0
            }
        }
    )*};
}
pub(crate) use keys;

keys! {
    /// A request in flight, in the front. Drivers name it by a `RequestId` of their own.
    RequestIndex
    /// A transfer in progress, in its shard.
    TransferIndex
    /// A piece that waits, in its shard.
    WaiterIndex
    /// A stretch of records to destage, in its shard.
    StretchIndex
}

/// A slab of at most `capacity` items, named by number.
#[derive(Debug)]
pub(crate) struct Slab<K, T> {
    /// The items ever in use.
    items: Vec<Option<T>>,
    /// The vacant ones among them.
    free: Vec<K>,
    capacity: u32,
}

impl<K: Key, T> Slab<K, T> {
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

    /// The keys of all items ever in use; some may be vacant.
    pub fn keys(&self) -> impl Iterator<Item = K> + use<K, T> {
        (0..self.items.len() as u32).map(K::new)
    }

    /// Bytes of memory touched so far.
    pub fn memory_bytes(&self) -> u64 {
        (self.items.len() * (size_of::<Option<T>>() + size_of::<K>())) as u64
    }

    pub fn in_use(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// # Panics
    /// If the slab is full: callers check [`Slab::is_full`] first.
    pub fn insert(&mut self, item: T) -> K {
        assert!(!self.is_full(), "slab is full");
        let Some(i) = self.free.pop() else {
            self.items.push(Some(item));
            return K::new(self.items.len() as u32 - 1);
        };
        self.items[i.number() as usize] = Some(item);
        i
    }

    pub fn remove(&mut self, i: K) -> T {
        self.free.push(i);
        self.items[i.number() as usize].take().expect("vacant slab item removed")
    }

    pub fn get(&self, i: K) -> Option<&T> {
        self.items.get(i.number() as usize)?.as_ref()
    }
}

impl<K: Key, T> core::ops::Index<K> for Slab<K, T> {
    type Output = T;
    fn index(&self, i: K) -> &T {
        self.items[i.number() as usize].as_ref().expect("vacant slab item")
    }
}

impl<K: Key, T> core::ops::IndexMut<K> for Slab<K, T> {
    fn index_mut(&mut self, i: K) -> &mut T {
        self.items[i.number() as usize].as_mut().expect("vacant slab item")
    }
}

/// A first-in first-out list of slab items linked through a `next` field the items carry. It is not
/// `Copy`: a copy would be another list of the same items.
#[derive(Debug)]
pub(crate) struct Fifo<K> {
    head: K,
    tail: K,
}

impl<K: Key> Fifo<K> {
    pub const EMPTY: Fifo<K> = Fifo { head: K::NONE, tail: K::NONE };

    pub fn is_empty(&self) -> bool {
        self.head == K::NONE
    }

    /// The item that leaves first.
    pub fn first(&self) -> Option<K> {
        (self.head != K::NONE).then_some(self.head)
    }

    /// The item that leaves last.
    pub fn last(&self) -> Option<K> {
        (self.tail != K::NONE).then_some(self.tail)
    }
}

/// Items that a [`Fifo`] can link.
pub(crate) trait Linked<K> {
    fn next(&mut self) -> &mut K;
}

impl<K: Key, T: Linked<K>> Slab<K, T> {
    pub fn push_back(&mut self, list: &mut Fifo<K>, i: K) {
        *self[i].next() = K::NONE;
        match list.last() {
            None => list.head = i,
            Some(last) => *self[last].next() = i,
        }
        list.tail = i;
    }

    pub fn push_front(&mut self, list: &mut Fifo<K>, i: K) {
        *self[i].next() = list.head;
        if list.tail == K::NONE {
            list.tail = i;
        }
        list.head = i;
    }

    pub fn pop_front(&mut self, list: &mut Fifo<K>) -> Option<K> {
        let i = list.first()?;
        list.head = *self[i].next();
        if list.head == K::NONE {
            list.tail = K::NONE;
        }
        Some(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_takes_memory_for_what_was_in_use_at_once_and_numbers_the_lowest_first() {
        let mut slab: Slab<RequestIndex, u64> = Slab::new(1 << 20);
        assert_eq!(slab.memory_bytes(), 0);
        for round in 0..100 {
            let numbers: Vec<RequestIndex> = (0..3).map(|n| slab.insert(round + n)).collect();
            assert!(numbers.iter().all(|i| i.number() < 3), "{numbers:?}");
            numbers.into_iter().for_each(|i| assert!(slab.remove(i) >= round));
        }
        assert_eq!(slab.memory_bytes(), 3 * (16 + 4));
        assert!(slab.in_use() == 0 && slab.capacity() == 1 << 20 && !slab.is_full());
    }

    #[test]
    #[should_panic(expected = "slab is full")]
    fn a_full_slab_takes_no_more() {
        let mut slab: Slab<RequestIndex, u32> = Slab::new(2);
        (0..3).for_each(|n| {
            slab.insert(n);
        });
    }
}
