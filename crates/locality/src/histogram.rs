//! How often each reuse distance occurred, by operation.
//!
//! A histogram is collected in a [`HistogramBuilder`] and then becomes a [`ReuseHistogram`],
//! whose running sums answer "how many reads hit in a cache of `c` blocks" in constant time.
//!
//! Memory: two counters for every distance would cost 16 bytes per distinct block, more than half
//! of everything else. So each distance below 65,536 has its own counter, and sixteen larger ones
//! share one: about 1 byte per distinct block, plus 1 MiB. Nothing is estimated: counts are exact,
//! and hits are exact for every cache size up to 65,536 blocks and for multiples of 16 blocks (64
//! KiB at 4 KiB per block) beyond, finer than any allocation unit.
//!
//! Distances of a sample are estimates, in steps of 1/rate. They are counted in units of a quarter
//! of such a step, rounded down to a power of two, so that a bounded sample has a bounded
//! histogram.

use forebay_block::Op;
use serde::{Deserialize, Serialize};

use crate::{Distance, Reuse};

/// Each distance below this has its own counter.
const FINE_END: u64 = 1 << 16;
/// log2 of the number of larger distances that share a counter.
const COARSE_SHIFT: u32 = 4;
/// Number of units in which distances are counted, per block of the sample.
const STEPS_PER_SAMPLED: f64 = 4.0;
/// log2 of the scale of counters: they count in units of 1/65,536, so that a sampled access can
/// weigh 1/rate.
const WEIGHT_SHIFT: u32 = 16;

/// The largest distance and total weight accepted when counters are deserialized: the counters of
/// 256 slices can be added up without overflow.
const MERGED_DISTANCE_MAX: u64 = 1 << 40;
const MERGED_WEIGHT_MAX: u64 = u64::MAX >> 9;

/// The weight of one access that is not scaled up.
pub(crate) const WEIGHT_ONE: u64 = 1 << WEIGHT_SHIFT;

/// Hits and misses by cache size, for reads and for writes, of one workload and one kind of
/// distance.
///
/// ```
/// use forebay_block::Op::{Read, Write};
/// use forebay_locality::{Distance, ReuseDistances};
/// let mut distances = ReuseDistances::new(Distance::Trd);
/// distances.access_batch(&[1, 2, 1, 2, 2], &[Read, Read, Read, Write, Read]).unwrap();
/// let histogram = distances.into_histogram();
/// assert_eq!(histogram.hits(Read, 1), 1);
/// assert_eq!(histogram.hits(Read, 2), 2);
/// assert_eq!(histogram.hits(Write, 2), 1);
/// assert_eq!(histogram.read.cold, 2);
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReuseHistogram {
    /// The counts of reads.
    pub read: DistanceCounts,
    /// The counts of writes and write-zeroes requests.
    pub write: DistanceCounts,
    /// Number of distinct blocks accessed; for a sample, scaled up to all blocks.
    pub distinct_blocks: u64,
    /// The share of blocks that was measured: 1 unless sampled.
    pub sampled_rate: SampledRate,
}

/// The share of blocks that is in the sample, in (0, 1].
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct SampledRate(pub f64);

impl Default for SampledRate {
    fn default() -> Self {
        Self(1.0)
    }
}

/// The reuse distances of one operation, as running sums.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DistanceCounts {
    /// `sums[i]` counts the reuses whose distance lies in counters 0 to i.
    sums: Vec<u64>,
    /// Distances are counted in units of `1 << shift`; the same for both operations.
    shift: u32,
    /// Number of accesses to blocks that no cache held, whatever its size.
    pub cold: u64,
    /// Number of accesses of a kind that the distance does not measure; they never hit.
    pub unmeasured: u64,
    /// The largest distance counted, not rounded; `None` without reuse.
    pub max_distance: Option<u64>,
    /// Whether none of these accesses is in the sample. All of them then count as cold, as the
    /// number of hits is unknown.
    pub is_unsampled: bool,
}

impl ReuseHistogram {
    /// Returns how many accesses by `op` hit in an LRU cache of `cache_blocks` blocks; 0 for
    /// operations that access no data. See [`DistanceCounts::hits`].
    #[inline]
    pub fn hits(&self, op: Op, cache_blocks: u64) -> u64 {
        self.counts(op).map_or(0, |counts| counts.hits(cache_blocks))
    }

