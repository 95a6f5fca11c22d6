//! Estimates, in fixed memory, how often keys were used recently: a count-min sketch of 4-bit
//! counters (G. Einziger, R. Friedman and B. Manes, *TinyLFU: a highly efficient cache admission
//! policy*, ACM Transactions on Storage 2017), halved after every `sample` uses.
//!
//! Counters are grouped in blocks of a cache line, as in Caffeine: four rows of 32. The number of
//! blocks is an eighth of the number of keys, rounded up to a power of two, and at least 128: 8 to
//! 16 bytes a key. The lowest bits of a key's hash ([`mix`](crate::hash::mix)) choose the block; in
//! row `r`, counted from 0, the counter is number `(hash >> (32 + 8 r)) % 32`. A use adds one to
//! each of the four, up to 15; the estimate is the least of them.
//!
//! Halving all counters in one call would take too long. Each block records the last halving that
//! it took part in, and catches up before it counts a use. In addition, with every use one more
//! block catches up, so that none falls far behind.

use crate::links::prefetch;

/// Bytes of counters in a block, two counters a byte, and the number of keys that a block is made
/// for.
const BLOCK_BYTES: usize = 64;
const BLOCK_KEYS: usize = 8;
const ROWS: usize = 4;
const ROW_BYTES: usize = BLOCK_BYTES / ROWS;
const COUNT_MAX: u8 = 15;
/// Number of blocks that catch up at a time.
const SWEPT: u64 = 8;

/// Counters, aligned so that they occupy exactly one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Block([u8; BLOCK_BYTES]);

