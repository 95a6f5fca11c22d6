//! The blocks that are reported to operators because their newest data cannot be read from flash.

use forebay_flash::BlockKey;

use crate::shard::UNREADABLE_MAX;
use crate::shard::blocks::Blocks;
use crate::shard::entry::Entry;

/// At most [`UNREADABLE_MAX`] of the blocks that cleaning has found to be unreadable.
#[derive(Debug)]
pub(super) struct UnreadableEntries(Vec<BlockKey>);

impl UnreadableEntries {
    pub fn new() -> UnreadableEntries {
        UnreadableEntries(Vec::with_capacity(UNREADABLE_MAX))
    }

    /// The blocks, excluding those written again since.
    pub fn iter(&self, blocks: &Blocks) -> impl Iterator<Item = BlockKey> {
        self.0.iter().copied().filter(|&key| is_unreadable(blocks, key))
    }

    /// Adds the block.
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
    let still = |e: &Entry| e.is_unreadable() || !e.lost_on_flash().is_empty();
    blocks.find(key).is_some_and(|id| still(&blocks[id]))
}

#[cfg(test)]
mod tests {
    use forebay_block::Volume;

    use super::*;
    use crate::shard::destager::tests::holding;

    #[test]
    fn a_block_that_was_written_again_gives_its_place_to_another() {
        let most = UNREADABLE_MAX as u64;
        let keys: Vec<_> = (0..most + 2).map(|n| BlockKey::new(Volume(0), n)).collect();
        let mut cache = holding(&keys);
        let blocks = &mut cache.world.shards[0].tiers.blocks;
        let mut unreadable = UnreadableEntries::new();
        let mut note = |blocks: &mut Blocks, n: u64| {
            let key = BlockKey::new(Volume(0), n);
            let id = blocks.entry_of(key);
            blocks[id].note_unreadable();
            unreadable.note(blocks, key);
            unreadable.iter(blocks).any(|named| named == key)
        };
        assert!((0..most).all(|n| note(blocks, n)));
        assert!(!note(blocks, most), "all places are taken");
        let first = blocks.entry_of(BlockKey::new(Volume(0), 0));
        blocks[first].retry_unreadable();
        assert!(note(blocks, most + 1));
        assert_eq!(unreadable.iter(blocks).count() as u64, most);
    }
}
