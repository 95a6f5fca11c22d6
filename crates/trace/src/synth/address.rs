//! Draws the blocks at which requests begin.

use super::{
    random::{Random, Weighted},
    zipf::Zipf,
};

/// Draws blocks from 0 to n - 1.
pub(super) enum Blocks {
    /// By popularity, with the ranks scattered over the addresses.
    Zipf(Zipf, Scatter),
    /// Uniformly within a zone that is chosen by weight. A zone is `(first block, blocks)`.
    Zoned(Weighted, Vec<(u64, u64)>, Scatter),
    /// In sequence, with a jump after each run.
    Sequential { blocks: u64, run: Option<u64>, next: u64, left: u64 },
}

impl Blocks {
    /// The block at which a request of `length` blocks begins.
    pub(super) fn next(&mut self, random: &mut Random, length: u64) -> u64 {
        match self {
            Blocks::Zipf(zipf, scatter) => scatter.place(zipf.rank(random) - 1),
            Blocks::Zoned(weights, zones, scatter) => {
                let (first, blocks) = zones[weights.choose(random)];
                scatter.place(first + random.below(blocks))
            }
            Blocks::Sequential { blocks, run, next, left } => {
                if let Some(run) = run {
                    if *left == 0 {
                        *next = random.below(*blocks);
                        *left = *run;
                    }
                    *left -= 1;
                }
                let at = if *next + length > *blocks { 0 } else { *next };
                *next = at + length;
                at
            }
        }
    }
}

/// A permutation of the numbers below n, so that popular blocks are not adjacent.
///
/// Chunks of `extent` blocks stay together. The permutation of chunks is a balanced Feistel network
/// over the next power of four, applied until the number falls below the number of chunks (Black,
/// Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). It needs no table, however many
/// blocks there are.
pub(super) struct Scatter {
    extent: u64,
    chunks: u64,
    half_bits: u32,
    keys: Option<[u64; 4]>,
}

impl Scatter {
    /// Leaves every number where it is.
    pub(super) fn identity() -> Self {
        Scatter { extent: 1, chunks: 0, half_bits: 1, keys: None }
    }

    /// A random permutation of the numbers below `n`; the last partial chunk stays in place.
    pub(super) fn new(n: u64, extent: u64, random: &mut Random) -> Self {
        let extent = extent.max(1);
        let chunks = n / extent;
        let bits = u64::BITS - chunks.max(2).saturating_sub(1).leading_zeros();
        let keys = std::array::from_fn(|_| random.bits());
        Scatter { extent, chunks, half_bits: bits.div_ceil(2), keys: Some(keys) }
    }

    #[inline]
    pub(super) fn place(&self, block: u64) -> u64 {
        let (Some(keys), mut chunk) = (&self.keys, block / self.extent) else { return block };
        if chunk >= self.chunks {
            return block;
        }
        let mask = (1 << self.half_bits) - 1;
        loop {
            let (mut left, mut right) = (chunk >> self.half_bits, chunk & mask);
            for key in keys {
                (left, right) = (right, left ^ (mix(right ^ key) & mask));
            }
            chunk = left << self.half_bits | right;
            if chunk < self.chunks {
                return chunk * self.extent + block % self.extent;
            }
        }
    }
}

/// The finalizer of SplitMix64.
#[inline]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattering_is_a_permutation_that_keeps_extents() {
        for (n, extent) in [(1, 1), (2, 1), (3, 1), (1000, 1), (4096, 1), (1003, 16), (10, 100)] {
            let scatter = Scatter::new(n, extent, &mut Random::new(3, n));
            let mut seen = vec![false; n as usize];
            for block in 0..n {
                let place = scatter.place(block);
                assert!(!std::mem::replace(&mut seen[place as usize], true));
                assert_eq!(place % extent, block % extent);
            }
        }
        let scatter = Scatter::new(1000, 1, &mut Random::new(3, 0));
        assert!((0..1000).filter(|b| scatter.place(*b) == *b).count() < 20);
    }

    #[test]
    fn sequences_wrap_and_runs_jump() {
        let random = &mut Random::new(1, 1);
        let mut s = Blocks::Sequential { blocks: 10, run: None, next: 0, left: 0 };
        let starts: Vec<u64> = (0..6).map(|_| s.next(random, 4)).collect();
        assert_eq!(starts, [0, 4, 0, 4, 0, 4]);
        let mut s = Blocks::Sequential { blocks: 1 << 40, run: Some(3), next: 0, left: 0 };
        let starts: Vec<u64> = (0..9).map(|_| s.next(random, 2)).collect();
        for run in starts.chunks(3) {
            assert_eq!((run[1], run[2]), (run[0] + 2, run[0] + 4));
        }
        assert!(starts[3] != starts[2] + 2);
    }
}