/// Each byte with one more use in its lower counter; from index 256 on, in its upper one.
const ONE_MORE: [u8; 512] = {
    let mut table = [0; 512];
    let mut at = 0;
    while at < table.len() {
        let (byte, shift) = (at as u8, if at < 256 { 0 } else { 4 });
        table[at] = byte + (((byte >> shift & COUNT_MAX < COUNT_MAX) as u8) << shift);
        at += 1;
    }
    table
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Sketch {
    /// The number of blocks is a power of two.
    blocks: Box<[Block]>,
    /// The number of halvings that each block took part in, modulo 256.
    halved: Box<[u8]>,
    halvings: u8,
    /// Number of uses since construction.
    uses: u64,
    /// The number of uses after which [`Sketch::pause`] is due.
    pauses_at: u64,
    /// The number of uses at the last halving.
    halved_at: u64,
    sample: u64,
}

impl Sketch {
    /// Number of bits of a hash that matter: the lowest ones.
    pub const HASH_BITS: u32 = 61;

    /// A sketch for `keys` keys that halves its counts every `sample` uses.
    pub fn new(keys: u32, sample: u64) -> Sketch {
        let blocks = (keys as usize).next_power_of_two().max(1024) / BLOCK_KEYS;
        let mut sketch = Sketch {
            blocks: vec![Block([0; BLOCK_BYTES]); blocks].into(),
            halved: vec![0; blocks].into(),
            halvings: 0,
            uses: 0,
            pauses_at: 0,
            halved_at: 0,
            sample: 0,
        };
        sketch.set_sample(sample);
        sketch
    }

    /// Adapts the sketch to a number of keys. A sketch that has to grow forgets its counts: it does
    /// not know the keys, so it cannot move them.
    pub fn resize(&mut self, keys: u32, sample: u64) {
        let larger = Sketch::new(keys, sample);
        if larger.blocks.len() > self.blocks.len() {
            *self = larger;
        } else {
            self.set_sample(sample);
        }
    }

    /// Sets the number of uses between halvings. A sweep over all blocks takes as many uses as
    /// there are blocks. So that no block falls far behind, halvings are at least a 64th of that
    /// apart.
    fn set_sample(&mut self, sample: u64) {
        self.sample = sample.max(self.blocks.len() as u64 / 64).max(1);
        self.set_pause();
    }

    /// Schedules the next pause: for a halving, or for blocks to catch up.
    fn set_pause(&mut self) {
        let halves_at = self.halved_at.saturating_add(self.sample);
        self.pauses_at = (self.uses / SWEPT + 1).saturating_mul(SWEPT).min(halves_at);
    }

    /// Counts a use of the key with this hash. (Rare work is done in tail calls, so that this
    /// function saves no registers for it.)
    #[inline]
    pub fn add(&mut self, hash: u64) {
        let block = self.block(hash);
        if self.halved[block] != self.halvings {
            return self.add_behind(block, hash);
        }
        self.count(block, hash);
    }

    #[cold]
    #[inline(never)]
    fn add_behind(&mut self, block: usize, hash: u64) {
        self.halve(block);
        self.count(block, hash);
    }

    #[inline]
    fn count(&mut self, block: usize, hash: u64) {
        let Block(bytes) = &mut self.blocks[block];
        for (byte, upper) in places(hash) {
            let byte = &mut bytes[byte];
            *byte = ONE_MORE[usize::from(*byte) + if upper { 256 } else { 0 }];
        }
        self.uses += 1;
        if self.uses >= self.pauses_at {
            self.pause();
        }
    }

    /// Lets the next blocks catch up, as many as there were uses since the previous ones did, and
    /// then halves the counts if it is time.
    #[inline(never)]
    fn pause(&mut self) {
        if self.uses.is_multiple_of(SWEPT) {
            let first = self.block(self.uses - SWEPT);
            let blocks = first..first + SWEPT as usize;
            if self.halved[blocks.clone()] != [self.halvings; SWEPT as usize] {
                blocks.for_each(|block| self.catch_up(block));
            }
        }
        if self.uses - self.halved_at >= self.sample {
            self.halved_at = self.uses;
            self.halvings = self.halvings.wrapping_add(1);
        }
        self.set_pause();
    }

    /// Estimates how often the key was used, up to 15. Never less than its true count, halved
    /// likewise.
    #[inline]
    pub fn estimate(&self, hash: u64) -> u8 {
        let block = self.block(hash);
        let behind = self.halvings.wrapping_sub(self.halved[block]).min(4);
        let Block(bytes) = &self.blocks[block];
        let count = |(byte, upper)| bytes[byte] >> if upper { 4 } else { 0 } & COUNT_MAX;
        places(hash).map(count).min().expect("four rows") >> behind
    }

    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.blocks) + size_of_val(&*self.halved)) as u64
    }

    /// Starts loading the block that counts the key with this hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.blocks[self.block(hash)]);
    }

    #[inline]
    fn block(&self, hash: u64) -> usize {
        hash as usize & (self.blocks.len() - 1)
    }

    #[inline]
    fn catch_up(&mut self, block: usize) {
        if self.halved[block] != self.halvings {
            self.halve(block);
        }
    }

    #[cold]
    fn halve(&mut self, block: usize) {
        let behind = self.halvings.wrapping_sub(self.halved[block]);
        self.halved[block] = self.halvings;
        for _ in 0..behind.min(4) {
            self.blocks[block].0.iter_mut().for_each(|byte| *byte = (*byte >> 1) & 0x77);
        }
    }
}

/// The byte of the key's counter in each row, and whether the counter is the upper half of the
/// byte. Five bits of the upper half of the hash select the counter, different ones for each row;
/// the lower half selects the block.
#[inline]
fn places(hash: u64) -> impl Iterator<Item = (usize, bool)> {
    (0..ROWS).map(move |row| {
        let own = (hash >> (32 + 8 * row)) as usize;
        (ROW_BYTES * row + own % ROW_BYTES, own & ROW_BYTES != 0)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::hash::mix;

    #[test]
    fn few_keys_are_counted_exactly_and_halved_together() {
        let mut sketch = Sketch::new(4096, 1000);
        let mut exact: HashMap<u64, u8> = HashMap::new();
        for use_number in 0..10_000_u64 {
            // Some keys are not used during several halvings.
            let key = mix(use_number) % 30 + use_number / 2500 * 10;
            sketch.add(mix(key));
            let count = exact.entry(key).or_default();
            *count = (*count + 1).min(15);
            if use_number % 1000 == 999 {
                exact.values_mut().for_each(|count| *count /= 2);
            }
            for (&key, &count) in &exact {
                assert_eq!(sketch.estimate(mix(key)), count, "{key} after {use_number}");
            }
        }
    }

    #[test]
    fn many_keys_are_never_counted_too_low() {
        let mut sketch = Sketch::new(64, u64::MAX);
        for key in 0..5000 {
            sketch.add(mix(key % 1000));
        }
        assert!((0..1000).all(|key| sketch.estimate(mix(key)) >= 5));
    }
}
