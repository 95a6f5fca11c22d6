//! The blocks that left memory most recently, a fixed number of them, in the order in which they
//! left, with their use counts.

use crate::ghosts::Ghosts;

/// See the module.
#[derive(Debug)]
pub(super) struct History {
    ghosts: Ghosts<1>,
    /// The use count of each entry of the table.
    counts: Box<[u8]>,
    size: u32,
}

impl History {
    /// An empty history of `size` blocks, at least 1.
    pub fn new(size: u32) -> History {
        let ghosts = Ghosts::new(size.max(1));
        let counts = vec![0; ghosts.entries() as usize].into();
        History { ghosts, counts, size: size.max(1) }
    }

    /// How often the block was used, if it is remembered.
    pub fn get(&self, key: u64) -> Option<u8> {
        self.ghosts.entry(key).map(|entry| self.counts[entry as usize])
    }

    /// How often the block was used, if it is remembered. Forgets the block, because it is in
    /// memory again.
    pub fn take(&mut self, key: u64) -> Option<u8> {
        let count = self.get(key)?;
        self.ghosts.remove(key);
        Some(count)
    }

    /// Remembers a block and its use count. If the history is full, forgets the block that left
    /// first.
    pub fn put(&mut self, key: u64, count: u8) {
        self.ghosts.remove(key);
        self.ghosts.trim(0, self.size - 1);
        let entry = self.ghosts.push(0, key);
        self.counts[entry as usize] = count;
    }

    /// The memory in bytes.
    pub fn metadata_bytes(&self) -> u64 {
        self.ghosts.memory_bytes() + size_of_val(&*self.counts) as u64
    }
}
