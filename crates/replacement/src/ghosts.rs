//! Ghosts: the keys of blocks that were evicted, in the order of their eviction.
//!
//! Memory is fixed at construction, until more is reserved: 20 bytes an entry (hash 8, links 8,
//! chain and list 4), and 4 bytes for each bucket. The number of buckets is the next power of two,
//! so an entry takes 24 to 28 bytes. The hash is a bijection of the key and is stored in full: no
//! key is mistaken for another.
//!
//! Several lists share the table, such as the two of ARC. The policy trims a list to its size when
//! the next block comes in; until then it may be longer, within [`SLACK`].

use crate::hash::{mix, unmix};
use crate::links::{Links, List, prefetch};

const NONE: u32 = u32::MAX;

/// Entries in addition to those that the policy requests, for evictions without an insertion in
/// between.
const SLACK: u32 = 64;

/// The maximum number of ghosts that one insertion trims. Each eviction adds one; more are to be
/// trimmed only after the capacity was reduced.
pub(crate) const TRIM_MAX: u32 = 64;

/// See the module. `N` lists share the table.
#[derive(Debug)]
pub(crate) struct Ghosts<const N: usize> {
    links: Links,
    lists: [List; N],
    free: List,
    ghosts: Box<[Ghost]>,
    buckets: Box<[u32]>,
}

/// An entry of the table. Fields that are read together are stored together, because each entry is
/// elsewhere in memory.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct Ghost {
    hash: u64,
    /// The next entry in the same bucket, and in the lowest bits the list of this entry.
    chain: u32,
}

/// Number of bits for the list; and the value that means "no entry" in a chain.
const LIST_BITS: u32 = 1;
const END: u32 = NONE >> LIST_BITS;

impl Ghost {
    fn next(self) -> u32 {
        match self.chain >> LIST_BITS {
            END => NONE,
            next => next,
        }
    }
    fn list(self) -> usize {
        (self.chain & ((1 << LIST_BITS) - 1)) as usize
    }
    fn set_next(&mut self, next: u32) {
        self.chain = next << LIST_BITS | self.list() as u32;
    }
}

impl<const N: usize> Ghosts<N> {
    /// A table for at least `entries` ghosts in all lists together.
    pub fn new(entries: u32) -> Self {
        const { assert!(N <= 1 << LIST_BITS) };
        let entries = entries.saturating_add(SLACK).min(END);
        let mut links = Links::new(entries);
        let mut free = List::EMPTY;
        (0..entries).rev().for_each(|entry| links.push_front(&mut free, entry));
        Ghosts {
            links,
            lists: [List::EMPTY; N],
            free,
            ghosts: vec![Ghost { hash: 0, chain: NONE }; entries as usize].into(),
            buckets: vec![NONE; (entries as usize).next_power_of_two()].into(),
        }
    }

    /// Makes room for `entries` ghosts if there is less. All ghosts stay, in their order.
    pub fn reserve(&mut self, entries: u32) {
        if entries.saturating_add(SLACK).min(END) <= self.links.nodes() {
            return;
        }
        let mut larger = Ghosts::new(entries);
        for list in 0..N {
            for entry in self.links.from_back(&self.lists[list]) {
                larger.push_hash(list, self.ghosts[entry as usize].hash);
            }
        }
        *self = larger;
    }

    /// The list that holds the key, if any does.
    pub fn list_of(&self, key: u64) -> Option<usize> {
        self.find(mix(key)).map(|entry| self.ghosts[entry as usize].list())
    }

    pub fn len(&self, list: usize) -> u32 {
        self.lists[list].len()
    }

    /// Puts a key that is in no list at the young end of a list. If the table is full, forgets the
    /// oldest ghost of that list, or of the longest list if that one is empty.
    ///
    /// Returns the ghost's entry in the table, where it stays.
    pub fn push(&mut self, list: usize, key: u64) -> u32 {
        self.push_hash(list, mix(key))
    }

    fn push_hash(&mut self, list: usize, hash: u64) -> u32 {
        debug_assert!(self.find(hash).is_none(), "the key is a ghost already");
        if self.free.is_empty() {
            let longest = (0..N).max_by_key(|&other| self.len(other)).expect("at least one list");
            self.forget_oldest(if self.len(list) > 0 { list } else { longest });
        }
        let entry = self.links.pop_front(&mut self.free).expect("room was made");
        self.links.push_front(&mut self.lists[list], entry);
        let bucket = self.bucket(hash);
        let next = core::mem::replace(&mut self.buckets[bucket], entry);
        self.ghosts[entry as usize] = Ghost { hash, chain: next << LIST_BITS | list as u32 };
        entry
    }

    /// The key's entry in the table, if it is a ghost.
    pub fn entry(&self, key: u64) -> Option<u32> {
        self.find(mix(key))
    }

    /// The entry of the oldest ghost of a list.
    pub fn oldest(&self, list: usize) -> Option<u32> {
        self.lists[list].back()
    }

    /// The key in an entry of the table.
    pub fn key(&self, entry: u32) -> u64 {
        unmix(self.ghosts[entry as usize].hash)
    }

    /// The neighbours of an entry in its list: the one towards the young end, then the one towards
    /// the old end.
    pub fn neighbours(&self, entry: u32) -> [Option<u32>; 2] {
        [self.links.ahead(entry), self.links.behind(entry)]
    }

    /// Moves an entry of a list to its young end.
    pub fn renew(&mut self, list: usize, entry: u32) {
        self.links.move_to_front(&mut self.lists[list], entry);
    }

    /// Number of entries in the table.
    pub fn entries(&self) -> u32 {
        self.links.nodes()
    }

