//! Free places that invalidated blocks have left in the stack of a read-only cache.
//!
//! A cache that drops a block does not get back the block that it evicted to admit it: it has a
//! hole. The next block that enters fills the hole, and nothing is evicted. In the stack of all
//! sizes, the dropped block leaves a hole at its position. An access fills the topmost hole if that
//! hole is above the position of the accessed block; the caches that are large enough to hold the
//! block then have a hole at that position instead. Distances count holes like blocks. (This is the
//! stack with deletions of Thompson and Smith, *Efficient (stack) algorithms for analysis of
//! write-back and sector memories*, 1989.)

use std::collections::{BinaryHeap, HashMap};

/// The holes of a stack, ordered by time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holes {
    times: BinaryHeap<u32>,
    /// The key of the block that left each hole, by time; `None` if blocks are never forgotten.
    keys: Option<HashMap<u32, u64>>,
}

impl Holes {
    /// Creates an empty set of holes that [`Holes::retain`] can be called on.
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

    /// Removes and returns the topmost hole if it lies above `time`.
    #[inline(always)]
    pub(crate) fn pop_above(&mut self, time: u32) -> Option<u32> {
        let hole = *self.times.peek().filter(|&&hole| hole > time)?;
        self.times.pop();
        if let Some(keys) = &mut self.keys {
            keys.remove(&hole);
        }
        Some(hole)
    }

    /// Replaces the time of every hole.
    pub(crate) fn retime(&mut self, new: impl Fn(u32) -> u32) {
        let mut times = core::mem::take(&mut self.times).into_vec();
        times.iter_mut().for_each(|time| *time = new(*time));
        self.times = times.into();
        if let Some(keys) = &mut self.keys {
            *keys = keys.iter().map(|(&time, &key)| (new(time), key)).collect();
        }
    }

    /// Removes the holes of blocks whose key `keep` rejects, and passes their times to `filled`.
    ///
    /// # Panics
    /// If there are holes and they were not created by [`Holes::of_forgettable`].
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
