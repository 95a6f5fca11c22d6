//! Spatially hashed sampling (SHARDS): curves from a sample of the blocks, in bounded memory.
//!
//! A block is sampled iff the hash of its key is below a threshold, so either all of its accesses
//! are measured or none. Distances among sampled blocks are 1/rate times too small and are scaled
//! up. With a maximum number of blocks, the threshold starts at all blocks and is lowered whenever
//! more blocks than that are known. An access counted at rate r stands for 1/r accesses; this is
//! the paper's rescaling of old counts, divided by the final rate.
//!
//! The sum of those weights differs from the number of accesses, as popular blocks may or may not
//! be in the sample. The difference is corrected at the smallest distances (the paper's
//! SHARDS-adj), which removes most of the error on skewed workloads. If the sum is too large, the
//! paper lets the count of the smallest distance go negative; here the excess is taken from the
//! smallest distances in turn. If the sample has no read at all, or no write, nothing is known of
//! their distances: they count as cold, not as hits.
//!
//! The hash is stratified (our addition): a group of blocks that is in use as a whole has exactly
//! its share of blocks in the sample, not more or fewer by chance, which would be most of the error
//! on a workload without hot blocks.
//!
//! Source: Waldspurger et al., *Efficient MRC Construction with SHARDS*, FAST 2015, sections 3.1 to
//! 3.3. The paper removes one block at a time, using a priority queue; here an eighth of the sample
//! is dropped at once, without a queue. Does badly on small workloads and where a few blocks carry
//! most accesses: with 100 sampled blocks, errors of several percent are normal.

use forebay_block::Op;

use crate::cpu::Cpu;
use crate::histogram::{HistogramBuilder, WEIGHT_ONE};
use crate::{Distance, LocalityError, ReuseStack};

/// The smallest allowed maximum number of sampled blocks.
const BLOCKS_MIN: u64 = 256;
/// Width of a hash in bits; the threshold `1 << HASH_BITS` samples every block.
pub(crate) const HASH_BITS: u32 = 32;
/// Number of hash bits that distinguish the blocks of a group: a group is `1 << STRATUM_BITS`
/// blocks.
const STRATUM_BITS: u32 = 12;
const HALF_BITS: u32 = STRATUM_BITS / 2;
const HALF: u32 = (1 << HALF_BITS) - 1;
/// An odd number, near the golden section of the range of a half.
const SPREAD: u32 = 39;
/// Number of keys that are hashed together.
const LANES: usize = 8;
const HASHES: f64 = (1u64 << HASH_BITS) as f64;

/// Which blocks to measure. For a sample, distances are scaled up and the number of accesses is
/// corrected (Waldspurger et al., *Efficient MRC Construction with SHARDS*, FAST 2015, sections 3.1
/// to 3.3). Inaccurate on small workloads and where a few blocks carry most accesses: with 100
/// sampled blocks, errors of several percent are normal.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Sampling {
    /// All blocks: exact.
    #[default]
    All,
    /// A share of the blocks, at least 2^-33 and at most 1.
    Rate(f64),
    /// At most this many blocks (256 or more), at a rate that falls as the workload grows.
    MaxBlocks(u64),
}

/// The state of sampling.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Blocks whose hash is below this are sampled.
    threshold: u64,
    /// The share of the blocks of the slice that is sampled.
    rate: f64,
    /// The number of slices into which the workload is split; this samples one of them.
    slices: f64,
    blocks_max: u64,
    /// Number of reads seen, sampled or not; likewise `writes`.
    reads: u64,
    writes: u64,
    /// The sampled part of a batch, with `ops`; kept to reuse their allocations.
    keys: Vec<u64>,
    ops: Vec<Op>,
    cpu: Cpu,
}