    /// Returns the counts of `op`; `None` for operations that access no data.
    #[inline]
    pub fn counts(&self, op: Op) -> Option<&DistanceCounts> {
        match op {
            Op::Read => Some(&self.read),
            Op::Write | Op::WriteZeroes => Some(&self.write),
            Op::Trim | Op::Flush => None,
        }
    }

    /// Number of block accesses, reads and writes together.
    pub fn accesses(&self) -> u64 {
        self.read.accesses() + self.write.accesses()
    }

    /// Number of blocks that were measured: `distinct_blocks` unless sampled.
    pub fn sampled_blocks(&self) -> u64 {
        (self.distinct_blocks as f64 * self.sampled_rate.0).round() as u64
    }

    /// Returns whether there are accesses but none of their blocks is in the sample: nothing is
    /// known of their distances.
    pub fn is_unsampled(&self) -> bool {
        self.accesses() > 0 && self.sampled_rate.0 < 1.0 && self.sampled_blocks() == 0
    }

    /// Returns the largest distance of any measured reuse. A cache of one block more has every hit.
    pub fn max_distance(&self) -> Option<u64> {
        self.read.max_distance.max(self.write.max_distance)
    }

    /// Returns the largest cache size up to `blocks` at which every histogram of all blocks has
    /// exact hits.
    pub fn exact_blocks(blocks: u64) -> u64 {
        first_distance(counter_of(blocks))
    }

    /// Returns the cache sizes at which the hits of either operation change, in ascending order.
    /// Hits at each of them are exact.
    pub fn breakpoints(&self) -> impl Iterator<Item = u64> + '_ {
        let counters = self.read.sums.len().max(self.write.sums.len());
        (0..counters).filter(|&i| self.read.count(i) + self.write.count(i) > 0).map(|i| {
            let size = first_distance(i + 1) << self.read.shift;
            // The last counter ends at the largest distance.
            self.max_distance().map_or(size, |max| size.min(max + 1))
        })
    }
}

impl DistanceCounts {
    /// Returns how many of these accesses hit in an LRU cache of `cache_blocks` blocks: the reuses
    /// at a smaller distance.
    ///
    /// Exact for sizes up to 65,536 blocks, for multiples of 16 beyond, and for sizes above the
    /// largest distance; for sizes in between, returns the hits at the next smaller such size (a
    /// lower bound). A sample has steps of about a quarter of 1/rate blocks instead.
    #[inline]
    pub fn hits(&self, cache_blocks: u64) -> u64 {
        if self.max_distance.is_none_or(|max| cache_blocks > max) {
            return self.reuses();
        }
        match counter_of(cache_blocks >> self.shift) {
            0 => 0,
            i => self.sums.get(i - 1).copied().unwrap_or(self.reuses()),
        }
    }

    /// Number of measured reuses: the hits of a cache of unlimited size.
    #[inline]
    pub fn reuses(&self) -> u64 {
        self.sums.last().copied().unwrap_or(0)
    }

    /// Number of accesses by the operation.
    pub fn accesses(&self) -> u64 {
        self.reuses() + self.cold + self.unmeasured
    }

    fn count(&self, counter: usize) -> u64 {
        let upto = |i: usize| self.sums.get(i).copied().unwrap_or(self.reuses());
        upto(counter) - if counter == 0 { 0 } else { upto(counter - 1) }
    }
}

/// Collects reuses into counters.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HistogramBuilder {
    read: Counters,
    write: Counters,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(into = "WrittenCounters", try_from = "WrittenCounters")]
struct Counters {
    counts: Vec<u64>,
    shift: u32,
    cold: u64,
    unmeasured: u64,
    max_distance: Option<u64>,
    /// Whether [`Counters::correct`] has found nothing counted of accesses that there were.
    is_unsampled: bool,
}

/// [`Counters`] as they are written down: those that are not 0, with their numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCounters {
    counts: Vec<(u64, u64)>,
    shift: u32,
    cold: u64,
    unmeasured: u64,
    max_distance: Option<u64>,
}

impl HistogramBuilder {
    /// Creates a builder with all counts 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one access; operations that access no data are ignored.
    #[inline]
    pub fn add(&mut self, op: Op, reuse: Reuse) {
        self.add_weighted(op, reuse, 1.0, WEIGHT_ONE);
    }

