//! Room that invalidated blocks have left in the stack of a read-only cache.
//!
//! A cache that drops a block does not take back the blocks it evicted for it: it has a hole. The
//! next block that enters fills the hole, and nothing is evicted. In the stack of all sizes, the
//! dropped block leaves a hole at its place. An access fills the topmost hole if that is above the
//! block's own place; the caches that are large enough to hold the block then have a hole at that
//! place instead. Distances count holes like blocks. (This is the stack with deletions of Thompson
//! and Smith, *Efficient (stack) algorithms for analysis of write-back and sector memories*, 1989.)

use std::collections::{BinaryHeap, HashMap};

/// Holes by time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holes {
    times: BinaryHeap<u32>,
    /// The keys of the blocks that were last there, by time: if blocks are going to be forgotten.
    keys: Option<HashMap<u32, u64>>,
}

impl Holes {
    /// None yet, of blocks that [`Holes::retain`] may forget.
    pub(crate) fn of_forgettable() -> Self {
        Self { keys: Some(HashMap::new()), ..Self::default() }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, time: u32, key: u64) {
        self.times.push(time);
        if let Some(keys) = &mut self.keys {
            keys.insert(time, key);
        }
    }

    /// Takes out the topmost hole, if that lies above `time`.
    #[inline(always)]
    pub(crate) fn pop_above(&mut self, time: u32) -> Option<u32> {
        let hole = *self.times.peek().filter(|&&hole| hole > time)?;
        self.times.pop();
        if let Some(keys) = &mut self.keys {
            keys.remove(&hole);
        }
        Some(hole)
    }

    /// Gives every hole its new time.
    pub(crate) fn retime(&mut self, new: impl Fn(u32) -> u32) {
        let mut times = core::mem::take(&mut self.times).into_vec();
        times.iter_mut().for_each(|time| *time = new(*time));
        self.times = times.into();
        if let Some(keys) = &mut self.keys {
            *keys = keys.iter().map(|(&time, &key)| (new(time), key)).collect();
        }
    }

    /// Fills the holes of blocks whose key `keep` refuses, and names their times.
    ///
    /// # Panics
    /// If there are holes of blocks that were not said to be forgettable.
    pub(crate) fn retain(
        &mut self,
        mut keep: impl FnMut(u64) -> bool,
        mut filled: impl FnMut(u32),
    ) {
        let Some(keys) = &mut self.keys else {
            assert!(self.times.is_empty(), "these holes have no keys");
            return;
        };
        self.times.retain(|time| {
            keep(keys[time]) || {
                filled(*time);
                false
            }
        });
        keys.retain(|_, key| keep(*key));
    }
}
