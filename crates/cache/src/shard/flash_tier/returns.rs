//! Whether dirty blocks that are both in memory and on flash cost hits, in the slots layout.
//!
//! Such a block occupies the place of another block on flash. That costs hits if the evicted block
//! is soon used again, as in a loop that is a little longer than both tiers hold. This is measured:
//! a table remembers the blocks that flash evicted last, as many as memory holds, and *the share
//! that returns* is an average over the last of them. Two things follow.
//!
//! - While the share is high, and for a while after, a block with a dirty record moves to memory
//!   only at a later read ([`promote_dirty_after`](crate::SlotsConfig::promote_dirty_after)); until
//!   then it is read from flash. The effect lasts for a while because copies stay long once they
//!   exist, and the next round of a loop may be far away.
//! - While the share is high, dirty copies are evicted before blocks that only flash holds
//!   ([`give_up_copies`](crate::SlotsConfig::give_up_copies)). That costs a write to the backing
//!   store, and one to flash when the block leaves memory.
//!
//! The table has two places for each block of memory, found by a hash of the block's key; a block
//! that takes the place of another hides that one. A place has 16 bits of the hash and 16 bits of
//! the time, counted in evicted blocks.

use forebay_flash::BlockKey;

/// A share of 1.
const ONE: u32 = 1 << 24;
/// The share above which many blocks return, and the share below which that ends.
const HIGH: u32 = ONE / 4;
const LOW: u32 = ONE / 16;
/// The average covers this many blocks, as a power of two, or as many as memory holds.
const AVERAGE: core::ops::RangeInclusive<u32> = 4..=10;
/// Returns count as recent until this many times the blocks of memory have been evicted.
const LATELY: u64 = 4;
/// Bits of the time that it takes to evict as many blocks as memory holds; a place has two more.
const WINDOW_BITS: u32 = 14;

/// The measurement of the share that returns; see the module documentation.
#[derive(Debug)]
pub(crate) struct Returns {
    places: Box<[u32]>,
    /// Number of evicted blocks.
    time: u64,
    /// The unit of time in places, as a power of two; and how many units a block is remembered.
    unit: u32,
    window: u16,
    /// The share that returns, in parts of [`ONE`], and the number of blocks it is averaged over,
    /// as a power of two.
    share: u32,
    average: u32,
    high: bool,
    /// The last time at which the share was high; 0 if never.
    last_high: u64,
}

impl Returns {
    /// For a memory of `memory_blocks` blocks.
    pub fn new(memory_blocks: u32) -> Returns {
        let blocks = memory_blocks.max(1);
        let unit = (blocks.ilog2() + 1).saturating_sub(WINDOW_BITS);
        Returns {
            places: vec![0; 2 * blocks as usize].into_boxed_slice(),
            time: 0,
            unit,
            window: (blocks >> unit) as u16,
            share: 0,
            average: blocks.ilog2().clamp(*AVERAGE.start(), *AVERAGE.end()),
            high: false,
            last_high: 0,
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.places) as u64
    }

    /// Whether many of the recently evicted blocks return or returned.
    pub fn were_many(&self) -> bool {
        let blocks = self.places.len() as u64 / 2;
        self.last_high != 0 && self.time - self.last_high < LATELY * blocks
    }

    /// Whether many of the evicted blocks return.
    pub fn are_many(&self) -> bool {
        self.high
    }

    /// Notes that the block was evicted.
    pub fn left(&mut self, key: BlockKey) {
        self.time += 1;
        let (at, tag) = self.place(key);
        self.places[at] = tag << 16 | u32::from(self.now());
        self.count(0);
    }

    /// Notes that the block enters memory, and that neither tier held it.
    pub fn came(&mut self, key: BlockKey) {
        let (at, tag) = self.place(key);
        let found = self.places[at];
        let age = self.now().wrapping_sub(found as u16);
        if found >> 16 == tag && age <= self.window {
            self.places[at] = 0;
            self.count(ONE >> self.average);
        }
    }

    fn count(&mut self, more: u32) {
        self.share = match more {
            0 => self.share - (self.share >> self.average),
            more => (self.share + more).min(ONE),
        };
        self.high = self.share > if self.high { LOW } else { HIGH };
        if self.high {
            self.last_high = self.time;
        }
    }

    fn now(&self) -> u16 {
        (self.time >> self.unit) as u16
    }

    /// The block's place, and its tag, which is not 0.
    fn place(&self, key: BlockKey) -> (usize, u32) {
        let mut hash = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let at = ((hash >> 32) * self.places.len() as u64) >> 32;
        (at as usize, hash as u32 & 0xffff | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Volume;
    use std::collections::HashMap;

    fn key(n: u64) -> BlockKey {
        BlockKey::new(Volume(0), n)
    }

    /// Blocks drawn from a set are evicted and return. Compares with the share by the exact times
    /// of eviction.
    #[test]
    fn the_share_that_returns_is_nearly_that_of_a_table_without_collisions() {
        for (blocks, of) in [(64u32, 100u64), (1000, 3000), (30_000, 45_000), (5000, 200_000)] {
            let mut returns = Returns::new(blocks);
            let mut left: HashMap<u64, u64> = HashMap::new();
            let (mut x, mut measured, mut exact) = (7u64, 0.0, 0.0);
            for step in 0..300_000u64 {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let block = (x >> 33) % of;
                let before = left.insert(block, step);
                returns.came(key(block));
                returns.left(key(block));
                if step >= 200_000 {
                    let returned = before.is_some_and(|at| step - at <= u64::from(blocks));
                    exact += f64::from(u8::from(returned)) / 1e5;
                    measured += f64::from(returns.share) / f64::from(ONE) / 1e5;
                }
            }
            let what = format!("{blocks} of {of}: {measured} against {exact}");
            assert!(measured <= exact * 1.1 + 0.005, "{what}");
            assert!(measured >= exact * 0.6, "{what}");
        }
    }

    #[test]
    fn a_block_that_gave_way_once_returns_once() {
        let mut returns = Returns::new(1000);
        returns.left(key(1));
        returns.came(key(1));
        let once = returns.share;
        returns.came(key(1));
        assert!(once > 0);
        assert_eq!(returns.share, once);
    }

    #[test]
    fn many_returned_lately_until_memory_could_have_been_filled_four_times() {
        let mut returns = Returns::new(1000);
        let mut turn = |n: u64, returned: bool| {
            returns.left(key(n));
            if returned {
                returns.came(key(n));
            }
            (returns.are_many(), returns.were_many())
        };
        assert!((0..500).all(|n| turn(n, n % 8 == 0) == (false, false)));
        assert_eq!((500..1000).map(|n| turn(n, true)).last(), Some((true, true)));
        let last_high = (1000..).find(|&n| !turn(n, false).0).expect("few return in the end");
        assert!((1..3999).all(|n| turn(last_high + n, false) == (false, true)));
        assert_eq!(turn(last_high + 3999, false), (false, false));
    }

    #[test]
    fn few_that_return_change_nothing_and_many_do_until_few_do() {
        // One in `one_in` of the evicted blocks returns at once.
        let mut returns = Returns::new(4000);
        for (one_in, many) in [(6, false), (2, true), (10, true), (30, false)] {
            for n in 0..20_000 {
                returns.left(key(n));
                if n % one_in == 0 {
                    returns.came(key(n));
                }
            }
            assert_eq!(returns.are_many(), many, "one in {one_in}");
        }
    }
}
