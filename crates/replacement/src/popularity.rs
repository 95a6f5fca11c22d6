//! The popularity of the blocks of a tier (S. Ahmadian, R. Salkhordeh, O. Mutlu and H. Asadi,
//! *ETICA: efficient two-level I/O caching architecture for virtualized platforms*, TPDS 2021): the
//! sum, over the accesses to a block, of `exp(-d / size)`. `d` is the distance to the previous
//! access, in other blocks of the tier, and `size` the number of blocks that the tier holds. A
//! first access has no distance and adds nothing.
//!
//! Blocks are counted by the *epoch* of their last access. An epoch is a number of accesses: a
//! sixteenth of the size. The distance is the number of blocks last used in later epochs, plus half
//! of the others that were last used in the same epoch. Everything last used 64 or more epochs ago
//! counts as one epoch here. So an access costs a sum of at most 64 numbers, and a block takes 5
//! bytes.

/// Number of epochs whose blocks are counted separately.
const EPOCHS: usize = 64;
/// Number of epochs in `size` accesses, and of the steps into which a distance of `size` is
/// divided.
const PARTS: u64 = 16;
/// No epoch: the tier does not hold the block.
const NONE: u32 = u32::MAX;

/// `exp(-d / size)`, in [`Popularity::ONE`]ths, by `16 d / size`; 0 beyond.
const WEIGHTS: [u8; 56] = [
    16, 15, 14, 13, 12, 12, 11, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 6, 5, 5, 5, 4, 4, 4, 4, 3, 3, 3, 3,
    3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
];

/// See the module. Nodes identify blocks, as in a [`Policy`](crate::Policy).
#[derive(Debug)]
pub struct Popularity {
    /// The epoch of the last access to each node.
    last: Box<[u32]>,
    sums: Box<[u8]>,
    /// Number of blocks per epoch: a ring of the last [`EPOCHS`], and `earlier` for all before
    /// them.
    counts: [u32; EPOCHS],
    earlier: u32,
    epoch: u32,
    /// Number of accesses so far in this epoch, and in a complete one.
    accesses: u64,
    epoch_accesses: u64,
    size: u64,
}

impl Popularity {
    /// What an access at distance 0 adds. Sums are limited to 255.
    pub const ONE: u8 = 16;

    /// For nodes numbered below `nodes`; the tier holds `size` blocks.
    pub fn new(nodes: u32, size: u32) -> Popularity {
        let size = u64::from(size.max(1));
        Popularity {
            last: vec![NONE; nodes as usize].into(),
            sums: vec![0; nodes as usize].into(),
            counts: [0; EPOCHS],
            earlier: 0,
            epoch: 0,
            accesses: 0,
            epoch_accesses: (size / PARTS).max(1),
            size,
        }
    }

    /// Records that the block comes in, or that a newer version replaces it. Its sum starts at 0.
    pub fn insert(&mut self, node: u32) {
        self.remove(node);
        self.sums[node as usize] = 0;
        self.put(node);
    }

    /// Records an access to the block, which the tier holds.
    pub fn access(&mut self, node: u32) {
        let weight = WEIGHTS.get((PARTS * self.distance(node) / self.size) as usize);
        let sum = &mut self.sums[node as usize];
        *sum = sum.saturating_add(weight.copied().unwrap_or(0));
        self.remove(node);
        self.put(node);
    }

    /// Records that the tier no longer holds the block, if it did.
    pub fn remove(&mut self, node: u32) {
        let last = core::mem::replace(&mut self.last[node as usize], NONE);
        if last != NONE {
            *self.count(last) -= 1;
        }
    }

    /// Halves the sum of the block.
    pub fn age(&mut self, node: u32) {
        self.sums[node as usize] /= 2;
    }

    /// The sum of a block that the tier holds, in [`ONE`](Popularity::ONE)ths.
    pub fn sum(&self, node: u32) -> u8 {
        self.sums[node as usize]
    }

    /// The memory in bytes, excluding the struct itself.
    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.last) + size_of_val(&*self.sums)) as u64
    }

    /// Number of blocks that were used after this one.
    fn distance(&self, node: u32) -> u64 {
        let last = self.last[node as usize];
        let epochs = (self.epoch - last).min(EPOCHS as u32);
        let later = (0..epochs).map(|ago| self.counts[slot(self.epoch.wrapping_sub(ago))]);
        let same = if epochs < EPOCHS as u32 { self.counts[slot(last)] } else { self.earlier };
        later.map(u64::from).sum::<u64>() + u64::from(same - 1) / 2
    }

    fn count(&mut self, epoch: u32) -> &mut u32 {
        if self.epoch - epoch < EPOCHS as u32 {
            &mut self.counts[slot(epoch)]
        } else {
            &mut self.earlier
        }
    }

    /// Records an access to the block in the current epoch.
    fn put(&mut self, node: u32) {
        self.last[node as usize] = self.epoch;
        self.counts[slot(self.epoch)] += 1;
        self.accesses += 1;
        // (The epoch stops at the largest number, after more accesses than a server will ever see.)
        if self.accesses >= self.epoch_accesses && self.epoch < NONE - 1 {
            self.accesses = 0;
            self.epoch += 1;
            self.earlier += core::mem::take(&mut self.counts[slot(self.epoch)]);
        }
    }
}

fn slot(epoch: u32) -> usize {
    epoch as usize % EPOCHS
}