impl Sample {
    /// Creates the state of sampling; `None` if all blocks are measured.
    pub(crate) fn new(sampling: Sampling) -> Result<Option<Self>, LocalityError> {
        let (rate, blocks_max) = match sampling {
            Sampling::All => return Ok(None),
            Sampling::Rate(rate) => (rate, u64::MAX),
            Sampling::MaxBlocks(blocks) if blocks >= BLOCKS_MIN => (1.0, blocks),
            Sampling::MaxBlocks(blocks) => {
                return Err(LocalityError::TooFewSampledBlocks { blocks, least: BLOCKS_MIN });
            }
        };
        let threshold = threshold(rate)?;
        let (keys, ops) = (Vec::new(), Vec::new());
        let (slices, reads, writes) = (1.0, 0, 0);
        let cpu = Cpu::detect();
        Ok(Some(Self { threshold, rate, slices, blocks_max, reads, writes, keys, ops, cpu }))
    }

    /// Makes this the sampling of one of `slices` slices: distances are scaled by that factor too,
    /// but accesses weigh the same, since the counts of slices are added up.
    pub(crate) fn of_slices(self, slices: usize) -> Self {
        Self { slices: slices as f64, ..self }
    }

    /// Creates a stack for the sampled accesses.
    pub(crate) fn stack(distance: Distance, sampling: Sampling) -> ReuseStack {
        match sampling {
            Sampling::All | Sampling::Rate(_) => ReuseStack::new(distance),
            Sampling::MaxBlocks(_) => ReuseStack::of_shrinking_sample(distance),
        }
    }

    /// Returns the share of the blocks of the slice that is sampled now.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Passes the sampled accesses to `stack`, and adds their reuses to `counts`.
    pub(crate) fn access_batch(
        &mut self,
        stack: &mut ReuseStack,
        counts: &mut HistogramBuilder,
        keys: &[u64],
        ops: &[Op],
    ) -> Result<(), LocalityError> {
        if keys.len() != ops.len() {
            return Err(LocalityError::UnequalBatch { keys: keys.len(), ops: ops.len() });
        }
        // Small enough to exceed the maximum number of blocks by at most an eighth.
        let step = (self.blocks_max / 8).min(4096) as usize;
        for (keys, ops) in keys.chunks(step).zip(ops.chunks(step)) {
            self.filter(keys, ops);
            let scale = self.slices / self.rate();
            counts.fit(scale);
            let weight = (WEIGHT_ONE as f64 / self.rate()).round() as u64;
            stack.for_each_chunk(&self.keys, &self.ops, |ops, reuses| {
                for (&op, &reuse) in ops.iter().zip(reuses) {
                    counts.add_weighted(op, reuse, scale, weight);
                }
            })?;
            if stack.blocks_known() > self.blocks_max {
                self.shrink(stack);
            }
        }
        Ok(())
    }

    /// Returns the numbers of reads and of writes seen, sampled or not.
    pub(crate) fn seen(&self) -> (u64, u64) {
        (self.reads, self.writes)
    }

