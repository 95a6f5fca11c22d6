//! Reads published blocks without calls to the cache, between the effects of the cache, as another
//! thread would.

use std::collections::VecDeque;
use std::mem;

use forebay_block::Volume;
use forebay_cache::Cache;
use forebay_device::Published;
use forebay_effect::Effect;

use crate::oracle::Value;
use crate::sectors::values_of;

/// Number of blocks to watch: those that were read last.
const WATCHED: usize = 8;
/// A block is read before every third effect.
const LOOK_ONE_IN: u64 = 3;
/// Maximum number of reads to keep until they are checked.
const SEEN_MAX: usize = 4096;

/// A read without a call.
#[derive(Debug)]
pub struct Seen {
    /// The volume.
    pub volume: u32,
    /// The first sector of the block.
    pub first: u64,
    /// The values of the block's sectors.
    pub values: Vec<Value>,
    /// Number of replies that the cache had given by then.
    pub replies: u64,
}

/// Reads published blocks; see the module's documentation.
#[derive(Debug, Default)]
pub struct Lookout {
    recent: VecDeque<(Volume, u64)>,
    turn: u64,
    replies: u64,
    seen: VecDeque<Seen>,
    /// Reads that were not reported to the cache yet.
    unreported: Vec<(Volume, u64)>,
}

impl Lookout {
    /// Watches the block that contains this byte, because a client reads it.
    pub fn watch(&mut self, volume: Volume, offset: u64, block_bytes: u64) {
        let block = (volume, offset / block_bytes * block_bytes);
        if !self.recent.contains(&block) {
            self.recent.truncate(WATCHED - 1);
            self.recent.push_front(block);
        }
    }

    /// The watched blocks, by the offset of their first byte.
    pub fn watched(&self) -> impl Iterator<Item = (Volume, u64)> + '_ {
        self.recent.iter().copied()
    }

    /// Reads a watched block at every third call.
    pub fn look(&mut self, published: &Published) {
        self.turn += 1;
        if !self.turn.is_multiple_of(LOOK_ONE_IN) || self.recent.is_empty() {
            return;
        }
        let (volume, offset) = self.recent[(self.turn / LOOK_ONE_IN) as usize % self.recent.len()];
        let bytes = published.frame_bytes();
        let key = Cache::key_of(volume, offset / u64::from(bytes));
        let Some(loan) = key.and_then(|key| published.lend(key, 0, bytes)) else { return };
        let first = offset / 512;
        let values = values_of(&loan, volume.0, first);
        self.seen.push_back(Seen { volume: volume.0, first, values, replies: self.replies });
        self.seen.truncate(SEEN_MAX);
        if self.turn.is_multiple_of(2) {
            self.unreported.push((volume, offset));
        }
    }

    /// Counts the effect that is performed next, if it is a reply.
    pub fn pass(&mut self, effect: &Effect) {
        self.replies += u64::from(matches!(effect, Effect::Reply { .. }));
    }

    /// Number of replies so far.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Takes the oldest read that was made before this reply.
    pub fn take_seen(&mut self, reply: u64) -> Option<Seen> {
        self.seen
            .front()
            .is_some_and(|seen| seen.replies <= reply)
            .then(|| self.seen.pop_front())?
    }

    /// Takes the reads to report to the cache now.
    pub fn take_unreported(&mut self) -> Vec<(Volume, u64)> {
        mem::take(&mut self.unreported)
    }

    /// Discards reads without checking them.
    pub fn forget(&mut self) {
        self.seen.clear();
        self.unreported.clear();
    }
}
