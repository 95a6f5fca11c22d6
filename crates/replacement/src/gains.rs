//! What each volume would gain from a larger cache: the derivative of its hit-ratio curve at the
//! size that an LRU queue of all volumes gives it, estimated from a sample in fixed memory.
//!
//! The sample holds the most recently used blocks: as many as the cache would hold if all were
//! sampled, and a quarter more behind them. An access that finds its block in that quarter would
//! hit in a cache that is a quarter larger, but misses in the present one. The share of a volume in
//! all such accesses is the derivative of its curve times its share of all accesses. Blocks are
//! sampled by their hash (Waldspurger et al., SHARDS, FAST 2015).

use forebay_block::Volume;

use crate::ghosts::Ghosts;
use crate::hash::mix;

/// Maximum number of blocks in the sample that represent the cache.
const SAMPLE_MAX: u32 = 2048;
/// The list of the blocks that the cache would hold, and that of the blocks behind them.
const HELD: usize = 0;
const BEHIND: usize = 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct Gains {
    sample: Ghosts<2>,
    held_max: u32,
    behind_max: u32,
    /// A block whose hash has any of these bits set is not in the sample.
    mask: u64,
    /// For each volume, the accesses that found their block in the quarter behind: in this
    /// interval, and in the last one that had any.
    volumes: Vec<[u32; 2]>,
    /// The largest count of any volume in the last interval that had any.
    most: u32,
}

impl Gains {
    /// For a cache of `blocks` blocks.
    pub fn new(blocks: u32) -> Gains {
        let blocks = blocks.max(1);
        let shift = blocks.div_ceil(SAMPLE_MAX).next_power_of_two().trailing_zeros();
        let held_max = (blocks >> shift).max(1);
        let behind_max = held_max.div_ceil(4);
        let sample = Ghosts::new(held_max + behind_max);
        let mask = ((1 << shift) - 1) << 32;
        Gains { sample, held_max, behind_max, mask, volumes: Vec::new(), most: 0 }
    }

    /// Adds the volume with the next number.
    pub fn add_volume(&mut self) {
        self.volumes.push([0; 2]);
    }

    /// Records an access to the block with byte `offset`.
    #[inline]
    pub fn access(&mut self, volume: Volume, offset: u64) {
        let key = offset ^ u64::from(volume.0).rotate_right(10);
        if mix(key) & self.mask == 0 {
            self.use_sampled(volume, key);
        }
    }

    fn use_sampled(&mut self, volume: Volume, key: u64) {
        if self.sample.remove(key) == Some(BEHIND)
            && let Some(volume) = self.volumes.get_mut(volume.0 as usize)
        {
            volume[0] += 1;
        }
        self.sample.push(HELD, key);
        if self.sample.len(HELD) > self.held_max {
            self.sample.move_oldest(HELD, BEHIND);
        }
        self.sample.trim(BEHIND, self.behind_max);
    }

    /// Ends the interval. An interval in which no volume would have gained anything is ignored.
    pub fn end_interval(&mut self) {
        let most = self.volumes.iter().map(|volume| volume[0]).max().unwrap_or(0);
        if most > 0 {
            self.most = most;
            self.volumes.iter_mut().for_each(|volume| *volume = [0, volume[0]]);
        }
    }

    /// The gain of the volume in the last interval, and the largest gain of any volume.
    pub fn last_interval(&self, volume: Volume) -> (u32, u32) {
        (self.volumes.get(volume.0 as usize).map_or(0, |volume| volume[1]), self.most)
    }

    /// The memory in bytes, excluding the struct itself.
    pub fn memory_bytes(&self) -> u64 {
        self.sample.memory_bytes() + (self.volumes.capacity() * size_of::<[u32; 2]>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    /// The gain of each of three volumes in a cache of `blocks`: as measured, and from the
    /// distances in a plain stack, where an access counts that a cache of 5/4 of the blocks hits
    /// and one of the blocks does not.
    fn gains(blocks: u32, accesses: &[(u32, u64)]) -> [[u32; 3]; 2] {
        let mut gains = Gains::new(blocks);
        (0..3).for_each(|_| gains.add_volume());
        let (mut stack, mut exact) = (Vec::new(), [0; 3]);
        let (near, far) = (blocks as usize, (blocks + blocks.div_ceil(4)) as usize);
        for &(volume, block) in accesses {
            gains.access(Volume(volume), block * BLOCK);
            let at = stack.iter().rev().position(|known| *known == (volume, block));
            if let Some(distance) = at {
                stack.remove(stack.len() - 1 - distance);
                exact[volume as usize] += u32::from((near..far).contains(&distance));
            }
            stack.push((volume, block));
        }
        gains.end_interval();
        [[0, 1, 2].map(|volume| gains.last_interval(Volume(volume)).0), exact]
    }

    /// One volume loops over 1.1 times the cache, one uses few blocks, one uses each block once.
    fn accesses(blocks: u64, count: u64) -> Vec<(u32, u64)> {
        let mut x = 1_u64;
        let one = |n: u64| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            match x >> 33 & 3 {
                0 => (1, (x >> 40) % (blocks / 20)),
                1 => (2, n),
                _ => (0, n % (blocks * 11 / 20)),
            }
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn in_a_small_cache_gains_are_those_of_a_plain_stack() {
        for blocks in [1, 2, 3, 10, 100, 800] {
            let [measured, exact] = gains(blocks, &accesses(u64::from(blocks).max(20), 20_000));
            assert_eq!(measured, exact, "{blocks}");
        }
        let [measured, _] = gains(800, &accesses(800, 20_000));
        assert!(measured[0] > 500 && measured[1] < 100 && measured[2] == 0, "{measured:?}");
    }

    #[test]
    fn in_a_large_cache_they_are_those_of_a_sample() {
        let blocks = 4 * SAMPLE_MAX;
        let [measured, exact] = gains(blocks, &accesses(blocks.into(), 60_000));
        let scaled = measured.map(|gain| 4.0 * f64::from(gain));
        for (scaled, exact) in scaled.into_iter().zip(exact.map(f64::from)) {
            assert!((scaled - exact).abs() <= 0.1 * exact + 20.0, "{scaled} {exact}");
        }
        assert!(exact[0] > 500, "{exact:?}");
        assert!(Gains::new(1 << 30).memory_bytes() < 80_000);
    }

    #[test]
    fn an_interval_without_gains_leaves_what_was_known() {
        let mut gains = Gains::new(1);
        gains.add_volume();
        assert_eq!(gains.last_interval(Volume(0)), (0, 0));
        for block in [0, 1, 0, 1] {
            gains.access(Volume(0), block * BLOCK);
        }
        assert_eq!(gains.last_interval(Volume(0)), (0, 0), "the interval is not over");
        gains.end_interval();
        assert_eq!(gains.last_interval(Volume(0)), (2, 2));
        gains.end_interval();
        assert_eq!(gains.last_interval(Volume(0)), (2, 2));
        assert_eq!(gains.last_interval(Volume(1)), (0, 2), "a volume that there is not");
    }
}