    fn filter(&mut self, keys: &[u64], ops: &[Op]) {
        match self.cpu {
            Cpu::Baseline => self.filter_inline(keys, ops),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this variant is chosen by `Cpu::detect` alone, which found these features.
            Cpu::Avx2 => unsafe { self.filter_avx2(keys, ops) },
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn filter_avx2(&mut self, keys: &[u64], ops: &[Op]) {
        self.filter_inline(keys, ops);
    }

    #[inline(always)]
    fn filter_inline(&mut self, keys: &[u64], ops: &[Op]) {
        let reads = count(ops, |op| op == Op::Read);
        let none = count(ops, |op| matches!(op, Op::Trim | Op::Flush));
        self.reads += reads;
        self.writes += ops.len() as u64 - reads - none;
        self.keys.clear();
        self.ops.clear();
        // The threshold is above 0, and may be beyond 32 bits.
        let last = ((self.threshold - 1) >> (HASH_BITS - STRATUM_BITS)) as u32;
        for (keys, ops) in keys.chunks(LANES).zip(ops.chunks(LANES)) {
            // First check whether any key may be sampled: without branches, so that many are
            // checked at a time, and mostly none is.
            let (mut strata, mut any) = ([u32::MAX; LANES], false);
            for (stratum_of, &key) in strata.iter_mut().zip(keys) {
                *stratum_of = stratum(key);
                any |= *stratum_of <= last;
            }
            if !any {
                continue;
            }
            for ((&stratum, &key), &op) in strata.iter().zip(keys).zip(ops) {
                // Only the last stratum below the threshold is sampled in part.
                let sampled =
                    stratum < last || stratum == last && sample_hash(key).0 < self.threshold;
                if sampled && !matches!(op, Op::Trim | Op::Flush) {
                    self.keys.push(key);
                    self.ops.push(op);
                }
            }
        }
    }

    /// Lowers the threshold so that seven eighths of the maximum number of blocks remain.
    fn shrink(&mut self, stack: &mut ReuseStack) {
        let mut hashes = Vec::with_capacity(stack.blocks_known() as usize);
        stack.for_each_key(|key| hashes.push(sample_hash(key).0 as u32));
        let remain = (self.blocks_max / 8 * 7) as usize;
        let (_, &mut threshold, _) = hashes.select_nth_unstable(remain);
        drop(hashes);
        self.threshold = u64::from(threshold).max(1);
        self.rate = self.threshold as f64 / HASHES;
        stack.retain(|key| sample_hash(key).0 < self.threshold);
    }
}

/// Counts the operations for which `is` is true; uses 8-bit sums first, which vectorize.
#[inline(always)]
fn count(ops: &[Op], is: impl Fn(Op) -> bool) -> u64 {
    let of = |ops: &[Op]| ops.iter().map(|&op| u8::from(is(op))).sum::<u8>();
    ops.chunks(u8::MAX.into()).map(|ops| u64::from(of(ops))).sum()
}

/// Returns the threshold that samples a share `rate` of the blocks.
///
/// # Errors
/// If `rate` is above 1, or below half of the share of a single hash value.
pub(crate) fn threshold(rate: f64) -> Result<u64, LocalityError> {
    match rate * HASHES {
        hashes if hashes >= 0.5 && rate <= 1.0 => Ok(hashes.round() as u64),
        _ => Err(LocalityError::BadRate),
    }
}

/// Returns two independent hashes, each `HASH_BITS` wide: the first decides whether a block is
/// sampled. Both are independent of the hash that places blocks in the table. Which blocks are
/// sampled must not depend on how they are numbered.
#[inline(always)]
pub(crate) fn sample_hash(key: u64) -> (u64, u64) {
    // The finaliser of SplitMix64.
    let mut hash = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    let within = hash >> (64 - HASH_BITS + STRATUM_BITS);
    (u64::from(stratum(key)) << (HASH_BITS - STRATUM_BITS) | within, hash & 0xffff_ffff)
}

/// Returns the upper bits of the first hash: a different value for each of the 4,096 blocks of a
/// group with consecutive keys. So in a group that is in use as a whole, a share of the hashes
/// samples that share of the blocks, to within one block, where independent hashes would do so only
/// on average. Within the group the order is as good as random, so that parts of it, or blocks at
/// fixed distances, are sampled as by chance.
///
/// The value comes from a Feistel network of three rounds, keyed by the group, in 32-bit arithmetic
/// so that many are computed at a time. The odd factor moves neighbours far apart before they are
/// shifted together.
#[inline(always)]
fn stratum(key: u64) -> u32 {
    let high = ((key >> (32 + STRATUM_BITS)) as u32).wrapping_mul(0x27d4_eb2f);
    let group = ((key >> STRATUM_BITS) as u32).wrapping_add(high).wrapping_mul(0x9e37_79b1);
    let group = (group ^ (group >> 15)).wrapping_mul(0x85eb_ca77);
    let round = |half: u32, other: u32, factor: u32| {
        let mixed = (group ^ (other + 1).wrapping_mul(0xc2b2_ae3d)).wrapping_mul(factor);
        (half * SPREAD + (mixed >> (32 - HALF_BITS))) & HALF
    };
    let (left, right) = ((key >> HALF_BITS) as u32 & HALF, key as u32 & HALF);
    let right = round(right, left, 0x1656_67b1);
    let left = round(left, right, 0xcc9e_2d51);
    let right = round(right, left, 0x9e37_79b1);
    right << HALF_BITS | left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CurvePoint, ReuseDistances, ReuseHistogram};

    /// A skewed workload: block numbers from the square of a uniform number, one write in four.
    fn accesses(count: u64, blocks: u64) -> (Vec<u64>, Vec<Op>) {
        let mut seed = 11u64;
        (0..count)
            .map(|n| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let uniform = (seed >> 11) as f64 / (1u64 << 53) as f64;
                let op = if n % 4 == 0 { Op::Write } else { Op::Read };
                ((uniform * uniform * blocks as f64) as u64, op)
            })
            .unzip()
    }