    /// Counts an access that stands for `weight` / [`WEIGHT_ONE`] accesses, at its distance
    /// times `scale`.
    #[inline(always)]
    pub(crate) fn add_weighted(&mut self, op: Op, reuse: Reuse, scale: f64, weight: u64) {
        let counters = match op {
            Op::Read => &mut self.read,
            Op::Write | Op::WriteZeroes => &mut self.write,
            Op::Trim | Op::Flush => return,
        };
        match reuse.distance() {
            Some(distance) if scale == 1.0 => counters.reuse(u64::from(distance), weight),
            Some(distance) => counters.reuse((f64::from(distance) * scale) as u64, weight),
            None if reuse == Reuse::COLD => counters.cold += weight,
            None => counters.unmeasured += weight,
        }
    }

    /// Makes the weights of reads and writes add up to `reads` and `writes`. Missing weight is
    /// added at distance 0, or as cold if nothing was counted ([`DistanceCounts::is_unsampled`]).
    /// Excess weight is taken from the smallest distances that have any.
    pub(crate) fn correct(&mut self, distance: Distance, reads: u64, writes: u64) {
        let missing =
            |seen: u64, weight: u128| i128::from(seen) * i128::from(WEIGHT_ONE) - weight as i128;
        let [read, write] = self.weights();
        self.read.correct(missing(reads, read));
        if distance.measures_writes() {
            self.write.correct(missing(writes, write));
        } else {
            self.write.unmeasured = writes * WEIGHT_ONE;
        }
    }

    /// Counts each distance that is too large for a workload of `distinct_blocks` blocks as the
    /// largest possible one. An estimate can be too large, but a cache that holds every block gets
    /// every hit.
    pub(crate) fn limit(&mut self, distinct_blocks: u64) {
        let distance_max = distinct_blocks.saturating_sub(1);
        self.read.limit(distance_max);
        self.write.limit(distance_max);
    }

    /// Returns the total weight of reads and of writes, in [`WEIGHT_ONE`]ths.
    pub(crate) fn weights(&self) -> [u128; 2] {
        [&self.read, &self.write].map(Counters::weight)
    }

    /// Chooses the unit of distance for a sample whose distances are `scale` times too small. The
    /// unit never becomes finer.
    pub(crate) fn fit(&mut self, scale: f64) {
        let shift = (scale / STEPS_PER_SAMPLED).max(1.0).log2() as u32;
        self.read.coarsen(shift);
        self.write.coarsen(shift);
    }

    /// Adds the counts of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
    }

    /// Returns the histogram of everything counted. Allocates no memory.
    pub fn finish(self, distinct_blocks: u64) -> ReuseHistogram {
        ReuseHistogram {
            read: self.read.finish(),
            write: self.write.finish(),
            distinct_blocks,
            sampled_rate: SampledRate::default(),
        }
    }
}

impl Counters {
    #[inline(always)]
    fn reuse(&mut self, distance: u64, weight: u64) {
        let counter = counter_of(distance >> self.shift);
        if counter >= self.counts.len() {
            self.grow(counter);
        }
        self.counts[counter] += weight;
        self.max_distance = self.max_distance.max(Some(distance));
    }

    /// Counts distances in units of `1 << shift` from now on, if that is coarser than before.
    fn coarsen(&mut self, shift: u32) {
        if shift <= self.shift {
            return;
        }
        for counter in 0..self.counts.len() {
            let count = core::mem::take(&mut self.counts[counter]);
            // The new counter is never a later one.
            self.counts[counter_of(first_distance(counter) << self.shift >> shift)] += count;
        }
        self.shift = shift;
        self.counts.truncate(self.max_distance.map_or(0, |max| counter_of(max >> shift) + 1));
        self.counts.shrink_to_fit();
    }

    fn limit(&mut self, distance_max: u64) {
        if self.max_distance.is_none_or(|max| max <= distance_max) {
            return;
        }
        let last = counter_of(distance_max >> self.shift);
        let beyond: u64 = self.counts.drain(last + 1..).sum();
        self.counts[last] += beyond;
        self.max_distance = Some(distance_max);
    }

    fn merge(&mut self, other: &Self) {
        self.coarsen(other.shift);
        if other.shift < self.shift {
            let mut other = other.clone();
            other.coarsen(self.shift);
            return self.merge(&other);
        }
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.cold += other.cold;
        self.unmeasured += other.unmeasured;
        self.max_distance = self.max_distance.max(other.max_distance);
    }

