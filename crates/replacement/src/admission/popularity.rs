//! Popularity: the most used of the recently used blocks enter.
//!
//! The table holds the most recently used blocks, in memory or not, with a use count for each; a
//! new block replaces the one that was used longest ago. When the table has seen [ten](AGE)
//! accesses for each of its entries, all counts are halved. A block enters if at most the share
//! `top` of the table has a count at least as high as its own. So the required count follows the
//! workload, whereas that of `nhit` is fixed.

use crate::ghosts::Ghosts;

/// Number of accesses per entry of the table after which counts are halved.
const AGE: u64 = 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Popularity {
    blocks: Ghosts<1>,
    /// The use count of each entry of the table.
    counts: Box<[u8]>,
    /// Number of blocks in the table with each count.
    having: Box<[u32; 256]>,
    size: u32,
    /// Maximum percentage of the table that enters.
    top: u32,
    /// Number of accesses since counts were last halved.
    accesses: u64,
}

impl Popularity {
    /// An empty table of `size` blocks, at least 1, of which at most `top` percent enter.
    pub fn new(size: u32, top: u32) -> Popularity {
        let blocks = Ghosts::new(size.max(1));
        let counts = vec![0; blocks.entries() as usize].into();
        let having = Box::new([0; 256]);
        Popularity { blocks, counts, having, size: size.max(1), top, accesses: 0 }
    }

    /// Records a client's access to a block.
    pub fn access(&mut self, key: u64) {
        let count = match self.blocks.entry(key) {
            Some(entry) => {
                let before = self.counts[entry as usize];
                self.having[usize::from(before)] -= 1;
                self.blocks.remove(key);
                before.saturating_add(1)
            }
            None => {
                if self.blocks.len(0) == self.size
                    && let Some(oldest) = self.blocks.oldest(0)
                {
                    self.having[usize::from(self.counts[oldest as usize])] -= 1;
                    self.blocks.trim(0, self.size - 1);
                }
                1
            }
        };
        let entry = self.blocks.push(0, key);
        self.counts[entry as usize] = count;
        self.having[usize::from(count)] += 1;
        self.accesses += 1;
        if self.accesses == AGE * u64::from(self.size) {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.accesses = 0;
        self.counts.iter_mut().for_each(|count| *count /= 2);
        let before = core::mem::replace(&mut *self.having, [0; 256]);
        for (count, blocks) in before.into_iter().enumerate() {
            self.having[count / 2] += blocks;
        }
    }

    /// Whether the block enters; a forgotten block does not.
    pub fn admits(&self, key: u64) -> bool {
        let Some(entry) = self.blocks.entry(key) else { return false };
        self.is_top(self.used(self.counts[entry as usize]), self.blocks.len(0))
    }

    /// Whether the block would enter after one more access.
    pub fn admits_next(&self, key: u64) -> bool {
        let before = self.blocks.entry(key).map(|entry| self.counts[entry as usize]);
        let next = before.unwrap_or(0).saturating_add(1);
        let mut used = self.used(next) + u64::from(before != Some(next));
        let mut blocks = self.blocks.len(0) + u32::from(before.is_none());
        if blocks > self.size
            && let Some(oldest) = self.blocks.oldest(0)
        {
            // The access would forget the oldest block.
            used -= u64::from(self.counts[oldest as usize] >= next);
            blocks -= 1;
        }
        self.is_top(used, blocks)
    }

    /// Number of blocks that were used at least `count` times.
    fn used(&self, count: u8) -> u64 {
        self.having[usize::from(count)..].iter().map(|&blocks| u64::from(blocks)).sum()
    }

    fn is_top(&self, used: u64, blocks: u32) -> bool {
        used * 100 <= u64::from(self.top) * u64::from(blocks)
    }

    /// The memory in bytes.
    pub fn metadata_bytes(&self) -> u64 {
        let own = size_of_val(&*self.counts) + size_of_val(&*self.having);
        self.blocks.memory_bytes() + own as u64
    }
}