    fn measure(distance: Distance, sampling: Sampling, count: u64, blocks: u64) -> ReuseHistogram {
        let (keys, ops) = accesses(count, blocks);
        let mut distances = ReuseDistances::sampled(distance, sampling).unwrap();
        distances.access_batch(&keys, &ops).unwrap();
        distances.into_histogram()
    }

    #[test]
    fn both_loops_of_the_filter_pass_on_what_the_definition_says() {
        let (keys, mut ops) = accesses(5003, 100_000);
        ops.iter_mut().step_by(7).for_each(|op| *op = Op::Trim);
        for rate in [1e-9, 0.01, 0.3, 1.0] {
            for cpu in [Cpu::Baseline, Cpu::detect()] {
                let mut sample = Sample::new(Sampling::Rate(rate)).unwrap().unwrap();
                sample.cpu = cpu;
                sample.filter(&keys, &ops);
                let accesses = || keys.iter().copied().zip(ops.iter().copied());
                let of = |wanted| ops.iter().filter(|&&op| op == wanted).count() as u64;
                let expected = accesses().filter(|&(key, op)| {
                    op != Op::Trim && sample_hash(key).0 < (rate * HASHES).round() as u64
                });
                let filtered = sample.keys.iter().copied().zip(sample.ops.iter().copied());
                assert!(filtered.eq(expected), "{cpu:?} at rate {rate}");
                assert_eq!(sample.seen(), (of(Op::Read), of(Op::Write)));
            }
        }
    }

    #[test]
    fn a_sample_of_everything_is_exact() {
        for distance in Distance::ALL {
            let exact = measure(distance, Sampling::All, 30_000, 4000);
            for sampling in [Sampling::Rate(1.0), Sampling::MaxBlocks(4000)] {
                assert_eq!(measure(distance, sampling, 30_000, 4000), exact, "{distance}");
            }
        }
    }

    #[test]
    fn sampled_curves_are_close_and_count_every_access() {
        let blocks = 100_000;
        for distance in Distance::ALL {
            let exact = measure(distance, Sampling::All, 600_000, blocks);
            for sampling in [Sampling::Rate(0.1), Sampling::MaxBlocks(8192)] {
                let sampled = measure(distance, sampling, 600_000, blocks);
                let differs = sampled.accesses().abs_diff(exact.accesses());
                assert!(
                    differs <= 2,
                    "{distance} {sampling:?}: {differs} accesses too many or few"
                );
                let error: f64 = (1..=20)
                    .map(|i| blocks * i / 20)
                    .map(|size| [&exact, &sampled].map(|h| CurvePoint::at(h, size).miss_ratio))
                    .map(|[exact, sampled]| (exact - sampled).abs())
                    .sum();
                let error = error / 20.0;
                assert!(error < 0.01, "{distance} {sampling:?}: mean error {error}");
                let footprint = sampled.distinct_blocks as f64 / exact.distinct_blocks as f64;
                assert!((footprint - 1.0).abs() < 0.05, "{distance} {sampling:?}: {footprint}");
            }
        }
    }