    fn weight(&self) -> u128 {
        let reuses: u128 = self.counts.iter().map(|&n| u128::from(n)).sum();
        reuses + u128::from(self.cold) + u128::from(self.unmeasured)
    }

    fn correct(&mut self, weight: i128) {
        if weight > 0 {
            let missing = weight.min(i128::from(u64::MAX)) as u64;
            // Missing accesses are mostly to popular blocks, if the sample has any access at all.
            // If it has none, counting them at distance 0 would invent hits.
            self.is_unsampled = self.weight() == 0;
            if self.is_unsampled { self.cold = missing } else { self.reuse(0, missing) }
        }
        let mut excess = weight.min(0).unsigned_abs();
        for count in self.counts.iter_mut().chain([&mut self.cold]) {
            let taken = excess.min(u128::from(*count));
            *count -= taken as u64;
            excess -= taken;
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, counter: usize) {
        let counters = (counter + 1).max(self.counts.len() + self.counts.len() / 4).max(64);
        self.counts.reserve_exact(counters - self.counts.len());
        self.counts.resize(counters, 0);
    }

    fn finish(self) -> DistanceCounts {
        let mut sums = self.counts;
        sums.truncate(self.max_distance.map_or(0, |max| counter_of(max >> self.shift) + 1));
        let (mut weight, mut before) = (0, 0);
        for sum in &mut sums {
            weight += *sum;
            *sum = rounded(weight).max(before);
            before = *sum;
        }
        let (cold, unmeasured) = (rounded(self.cold), rounded(self.unmeasured));
        let Self { shift, max_distance, is_unsampled, .. } = self;
        DistanceCounts { sums, shift, cold, unmeasured, max_distance, is_unsampled }
    }
}

impl From<Counters> for WrittenCounters {
    fn from(counters: Counters) -> Self {
        let Counters { counts, shift, cold, unmeasured, max_distance, is_unsampled: _ } = counters;
        let counts = (0..).zip(counts).filter(|&(_, count)| count > 0).collect();
        Self { counts, shift, cold, unmeasured, max_distance }
    }
}

impl TryFrom<WrittenCounters> for Counters {
    type Error = &'static str;

