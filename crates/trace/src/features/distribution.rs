//! Distributions in bounded memory.

/// Log2 of the number of buckets per power of two: values are accurate to 1 part in 128.
const SUB_BITS: u32 = 7;
/// Every value below this has its own bucket.
const EXACT: u64 = 2 << SUB_BITS;

/// A distribution of integers. Values of a magnitude below 256 are exact, larger ones are rounded
/// towards 0 by at most 0.8 %. The minimum and the maximum are exact.
///
/// It consists of two log-linear histograms (as in Tene's HdrHistogram), one for each sign.
///
/// ```
/// use forebay_trace::Distribution;
/// let mut d = Distribution::default();
/// (1..=100).for_each(|n| d.add(n));
/// assert_eq!((d.quantile(0.5), d.quantile(1.0), d.mean()), (50.0, 100.0, 50.5));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// For each bucket, the number of values of at least 0 and the number of values below 0.
    counts: Vec<[u64; 2]>,
    count: u64,
    sum: f64,
    min: i64,
    max: i64,
}

impl Distribution {
    /// Adds a number.
    #[inline]
    pub fn add(&mut self, value: i64) {
        self.add_many(value, 1);
    }

    /// Adds a number `times` times.
    #[inline]
    pub fn add_many(&mut self, value: i64, times: u64) {
        if times == 0 {
            return;
        }
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.count += times;
        self.sum += value as f64 * times as f64;
        let at = bucket(value.unsigned_abs());
        if at >= self.counts.len() {
            self.counts.resize(at + 1, [0; 2]);
        }
        self.counts[at][usize::from(value < 0)] += times;
    }

    /// Adds the numbers of another distribution.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            (self.min, self.max) = (other.min, other.max);
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum += other.sum;
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), [0; 2]);
        }
        for (mine, others) in self.counts.iter_mut().zip(&other.counts) {
            *mine = [mine[0] + others[0], mine[1] + others[1]];
        }
    }

    /// Whether the distribution has no numbers.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Mean of the numbers; 0 if there are none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The smallest number such that a share `q` of all numbers is not above it; 0 if there are
    /// none.
    pub fn quantile(&self, q: f64) -> f64 {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        if self.count == 0 {
            return 0.0;
        }
        if rank == 1 || rank == self.count {
            return if rank == 1 { self.min as f64 } else { self.max as f64 };
        }
        let mut seen = 0;
        let counts = self.counts.iter().enumerate();
        let negative = counts.clone().rev().map(|(at, n)| (-lower(at), n[1]));
        let positive = counts.map(|(at, n)| (lower(at), n[0]));
        for (value, n) in negative.chain(positive) {
            seen += n;
            if seen >= rank {
                return value.clamp(self.min as f64, self.max as f64);
            }
        }
        self.max as f64
    }
}

fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let exponent = value.ilog2();
    let sub = (value >> (exponent - SUB_BITS)) - (1 << SUB_BITS);
    (EXACT + (u64::from(exponent - SUB_BITS - 1) << SUB_BITS) + sub) as usize
}

/// The smallest value of a bucket.
fn lower(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket as f64;
    }
    let (exponent, sub) = ((bucket - EXACT) >> SUB_BITS, (bucket - EXACT) & ((1 << SUB_BITS) - 1));
    (((1u64 << SUB_BITS) + sub) as f64) * ((2u64 << exponent) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_begin_where_they_say() {
        for value in (0..70_000).chain((16..63).map(|n| 1 << n)).chain([u64::MAX >> 1]) {
            let low = lower(bucket(value));
            assert!(low <= value as f64 && low >= value as f64 * (1.0 - 1.0 / 128.0), "{value}");
        }
        assert_eq!(lower(bucket(1 << 40)), (1u64 << 40) as f64);
    }

    proptest! {
        #[test]
        fn quantiles_are_within_a_hundredth_of_the_sorted_numbers(
            mut values in proptest::collection::vec(-1_000_000i64..1_000_000, 1..200),
            q in 0.0..=1.0,
        ) {
            let mut d = Distribution::default();
            // Two parts, merged, must equal the whole.
            let (one, other) = values.split_at(values.len() / 3);
            let mut rest = Distribution::default();
            one.iter().for_each(|v| d.add(*v));
            other.iter().for_each(|v| rest.add(*v));
            d.merge(&rest);
            prop_assert_eq!(d.count, values.len() as u64);
            values.sort_unstable();
            let rank = f64::ceil(q * values.len() as f64) as usize;
            let rank = rank.clamp(1, values.len());
            let exact = values[rank - 1] as f64;
            prop_assert!((d.quantile(q) - exact).abs() <= exact.abs() / 100.0);
            prop_assert_eq!(d.quantile(0.0), values[0] as f64);
        }
    }
}