    #[test]
    fn a_hot_block_within_the_sample_or_outside_does_not_shift_the_curve() {
        let rate = 0.02;
        let threshold = Sample::new(Sampling::Rate(rate)).unwrap().unwrap().threshold;
        for sampled in [true, false] {
            let hot = (1 << 40..).find(|&key| (sample_hash(key).0 < threshold) == sampled).unwrap();
            let (mut keys, ops) = accesses(600_000, 100_000);
            keys.iter_mut().step_by(3).for_each(|key| *key = hot);
            let measure = |sampling| {
                let mut distances = ReuseDistances::sampled(Distance::Trd, sampling).unwrap();
                distances.access_batch(&keys, &ops).unwrap();
                distances.into_histogram()
            };
            let (exact, sample) = (measure(Sampling::All), measure(Sampling::Rate(rate)));
            assert_eq!(sample.accesses(), exact.accesses());
            for size in (1..=20).map(|i| 5000 * i) {
                let [a, b] = [&exact, &sample].map(|h| CurvePoint::at(h, size).miss_ratio);
                // The sample has 2,000 blocks; without the correction, a third of all accesses
                // would count 50 times.
                assert!((a - b).abs() < 0.04, "{sampled}: {a} exact, {b} sampled at {size}");
            }
        }
    }

    #[test]
    fn accesses_of_which_none_is_in_the_sample_count_as_cold_and_never_hit() {
        let sampled = |key: &u64| sample_hash(*key).0 < threshold(0.01).unwrap();
        let measure = |keys: &[u64], ops: &[Op]| {
            let mut distances =
                ReuseDistances::sampled(Distance::Trd, Sampling::Rate(0.01)).unwrap();
            distances.access_batch(keys, ops).unwrap();
            distances.into_histogram()
        };
        let outside: Vec<u64> = (0..).filter(|key| !sampled(key)).take(40).collect();
        let nothing = measure(&outside, &[Op::Read; 40]);
        assert!(nothing.is_unsampled() && nothing.read.is_unsampled && !nothing.write.is_unsampled);
        assert_eq!((nothing.read.cold, nothing.hits(Op::Read, 1 << 40)), (40, 0));
        assert_eq!(CurvePoint::at(&nothing, 1).miss_ratio, 1.0);
        // With the reads of one block in the sample, and no write.
        let inside = (0..).find(sampled).unwrap();
        let keys: Vec<u64> = outside.into_iter().chain([inside, inside]).collect();
        let ops: Vec<Op> = (0..42).map(|i| if i < 40 { Op::Write } else { Op::Read }).collect();
        let half = measure(&keys, &ops);
        assert!(!half.is_unsampled() && half.write.is_unsampled && !half.read.is_unsampled);
        assert_eq!((half.write.accesses(), half.write.cold, half.read.accesses()), (40, 40, 2));
    }

    #[test]
    fn a_bounded_sample_stays_within_an_eighth_of_its_bound() {
        let mut stack = ReuseStack::new(Distance::Trd);
        let mut counts = HistogramBuilder::new();
        let mut sample = Sample::new(Sampling::MaxBlocks(512)).unwrap().unwrap();
        let (keys, ops) = accesses(200_000, 50_000);
        for (keys, ops) in keys.chunks(777).zip(ops.chunks(777)) {
            sample.access_batch(&mut stack, &mut counts, keys, ops).unwrap();
            assert!(stack.blocks_known() <= 512 + 64);
        }
        assert!(stack.blocks_known() >= 400 && sample.rate() < 0.015, "{}", sample.rate());
    }