    fn try_from(written: WrittenCounters) -> Result<Self, Self::Error> {
        let WrittenCounters { counts: given, shift, cold, unmeasured, max_distance } = written;
        if shift >= u32::BITS || max_distance.is_some_and(|max| max > MERGED_DISTANCE_MAX) {
            return Err("a distance exceeds the largest possible distance");
        }
        let last = max_distance.map_or(0, |max| counter_of(max >> shift) + 1);
        let mut counts = Vec::new();
        let mut weight = cold.checked_add(unmeasured);
        for (counter, count) in given {
            if counter < counts.len() as u64 || counter >= last as u64 {
                return Err("the counters are out of order, or exceed the largest distance");
            }
            weight = weight.and_then(|weight| weight.checked_add(count));
            counts.resize(counter as usize, 0);
            counts.push(count);
        }
        if weight.is_none_or(|weight| weight > MERGED_WEIGHT_MAX) {
            return Err("it counts more accesses than are possible");
        }
        Ok(Self { counts, shift, cold, unmeasured, max_distance, is_unsampled: false })
    }
}

fn rounded(weight: u64) -> u64 {
    (weight + WEIGHT_ONE / 2) >> WEIGHT_SHIFT
}

/// Returns the number of the counter that counts `distance`.
#[inline(always)]
fn counter_of(distance: u64) -> usize {
    let coarse = FINE_END + ((distance.max(FINE_END) - FINE_END) >> COARSE_SHIFT);
    (if distance < FINE_END { distance } else { coarse }) as usize
}

/// Returns the smallest distance that `counter` counts.
fn first_distance(counter: usize) -> u64 {
    let counter = counter as u64;
    if counter < FINE_END { counter } else { FINE_END + ((counter - FINE_END) << COARSE_SHIFT) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Op::{Read, Write};
    use proptest::prelude::*;

    fn build(reuses: &[(Op, Option<u32>)]) -> ReuseHistogram {
        let mut builder = HistogramBuilder::new();
        for &(op, distance) in reuses {
            builder.add(op, distance.map_or(Reuse::COLD, Reuse::at));
        }
        builder.finish(0)
    }

    fn reuses() -> impl Strategy<Value = Vec<(Op, Option<u32>)>> {
        let distance = prop_oneof![0..40u32, 65_400..65_700u32, 0..300_000u32];
        let op = prop_oneof![Just(Read), Just(Write)];
        proptest::collection::vec((op, proptest::option::weighted(0.8, distance)), 0..400)
    }

    proptest! {
        #[test]
        fn hits_equal_a_count_of_smaller_distances(
            reuses in reuses(), sizes in proptest::collection::vec(0..400_000u64, 50),
        ) {
            let histogram = build(&reuses);
            for op in [Read, Write] {
                let distances: Vec<u64> = reuses.iter()
                    .filter(|r| r.0 == op).filter_map(|r| r.1.map(u64::from)).collect();
                let count = |size: u64| distances.iter().filter(|&&d| d < size).count() as u64;
                let max = distances.iter().copied().max();
                prop_assert_eq!(histogram.counts(op).unwrap().max_distance, max);
                for &size in &sizes {
                    let near = size % 66_000;
                    for exact in [near.min(65_536), size & !15, max.map_or(0, |max| max + 1 + size)] {
                        prop_assert_eq!(histogram.hits(op, exact), count(exact), "size {}", exact);
                    }
                    let hits = histogram.hits(op, size);
                    prop_assert!(hits <= count(size) && hits >= count(size & !15));
                }
            }
        }

        #[test]
        fn hits_change_at_breakpoints_and_nowhere_else(reuses in reuses()) {
            let histogram = build(&reuses);
            let hits = |size| histogram.hits(Read, size) + histogram.hits(Write, size);
            let mut before = 0;
            for size in histogram.breakpoints() {
                prop_assert_eq!(hits(ReuseHistogram::exact_blocks(size - 1)), before);
                prop_assert!(hits(size) > before);
                before = hits(size);
            }
            prop_assert_eq!(before, reuses.iter().filter(|r| r.1.is_some()).count() as u64);
        }
    }

    #[test]
    fn coarser_steps_keep_every_count_and_move_none_beyond_its_step() {
        for (scale, step) in [(1.0, 1), (7.9, 1), (8.0, 2), (100.0, 16), (5000.0, 1024)] {
            let distances = [0, 1, 5, 999, 65_535, 65_536, 70_001, 1_234_567];
            let mut fine = HistogramBuilder::new();
            distances.iter().for_each(|&distance| fine.add(Read, Reuse::at(distance)));
            let mut coarse = fine.clone();
            coarse.fit(scale);
            distances.iter().for_each(|&distance| coarse.add(Read, Reuse::at(distance)));
            let bytes =
                |b: &HistogramBuilder| 8 * (b.read.counts.capacity() + b.write.counts.capacity());
            let before = bytes(&fine);
            let (fine, mut merged) = (fine.finish(8), coarse.clone());
            merged.merge(&coarse);
            assert!(bytes(&merged) <= if step < 1024 { before } else { 8 * 1300 });
            let (coarse, merged) = (coarse.finish(8), merged.finish(8));
            for size in [0, 1, 5, 6, 1000, 65_536, 65_552, 70_016, 1_234_568, 2_000_000] {
                let hits = coarse.hits(Read, size);
                assert_eq!(merged.hits(Read, size), 2 * hits);
                let (least, most) = (size.saturating_sub(step.max(16)), size);
                let bounds = 2 * fine.hits(Read, least)..=2 * fine.hits(Read, most);
                assert!(bounds.contains(&hits), "{scale}, {size}: {hits} of {bounds:?}");
            }
            assert_eq!(coarse.max_distance(), Some(1_234_567));
        }
    }

    #[test]
    fn operations_without_data_are_not_counted() {
        let histogram =
            build(&[(Op::Trim, Some(1)), (Op::Flush, None), (Op::WriteZeroes, Some(1))]);
        assert_eq!(histogram.accesses(), 1);
        assert_eq!((histogram.hits(Write, 2), histogram.hits(Op::Trim, 2)), (1, 0));
    }

    #[test]
    fn an_empty_histogram_has_no_hits() {
        let histogram = build(&[]);
        assert_eq!((histogram.max_distance(), histogram.breakpoints().count()), (None, 0));
        assert_eq!((histogram.hits(Read, u64::MAX), histogram.accesses()), (0, 0));
    }
}
