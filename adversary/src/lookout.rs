//! A reader that needs no calls: it reads published blocks between the effects of the cache, as another thread would.

use std::collections::VecDeque;
use std::mem;

use forebay_block::Volume;
use forebay_cache::Cache;
use forebay_device::Published;
use forebay_effect::Effect;

use crate::oracle::Value;
use crate::sectors::values_of;

/// Blocks that are watched: those that were read last.
const WATCHED: usize = 8;
/// A block is read before every third effect, on average.
const LOOK_ONE_IN: u64 = 3;
/// Reads that are kept for a judge.
const SEEN_MAX: usize = 4096;

/// What was read.
#[derive(Debug)]
pub struct Seen {
    /// The volume.
    pub volume: u32,
    /// The first sector.
    pub first: u64,
    /// What the sectors of the block held.
    pub values: Vec<Value>,
    /// Replies that had been given by then.
    pub replies: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Lookout {
    recent: VecDeque<(Volume, u64)>,
    turn: u64,
    replies: u64,
    seen: VecDeque<Seen>,
    /// Reads that the cache has not heard of.
    unreported: Vec<(Volume, u64)>,
}

impl Lookout {
    /// A client reads this byte.
    pub fn watch(&mut self, volume: Volume, offset: u64, block_bytes: u64) {
        let block = (volume, offset / block_bytes * block_bytes);
        if !self.recent.contains(&block) {
            self.recent.truncate(WATCHED - 1);
            self.recent.push_front(block);
        }
    }

    /// Blocks that are watched, by their first bytes.
    pub fn watched(&self) -> impl Iterator<Item = (Volume, u64)> + '_ {
        self.recent.iter().copied()
    }

    /// Now and then reads a block.
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

    /// An effect is performed next.
    pub fn pass(&mut self, effect: &Effect) {
        self.replies += u64::from(matches!(effect, Effect::Reply { .. }));
    }

    /// Replies so far.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// What was read before this reply, for the first time.
    pub fn take_seen(&mut self, reply: u64) -> Option<Seen> {
        self.seen
            .front()
            .is_some_and(|seen| seen.replies <= reply)
            .then(|| self.seen.pop_front())?
    }

    /// Reads that the cache is to hear of now.
    pub fn take_unreported(&mut self) -> Vec<(Volume, u64)> {
        mem::take(&mut self.unreported)
    }

    /// What was read is not judged.
    pub fn forget(&mut self) {
        self.seen.clear();
        self.unreported.clear();
    }
}
