//! The blocks that are reported to operators because their newest data cannot be read from flash.

use forebay_flash::BlockKey;

use crate::shard::UNREADABLE_MAX;
use crate::shard::blocks::Blocks;
use crate::shard::entry::{Entry, UNREADABLE};

/// At most [`UNREADABLE_MAX`] of those that cleaning has found.
#[derive(Debug)]
pub(super) struct UnreadableBlocks(Vec<BlockKey>);

impl UnreadableBlocks {
    pub fn new() -> UnreadableBlocks {
        UnreadableBlocks(Vec::with_capacity(UNREADABLE_MAX))
    }

    /// The blocks, excluding those written again since.
    pub fn iter(&self, blocks: &Blocks) -> impl Iterator<Item = BlockKey> {
        self.0.iter().copied().filter(|&key| is_unreadable(blocks, key))
    }

    /// The block is one of them.
    pub fn note(&mut self, blocks: &Blocks, key: BlockKey) {
        if self.0.contains(&key) {
            return;
        }
        if self.0.len() == UNREADABLE_MAX {
            self.0.retain(|&key| is_unreadable(blocks, key));
        }
        if self.0.len() < UNREADABLE_MAX {
            self.0.push(key);
        }
    }
}

fn is_unreadable(blocks: &Blocks, key: BlockKey) -> bool {
    let still = |e: &Entry| e.has(UNREADABLE) || e.lost_on_flash() != 0;
    blocks.find(key).is_some_and(|id| still(&blocks[id]))
}
