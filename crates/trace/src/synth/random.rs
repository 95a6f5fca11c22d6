//! Random numbers that stay the same in every version.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// A stream of random numbers.
pub(super) struct Random(ChaCha8Rng);

impl Random {
    /// Stream number `stream` of `seed`; streams are independent.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..24].copy_from_slice(b"forebay workload");
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(stream);
        Random(rng)
    }

    /// 64 random bits.
    #[inline]
    pub(super) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 (included) to 1 (excluded), in steps of 2^-53.
    #[inline]
    pub(super) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number from 0 to `n` - 1; the bias is below n / 2^64.
    #[inline]
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// True with probability `p`.
    #[inline]
    pub(super) fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }

    /// A number from the exponential distribution with this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -libm::log1p(-self.unit()) * mean
    }
}

/// Chooses an index by weight.
#[derive(Clone, Debug)]
pub(super) struct Weighted {
    /// Cumulative sums of the weights, divided by the total.
    bounds: Vec<f64>,
}

impl Weighted {
    /// Returns `None` if a weight is negative or not finite, or if the sum is 0 or not finite.
    pub(super) fn new(weights: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sum = 0.0;
        let mut bounds = Vec::new();
        for w in weights {
            if !(w >= 0.0 && w.is_finite()) {
                return None;
            }
            sum += w;
            bounds.push(sum);
        }
        if !(sum > 0.0 && sum.is_finite()) {
            return None;
        }
        bounds.iter_mut().for_each(|b| *b /= sum);
        Some(Weighted { bounds })
    }

    #[inline]
    pub(super) fn choose(&self, random: &mut Random) -> usize {
        if self.bounds.len() == 1 {
            return 0;
        }
        let u = random.unit();
        let at = self.bounds.iter().position(|b| u < *b);
        at.unwrap_or(self.bounds.len() - 1)
    }
}
