//! How often keys were used of late, estimated in fixed memory: a count-min sketch of 4-bit counters
//! (G. Einziger, R. Friedman and B. Manes, *TinyLFU: a highly efficient cache admission policy*, ACM
//! Transactions on Storage 2017), halved after every `sample` uses.
//!
//! Counters lie in blocks of a cache line, 8 words, as in Caffeine: a key's hash chooses the block, and in
//! each of its four rows of 32 counters one counter. A use adds one to the four, up to 15; the
//! estimate is the least of them. 8 to 16 bytes for each key it is made for, at least 8 KiB.
//!
//! Halving all counters in one call would be too long a call. Each block knows the last halving it
//! took part in, and catches up when it is looked at; with every use one block more catches up, so
//! that none is far behind.

use crate::links::prefetch;

const BLOCK_WORDS: usize = 8;
const COUNT_MAX: u64 = 15;

/// A cache line of counters, and not parts of two.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Block([u64; BLOCK_WORDS]);

/// See the module.
#[derive(Debug)]
pub(crate) struct Sketch {
    /// A power of two of them.
    blocks: Box<[Block]>,
    /// The halvings that each block took part in, their low bits.
    halved: Box<[u8]>,
    halvings: u8,
    sweep: usize,
    uses: u64,
    sample: u64,
}

impl Sketch {
    /// A sketch for `keys` keys, which halves its counts after `sample` uses.
    pub fn new(keys: u32, sample: u64) -> Sketch {
        let blocks = (keys as usize).next_power_of_two().max(1024) / BLOCK_WORDS;
        let mut sketch = Sketch {
            blocks: vec![Block([0; BLOCK_WORDS]); blocks].into(),
            halved: vec![0; blocks].into(),
            halvings: 0,
            sweep: 0,
            uses: 0,
            sample: 0,
        };
        sketch.set_sample(sample);
        sketch
    }

    /// For another number of keys. A sketch that has to be larger forgets its counts: keys are not
    /// known, so they cannot be moved.
    pub fn resize(&mut self, keys: u32, sample: u64) {
        let larger = Sketch::new(keys, sample);
        if larger.blocks.len() > self.blocks.len() {
            *self = larger;
        } else {
            self.set_sample(sample);
        }
    }

    /// Halves counts after `sample` uses from now on. A sweep over all blocks takes as many uses as there are
    /// blocks; so that none falls far behind, halvings are no closer than a 64th of that.
    fn set_sample(&mut self, sample: u64) {
        self.sample = sample.max(self.blocks.len() as u64 / 64).max(1);
    }

    /// Counts a use of the key with this hash.
    pub fn add(&mut self, hash: u64) {
        let block = self.block(hash);
        self.catch_up(block);
        let Block(words) = &mut self.blocks[block];
        for (word, shift) in places(hash) {
            let word = &mut words[word];
            *word += u64::from((*word >> shift) & COUNT_MAX < COUNT_MAX) << shift;
        }
        self.catch_up(self.sweep);
        self.sweep = (self.sweep + 1) & (self.blocks.len() - 1);
        self.uses += 1;
        if self.uses >= self.sample {
            self.uses = 0;
            self.halvings = self.halvings.wrapping_add(1);
        }
    }

    /// How often the key was used, up to 15; never less than what is left of its uses.
    pub fn estimate(&self, hash: u64) -> u8 {
        let block = self.block(hash);
        let behind = self.halvings.wrapping_sub(self.halved[block]).min(4);
        let Block(words) = &self.blocks[block];
        let count = |(word, shift): (usize, u32)| (words[word] >> shift) & COUNT_MAX;
        (places(hash).map(count).min().expect("four rows") >> behind) as u8
    }

    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.blocks) + size_of_val(&*self.halved)) as u64
    }

    /// Starts loading what the key with this hash is counted in.
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
            self.blocks[block].0.iter_mut().for_each(|w| *w = (*w >> 1) & 0x7777_7777_7777_7777);
        }
    }
}

/// The word and the shift of the key's counter in each row: two words a row, 16 counters a word.
/// The upper half of the hash says which; the lower half has chosen the block.
#[inline]
fn places(hash: u64) -> impl Iterator<Item = (usize, u32)> {
    (0..4).map(move |row| {
        let own = (hash >> (32 + 8 * row)) as u32;
        (2 * row + (own & 1) as usize, 4 * ((own >> 1) & 15))
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
            // Some keys rest over several halvings.
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