    /// Forgets the key; returns the list that held it.
    pub fn remove(&mut self, key: u64) -> Option<usize> {
        let entry = self.find(mix(key))?;
        let list = self.ghosts[entry as usize].list();
        self.forget(entry);
        Some(list)
    }

    /// Makes the oldest ghost of a list the youngest of another list.
    pub fn move_oldest(&mut self, from: usize, to: usize) {
        let Some(entry) = self.lists[from].back() else { return };
        let hash = self.ghosts[entry as usize].hash;
        self.forget(entry);
        self.push_hash(to, hash);
    }

    /// Forgets the oldest ghosts of a list until it has at most `len`, but at most [`TRIM_MAX`] of
    /// them; returns how many.
    pub fn trim(&mut self, list: usize, len: u32) -> u32 {
        let excess = self.len(list).saturating_sub(len).min(TRIM_MAX);
        (0..excess).for_each(|_| self.forget_oldest(list));
        excess
    }

    pub fn memory_bytes(&self) -> u64 {
        let own = size_of_val(&*self.ghosts) + size_of_val(&*self.buckets);
        self.links.memory_bytes() + own as u64
    }

    fn forget_oldest(&mut self, list: usize) {
        let Some(entry) = self.lists[list].back() else { return };
        // Prefetches for the next two calls: the bucket of the next ghost, and the entry of the one
        // after it.
        if let Some(next) = self.links.ahead(entry) {
            prefetch(&self.buckets[self.bucket(self.ghosts[next as usize].hash)]);
            if let Some(then) = self.links.ahead(next) {
                prefetch(&self.ghosts[then as usize]);
                self.links.prefetch(then, false);
            }
        }
        self.forget(entry);
    }

    /// Starts loading the bucket, which a search for the key reads first.
    pub fn prefetch(&self, key: u64) {
        prefetch(&self.buckets[self.bucket(mix(key))]);
    }

    /// Starts loading the entry that the search reads next.
    pub fn prefetch_entry(&self, key: u64) {
        let entry = self.buckets[self.bucket(mix(key))];
        if let Some(ghost) = self.ghosts.get(entry as usize) {
            prefetch(ghost);
        }
    }

    fn forget(&mut self, entry: u32) {
        let ghost = self.ghosts[entry as usize];
        let (next, list, bucket) = (ghost.next(), ghost.list(), self.bucket(ghost.hash));
        if self.buckets[bucket] == entry {
            self.buckets[bucket] = next;
        } else {
            let mut before = self.buckets[bucket];
            while self.ghosts[before as usize].next() != entry {
                before = self.ghosts[before as usize].next();
            }
            self.ghosts[before as usize].set_next(next);
        }
        self.links.remove(&mut self.lists[list], entry);
        self.links.push_front(&mut self.free, entry);
    }

    fn bucket(&self, hash: u64) -> usize {
        (hash & (self.buckets.len() as u64 - 1)) as usize
    }

    fn find(&self, hash: u64) -> Option<u32> {
        let mut entry = self.buckets[self.bucket(hash)];
        while entry != NONE && self.ghosts[entry as usize].hash != hash {
            entry = self.ghosts[entry as usize].next();
        }
        (entry != NONE).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Two lists in one table behave like two deques, and the table never grows.
        #[test]
        fn ghosts_are_deques_of_keys(
            steps in prop::collection::vec((0..5_u8, 0..2_usize, 0..200_u64), 1..600)
        ) {
            let mut ghosts: Ghosts<2> = Ghosts::new(10);
            let bytes = ghosts.memory_bytes();
            let mut models: [VecDeque<u64>; 2] = Default::default();
            for (step, list, key) in steps {
                let at = models.iter().position(|m| m.contains(&key));
                prop_assert_eq!(ghosts.list_of(key), at);
                match step {
                    0 | 1 if at.is_none() => {
                        ghosts.push(list, key);
                        if models[0].len() + models[1].len() == (10 + SLACK) as usize {
                            let longer = usize::from(models[1].len() >= models[0].len());
                            let from = if models[list].is_empty() { longer } else { list };
                            models[from].pop_back();
                        }
                        models[list].push_front(key);
                    }
                    2 => {
                        prop_assert_eq!(ghosts.remove(key), at);
                        models.iter_mut().for_each(|m| m.retain(|&k| k != key));
                    }
                    4 => {
                        ghosts.move_oldest(list, 1 - list);
                        let oldest = models[list].pop_back();
                        oldest.into_iter().for_each(|k| models[1 - list].push_front(k));
                    }
                    3 => {
                        ghosts.trim(list, key as u32);
                        models[list].truncate(key as usize);
                    }
                    _ => {}
                }
                for (list, model) in models.iter().enumerate() {
                    prop_assert_eq!(ghosts.len(list) as usize, model.len());
                }
            }
            prop_assert_eq!(ghosts.memory_bytes(), bytes);
        }
    }

    #[test]
    fn more_room_keeps_all_ghosts_and_their_order() {
        let mut ghosts: Ghosts<2> = Ghosts::new(4);
        (0..60).for_each(|key| _ = ghosts.push(key as usize % 2, key));
        let bytes = ghosts.memory_bytes();
        ghosts.reserve(4);
        assert_eq!(ghosts.memory_bytes(), bytes);
        ghosts.reserve(1000);
        assert!(ghosts.memory_bytes() > bytes);
        for key in 0..60 {
            assert_eq!(ghosts.list_of(key), Some(key as usize % 2));
        }
        for key in 0..60 {
            let list = key as usize % 2;
            ghosts.trim(list, ghosts.len(list) - 1);
            assert_eq!(ghosts.list_of(key), None, "the oldest goes first");
        }
    }
}
