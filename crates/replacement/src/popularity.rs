//! How popular the blocks of a tier are (S. Ahmadian, R. Salkhordeh, O. Mutlu and H. Asadi, *ETICA: efficient
//! two-level I/O caching architecture for virtualized platforms*, TPDS 2021): the sum, over the accesses to a block,
//! of `exp(-d / size)`. `d` is the distance to the access before, in other blocks of the tier, and `size` how many
//! the tier holds. A first access has no distance, and adds nothing.
//!
//! Blocks are counted by the *epoch* of their last access; an epoch is as many accesses as a sixteenth of the
//! size. The distance is the number of blocks last used in later epochs, and half of the others that were last used
//! in the same one. What was last used 64 epochs ago, or more, is one epoch here. So an access costs a sum of 64 numbers at
//! most, and a block 5 bytes.

/// Epochs of which blocks are counted apart.
const EPOCHS: usize = 64;
/// Epochs in as many accesses as the tier has blocks, and parts of that in which distances are told apart.
const PARTS: u64 = 16;
/// No epoch: the tier does not hold the block.
const NONE: u32 = u32::MAX;

/// `exp(-d / size)`, in [`Popularity::ONE`]ths, by `16 d / size`; 0 beyond.
const WEIGHTS: [u8; 56] = [
    16, 15, 14, 13, 12, 12, 11, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 6, 5, 5, 5, 4, 4, 4, 4, 3, 3, 3, 3,
    3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
];

/// See the module. Blocks are named by nodes, as in a [`Policy`](crate::Policy).
#[derive(Debug)]
pub struct Popularity {
    /// By node: the epoch of its last access.
    last: Box<[u32]>,
    sums: Box<[u8]>,
    /// Blocks by epoch, the last [`EPOCHS`] in a ring; and those of all earlier ones.
    counts: [u32; EPOCHS],
    earlier: u32,
    epoch: u32,
    /// Accesses of this epoch, and of each.
    accesses: u64,
    epoch_accesses: u64,
    size: u64,
}

impl Popularity {
    /// What an access at no distance adds. The most that is counted is 255.
    pub const ONE: u8 = 16;

    /// For nodes below `nodes`, of which the tier holds `size`.
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

    /// The block comes in, or is replaced by a newer version, which begins with nothing.
    pub fn insert(&mut self, node: u32) {
        self.remove(node);
        self.sums[node as usize] = 0;
        self.put(node);
    }

    /// An access finds the block, which the tier holds.
    pub fn access(&mut self, node: u32) {
        let weight = WEIGHTS.get((PARTS * self.distance(node) / self.size) as usize);
        let sum = &mut self.sums[node as usize];
        *sum = sum.saturating_add(weight.copied().unwrap_or(0));
        self.remove(node);
        self.put(node);
    }

    /// The tier does not hold the block any more, if it did.
    pub fn remove(&mut self, node: u32) {
        let last = core::mem::replace(&mut self.last[node as usize], NONE);
        if last != NONE {
            *self.count(last) -= 1;
        }
    }

    /// Half of what the block has is forgotten.
    pub fn age(&mut self, node: u32) {
        self.sums[node as usize] /= 2;
    }

    /// The sum of a block that the tier holds, in [`ONE`](Popularity::ONE)ths.
    pub fn sum(&self, node: u32) -> u8 {
        self.sums[node as usize]
    }

    /// The memory it takes, but for itself.
    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.last) + size_of_val(&*self.sums)) as u64
    }

    /// How many blocks were used since this one was.
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

    /// An access: the block's last one is now.
    fn put(&mut self, node: u32) {
        self.last[node as usize] = self.epoch;
        self.counts[slot(self.epoch)] += 1;
        self.accesses += 1;
        // (The last epoch lasts for ever, after more accesses than there will be.)
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