    #[test]
    fn keys_in_any_order_are_sampled_at_the_rate_asked_for() {
        type Order = (&'static str, fn(u64) -> u64);
        let orders: [Order; 6] = [
            ("consecutive", |n| n),
            ("in steps of 1 MiB", |n| n << 8),
            ("in steps of 16 TiB", |n| n << 32),
            ("multiples mod 2^32", |n| n * 2_654_435_761 % (1 << 32)),
            ("multiples mod 2^64", |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            ("reversed bits", u64::reverse_bits),
        ];
        for (name, key) in orders {
            for rate in [0.001, 0.01, 0.1, 0.5] {
                let sample = Sample::new(Sampling::Rate(rate)).unwrap().unwrap();
                let blocks = 1_000_000;
                let sampled = (1..=blocks).filter(|&n| sample_hash(key(n)).0 < sample.threshold);
                let expected = blocks as f64 * rate;
                // Five standard deviations of a fair coin.
                let bound = 5.0 * (expected * (1.0 - rate)).sqrt();
                let error = sampled.count() as f64 - expected;
                assert!(error.abs() < bound, "{name} at rate {rate}: off by {error}");
            }
        }
    }

    #[test]
    fn of_blocks_side_by_side_every_group_has_its_share_in_the_sample() {
        let group = 1u64 << STRATUM_BITS;
        for number in [0, 1, 2, 77, 1 << 20, 1 << 33, (1 << 52) - 1] {
            let mut hashes: Vec<u64> =
                (0..group).map(|i| sample_hash(number * group + i).0).collect();
            hashes.sort_unstable();
            let strata = hashes.iter().map(|hash| hash >> (HASH_BITS - STRATUM_BITS));
            assert!(strata.eq(0..group), "group {number}");
        }
        // Which blocks are sampled differs from group to group.
        let sampled = |number: u64| {
            let of = (0..group).filter(move |&i| sample_hash(number * group + i).0 < 1 << 28);
            of.collect::<Vec<_>>()
        };
        assert!((1..200).all(|number| sampled(number) != sampled(0)));
    }

    #[test]
    fn of_a_part_of_a_group_as_many_are_sampled_as_chance_has_it() {
        for rate in [0.01, 0.03, 0.1, 0.25, 0.5] {
            let below = threshold(rate).unwrap();
            for window in [64, 128, 256, 512, 1024, 2048u64] {
                let deviation = |n: u64| {
                    let from = n * 7919 * 4096 + n % (4096 / window) * window;
                    let sampled = (from..from + window).filter(|&key| sample_hash(key).0 < below);
                    (sampled.count() as f64 - window as f64 * rate).powi(2)
                };
                let variance = (0..1000).map(deviation).sum::<f64>() / 1000.0;
                let binomial = window as f64 * rate * (1.0 - rate);
                assert!(variance < 1.2 * binomial, "{window} at {rate}: {variance}, {binomial}");
            }
        }
    }

    #[test]
    fn blocks_some_way_apart_are_sampled_together_as_often_as_chance_has_it() {
        for (rate, within) in [(0.01, 0.5), (0.03, 0.15), (0.1, 0.1), (0.25, 0.05), (0.5, 0.05)] {
            let below = threshold(rate).unwrap();
            let keys = 0..1u64 << 19;
            for apart in [1, 2, 3, 7, 8, 16, 63, 64, 65, 128, 256, 1000, 4096] {
                let both =
                    |&key: &u64| sample_hash(key).0 < below && sample_hash(key + apart).0 < below;
                let share = keys.clone().filter(both).count() as f64 / keys.end as f64;
                let ratio = share / (rate * rate);
                assert!((ratio - 1.0).abs() < within, "{apart} apart at {rate}: {ratio}");
            }
        }
    }

    #[test]
    fn rates_and_bounds_out_of_range_are_refused() {
        for rate in [0.0, 1e-300, 1e-10, -0.1, 1.01, f64::NAN, f64::INFINITY] {
            let sampling = Sampling::Rate(rate);
            assert_eq!(Sample::new(sampling).unwrap_err(), LocalityError::BadRate);
        }
        let few = Sample::new(Sampling::MaxBlocks(255)).unwrap_err();
        assert_eq!(few, LocalityError::TooFewSampledBlocks { blocks: 255, least: 256 });
        assert!(Sample::new(Sampling::All).unwrap().is_none());
    }
}
