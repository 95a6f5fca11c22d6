//! The blocks with stale records, in the extents of the table of active extents.

use crate::key::BlockKey;

/// A bitmap for each entry of the table.
pub(crate) struct StaleBlocks {
    /// `words` for each entry.
    bits: Vec<u64>,
    words: usize,
    /// Blocks of an extent, a power of two.
    blocks: u64,
}

impl StaleBlocks {
    /// For `count` entries. No block is stale.
    pub fn new(count: usize, blocks: u64) -> StaleBlocks {
        let words = blocks.div_ceil(64) as usize;
        StaleBlocks { bits: vec![0; words * count], words, blocks }
    }

    fn bit(&self, n: usize, key: BlockKey) -> (usize, u64) {
        let block = key.block().0 & (self.blocks - 1);
        (n * self.words + (block / 64) as usize, 1 << (block % 64))
    }

    fn of(&self, n: usize) -> core::ops::Range<usize> {
        n * self.words..(n + 1) * self.words
    }

    /// Marks a block of the extent in entry `n` as stale.
    pub fn set(&mut self, n: usize, key: BlockKey) {
        let (word, bit) = self.bit(n, key);
        self.bits[word] |= bit;
    }

    /// Whether a block of the extent in entry `n` is stale.
    pub fn is_set(&self, n: usize, key: BlockKey) -> bool {
        let (word, bit) = self.bit(n, key);
        self.bits[word] & bit != 0
    }

    /// Marks a block of the extent in entry `n` as not stale. Returns whether it was stale.
    pub fn clear(&mut self, n: usize, key: BlockKey) -> bool {
        let (word, bit) = self.bit(n, key);
        let stale = self.bits[word] & bit != 0;
        self.bits[word] &= !bit;
        stale
    }

    /// Clears the first stale block of entry `n` and returns it, counted from the extent's first
    /// block.
    pub fn take(&mut self, n: usize) -> Option<u64> {
        let of = self.of(n);
        let words = &mut self.bits[of];
        let at = words.iter().position(|w| *w != 0)?;
        let bit = words[at].trailing_zeros();
        words[at] &= words[at] - 1;
        Some(at as u64 * 64 + u64::from(bit))
    }

    /// The number of stale blocks of entry `n`.
    pub fn count(&self, n: usize) -> u64 {
        self.bits[self.of(n)].iter().map(|w| u64::from(w.count_ones())).sum()
    }

    /// Clears all stale blocks of entry `n`.
    pub fn clear_all(&mut self, n: usize) {
        let of = self.of(n);
        self.bits[of].fill(0);
    }
}
