//! Room that invalidated blocks have left in the stack of a read-only cache.
//!
//! A cache that drops a block does not take back what it evicted for it: it has a hole, which the next
//! block that comes in fills, and nothing is evicted then. In the stack of all sizes the dropped block
//! leaves a hole at its place. An access fills the topmost hole if that lies above the block's own place;
//! the caches that are large enough to hold the block have a hole there instead. Distances count holes like
//! blocks. (The stack with deletions of Thompson and Smith, *Efficient (stack) algorithms for analysis of
//! write-back and sector memories*, 1989.)

use std::collections::BinaryHeap;

/// Holes by time, with the keys of the blocks that were last there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holes(BinaryHeap<(u32, u64)>);

impl Holes {
    #[inline(always)]
    pub(crate) fn push(&mut self, time: u32, key: u64) {
        self.0.push((time, key));
    }

    /// Takes out the topmost hole, if that lies above `time`.
    #[inline(always)]
    pub(crate) fn pop_above(&mut self, time: u32) -> Option<u32> {
        match self.0.peek() {
            Some(&(hole, _)) if hole > time => self.0.pop().map(|(hole, _)| hole),
            _ => None,
        }
    }

    /// Gives every hole its new time.
    pub(crate) fn retime(&mut self, new: impl Fn(u32) -> u32) {
        let holes = core::mem::take(&mut self.0).into_vec();
        self.0 = holes.into_iter().map(|(time, key)| (new(time), key)).collect();
    }

    /// Fills the holes of blocks whose key `keep` refuses, and names their times.
    pub(crate) fn retain(
        &mut self,
        mut keep: impl FnMut(u64) -> bool,
        mut filled: impl FnMut(u32),
    ) {
        self.0.retain(|&(time, key)| {
            let keeps = keep(key);
            if !keeps {
                filled(time);
            }
            keeps
        });
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<(u32, u64)>()) as u64
    }
}
