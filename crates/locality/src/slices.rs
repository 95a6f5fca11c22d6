//! Measures a large workload in slices. Each slice takes a share of the blocks by hash and is
//! measured separately, on any thread. The curves are merged, and their spread bounds the error.
//!
//! One of `n` slices contains one block in `n`, or fewer if the workload is sampled as well, and is
//! therefore a SHARDS sample ([`crate::Sampling`]): its distances are scaled by `n`. No two slices
//! share a block, so their estimates are independent, and the merged histogram, which is the sum of
//! theirs, is their mean. All slices together count each access once: without sampling, the numbers
//! of accesses, blocks and cold misses are exact, and only distances are estimated. Compared with
//! one measurement of all blocks, the smallest sizes are less precise: in a slice, a cache of less
//! than about ten times `n` blocks has only a few blocks.
//!
//! Bounds: see [`Interval`]. They cover the error from the assignment of blocks to slices, and no
//! other.

use forebay_block::{BlockAddr, BlockIndex, BlockSize, Op, Request};
use serde::{Deserialize, Serialize};

use crate::bounds::Interval;
use crate::histogram::HistogramBuilder;
use crate::sample::{Sample, Sampling};
use crate::{
    BlockKeys, BlockSample, CurvePoint, Distance, LocalityError, ReuseHistogram, ReuseStack,
};

/// Number of accesses in a full batch.
const BATCH: usize = 4096;

/// Block accesses of one slice, in order.
#[derive(Clone, Debug, Default)]
pub struct SliceBatch {
    keys: Vec<u64>,
    ops: Vec<Op>,
}

/// Splits a workload into slices.
///
/// ```
/// use forebay_block::{BlockSize, Flags, Nanos, Op, Request, Volume};
/// use forebay_locality::{Distance, Sampling, Slice, Slicer, merge_slices};
/// let mut slicer = Slicer::new(BlockSize::default(), 4, Sampling::All).unwrap();
/// let mut slices: Vec<Slice> =
///     (0..4).map(|_| Slice::new(Distance::Trd, 4, Sampling::All).unwrap()).collect();
/// let read = Request { time: Nanos(0), volume: Volume(0), op: Op::Read, flags: Flags::NONE,
///                      offset: 0, length: 1 << 20 };
/// for _ in 0..2 {
///     slicer.add(&read, |slice, batch| slices[slice].measure(&batch)).unwrap();
/// }
/// slicer.finish(|slice, batch| slices[slice].measure(&batch)).unwrap();
/// let merged = merge_slices(&slicer, slices);
/// assert_eq!(merged.merged.accesses(), 512);
/// assert_eq!(merged.merged.distinct_blocks, 256);
/// ```
#[derive(Clone, Debug)]
pub struct Slicer {
    block_size: BlockSize,
    keys: BlockKeys,
    batches: Vec<SliceBatch>,
    /// Selects the sampled blocks and the slice of each.
    sample: BlockSample,
    /// The only slice whose batches are passed to the caller; `None` for all slices.
    only: Option<usize>,
    seen: Accesses,
}

/// Block accesses, by operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Accesses {
    /// Accesses of reads.
    pub reads: u64,
    /// Accesses of writes, and of write-zeroes requests.
    pub writes: u64,
}

/// The measurement of one slice; used by one thread at a time.
#[derive(Clone, Debug)]
pub struct Slice {
    stack: ReuseStack,
    counts: HistogramBuilder,
    sample: Sample,
}

/// What one slice has counted, to be merged with those of the others, perhaps by another process.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SliceCounts {
    counts: HistogramBuilder,
    /// Blocks that were looked at and are known.
    blocks_known: u64,
    /// The share of the slice's blocks that was looked at.
    rate: f64,
}

/// The merged histogram of all slices.
#[derive(Clone, PartialEq, Debug)]
pub struct SlicedHistogram {
    /// The histogram of all slices together.
    pub merged: ReuseHistogram,
    /// The histogram of each slice, scaled to an equal share of all accesses.
    pub slices: Vec<ReuseHistogram>,
}

impl Slicer {
    /// Creates a slicer that splits requests into blocks of `block_size`, and the blocks selected
    /// by `sampling` into `slices` slices. A maximum number of sampled blocks applies to all slices
    /// together.
    ///
    /// # Errors
    /// If the sampling rate or bound is out of range.
    pub fn new(
        block_size: BlockSize,
        slices: usize,
        sampling: Sampling,
    ) -> Result<Self, LocalityError> {
        Slice::new(Distance::Trd, slices, sampling)?;
        let rate = match sampling {
            Sampling::Rate(rate) => rate,
            Sampling::All | Sampling::MaxBlocks(_) => 1.0,
        };
        let sample = BlockSample::new(rate, slices)?;
        let batches = vec![SliceBatch::default(); slices];
        let (keys, seen) = (BlockKeys::new(), Accesses::default());
        Ok(Self { block_size, keys, batches, sample, only: None, seen })
    }

    /// Passes only the batches of slice number `slice` to the caller; [`Slicer::accesses`] still
    /// counts all slices.
    #[must_use]
    pub fn only(self, slice: usize) -> Self {
        Self { only: Some(slice), ..self }
    }

    /// Returns the number of accesses in all slices, sampled or not.
    pub fn accesses(&self) -> Accesses {
        self.seen
    }

    /// Splits one request. Calls `full` with each batch that becomes full and the number of its
    /// slice. Trims and flushes do not count as accesses.
    ///
    /// # Errors
    /// If the workload spreads over too many regions, and the errors of `full`.
    pub fn add<E: From<LocalityError>>(
        &mut self,
        request: &Request,
        mut full: impl FnMut(usize, SliceBatch) -> Result<(), E>,
    ) -> Result<(), E> {
        let seen = match request.op {
            _ if request.length == 0 => return Ok(()),
            Op::Read => &mut self.seen.reads,
            Op::Write | Op::WriteZeroes => &mut self.seen.writes,
            Op::Trim | Op::Flush => return Ok(()),
        };
        let first = self.block_size.index_of(request.offset).0;
        let end = request.offset.saturating_add(request.length - 1);
        let last = self.block_size.index_of(end).0;
        *seen += last - first + 1;
        for block in first..=last {
            let addr = BlockAddr { volume: request.volume, block: BlockIndex(block) };
            let key = self.keys.key(addr)?;
            let Some(slice) = self.sample.part_of(key) else { continue };
            if self.only.is_some_and(|only| only != slice) {
                continue;
            }
            let batch = &mut self.batches[slice];
            batch.keys.push(key);
            batch.ops.push(request.op);
            if batch.keys.len() >= BATCH {
                full(slice, core::mem::take(batch))?;
            }
        }
        Ok(())
    }

    /// Calls `full` with the remaining batch of every slice, even if it is empty.
    ///
    /// # Errors
    /// The errors of `full`.
    pub fn finish<E>(
        &mut self,
        mut full: impl FnMut(usize, SliceBatch) -> Result<(), E>,
    ) -> Result<(), E> {
        for (slice, batch) in self.batches.iter_mut().enumerate() {
            full(slice, core::mem::take(batch))?;
        }
        Ok(())
    }
}

impl Slice {
    /// Creates the measurement of one of `slices` slices of a workload.
    ///
    /// # Errors
    /// If the sampling rate or bound is out of range.
    pub fn new(
        distance: Distance,
        slices: usize,
        sampling: Sampling,
    ) -> Result<Self, LocalityError> {
        let sampling = match sampling {
            Sampling::All => Sampling::Rate(1.0),
            Sampling::MaxBlocks(blocks) => Sampling::MaxBlocks(blocks / slices.max(1) as u64),
            rate @ Sampling::Rate(_) => rate,
        };
        let (stack, counts) = (Sample::stack(distance, sampling), HistogramBuilder::new());
        let sample = match Sample::new(sampling)? {
            Some(sample) => sample.of_slices(slices),
            None => return Err(LocalityError::BadRate),
        };
        Ok(Self { stack, counts, sample })
    }

    /// Measures a batch of this slice. Batches must come in the order in which [`Slicer`] returns
    /// them.
    ///
    /// # Errors
    /// If the slice holds more blocks than can be ordered.
    pub fn measure(&mut self, batch: &SliceBatch) -> Result<(), LocalityError> {
        self.sample.access_batch(&mut self.stack, &mut self.counts, &batch.keys, &batch.ops)
    }

    /// Returns the counts.
    pub fn into_counts(self) -> SliceCounts {
        let Self { stack, counts, sample } = self;
        SliceCounts { counts, blocks_known: stack.blocks_known(), rate: sample.rate() }
    }
}

/// Merges all slices of the workload that `slicer` has split.
pub fn merge_slices(slicer: &Slicer, slices: Vec<Slice>) -> SlicedHistogram {
    let distance = slices.first().map_or(Distance::Trd, |slice| slice.stack.distance());
    let counts = slices.into_iter().map(Slice::into_counts).collect();
    merge_slice_counts(distance, slicer.accesses(), counts)
}

/// Merges the counts of all slices of a workload, given in order of slice number. `seen` is the
/// number of accesses in the workload.
pub fn merge_slice_counts(
    distance: Distance,
    seen: Accesses,
    slices: Vec<SliceCounts>,
) -> SlicedHistogram {
    let count = slices.len() as f64;
    let known = |slice: &SliceCounts| slice.blocks_known as f64 / slice.rate;
    let distinct_blocks = slices.iter().map(known).sum::<f64>().round() as u64;
    let rates: f64 = slices.iter().map(|slice| slice.rate).sum();
    let mut counts = HistogramBuilder::new();
    let mut own = Vec::new();
    for slice in slices {
        let known = known(&slice);
        let mut part = slice.counts;
        // A slice that has more than its share of the blocks overestimates distances.
        part.limit(distinct_blocks);
        counts.merge(&part);
        let share = |seen: u64| (seen as f64 / count).round() as u64;
        part.correct(distance, share(seen.reads), share(seen.writes));
        own.push(part.finish(known.round() as u64));
    }
    if !own.is_empty() {
        counts.correct(distance, seen.reads, seen.writes);
    }
    let mut merged = counts.finish(distinct_blocks);
    merged.sampled_rate = crate::SampledRate(rates / count.max(1.0));
    SlicedHistogram { merged, slices: own }
}

impl SlicedHistogram {
    /// Returns an interval that contains the miss ratio of a cache of `size_blocks` blocks with a
    /// confidence of about 95 %; `None` with fewer than two slices.
    pub fn bounds(&self, size_blocks: u64) -> Option<Interval> {
        let at = |histogram| CurvePoint::at(histogram, size_blocks).miss_ratio;
        let parts: Vec<f64> = self.slices.iter().map(at).collect();
        Some(Interval::around(at(&self.merged), &parts)?.within(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReuseDistances;
    use forebay_block::{Flags, Nanos, Volume};

    /// A skewed workload of single blocks, spread over the address space, one write in four.
    fn requests(seed: u64) -> impl Iterator<Item = Request> {
        let mut state = seed;
        (0..150_000).map(move |n| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = (state >> 11) as f64 / (1u64 << 53) as f64;
            let block = (uniform * uniform * 40_000.0) as u64 + (seed << 24);
            let op = if n % 4 == 0 { Op::Write } else { Op::Read };
            let (volume, flags, offset) = (Volume(0), Flags::NONE, block * 4096);
            Request { time: Nanos(n), volume, op, flags, offset, length: 4096 }
        })
    }

    fn sliced(distance: Distance, slices: usize, sampling: Sampling, seed: u64) -> SlicedHistogram {
        let mut slicer = Slicer::new(BlockSize::default(), slices, sampling).unwrap();
        let mut measured: Vec<Slice> =
            (0..slices).map(|_| Slice::new(distance, slices, sampling).unwrap()).collect();
        for request in requests(seed) {
            slicer.add(&request, |slice, batch| measured[slice].measure(&batch)).unwrap();
        }
        slicer.finish(|slice, batch| measured[slice].measure(&batch)).unwrap();
        merge_slices(&slicer, measured)
    }

    fn exact(distance: Distance, seed: u64) -> ReuseHistogram {
        let mut distances = ReuseDistances::new(distance);
        let (keys, ops): (Vec<u64>, Vec<Op>) =
            requests(seed).map(|r| (r.offset / 4096, r.op)).unzip();
        distances.access_batch(&keys, &ops).unwrap();
        distances.into_histogram()
    }

    const SIZES: [u64; 6] = [2000, 4000, 8000, 15_000, 22_000, 30_000];

    fn miss_ratio(histogram: &ReuseHistogram, size: u64) -> f64 {
        CurvePoint::at(histogram, size).miss_ratio
    }

    #[test]
    fn slices_of_all_blocks_count_exactly_and_estimate_distances_closely() {
        for distance in Distance::ALL {
            let (exact, sliced) = (exact(distance, 1), sliced(distance, 8, Sampling::All, 1));
            assert_eq!(sliced.merged.accesses(), exact.accesses(), "{distance}");
            assert_eq!(sliced.merged.distinct_blocks, exact.distinct_blocks, "{distance}");
            assert_eq!(sliced.merged.read.cold, exact.read.cold, "{distance}");
            for size in SIZES {
                let [a, b] = [&exact, &sliced.merged].map(|h| miss_ratio(h, size));
                assert!((a - b).abs() < 0.005, "{distance}, {size} blocks: {a} exact, {b} sliced");
            }
        }
    }

    #[test]
    fn a_cache_that_holds_every_block_gets_every_hit() {
        // A scan that is repeated once reuses each block at the largest possible distance.
        let blocks = 1000;
        let (volume, op, flags) = (Volume(0), Op::Read, Flags::NONE);
        let scan = Request { time: Nanos(0), volume, op, flags, offset: 0, length: blocks * 4096 };
        for slices in [1, 3, 8, 16] {
            let mut slicer = Slicer::new(BlockSize::default(), slices, Sampling::All).unwrap();
            let mut measured: Vec<Slice> = (0..slices)
                .map(|_| Slice::new(Distance::Trd, slices, Sampling::All).unwrap())
                .collect();
            let mut measure = |slice: usize, batch: SliceBatch| measured[slice].measure(&batch);
            slicer.add(&scan, &mut measure).unwrap();
            slicer.add(&scan, &mut measure).unwrap();
            slicer.finish(&mut measure).unwrap();
            let SlicedHistogram { merged, slices: own } = merge_slices(&slicer, measured);
            assert_eq!(merged.distinct_blocks, blocks);
            for histogram in own.iter().chain([&merged]) {
                let max = histogram.max_distance().unwrap();
                assert!(max < blocks, "{slices} slices: a distance of {max} blocks");
                assert_eq!(histogram.hits(Op::Read, blocks), histogram.read.reuses());
                let sizes: Vec<u64> = histogram.breakpoints().collect();
                assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
            }
            assert_eq!(merged.read.reuses(), blocks);
        }
    }

    #[test]
    fn one_slice_is_the_whole() {
        let (exact, sliced) = (exact(Distance::Trd, 2), sliced(Distance::Trd, 1, Sampling::All, 2));
        assert_eq!(sliced.merged, exact);
        assert_eq!(sliced.bounds(1000), None);
    }

    #[test]
    fn slices_that_are_measured_apart_and_written_down_merge_to_the_same() {
        for distance in [Distance::Trd, Distance::PodWriteOnly] {
            let mut seen = Vec::new();
            let mut counts = Vec::new();
            for only in 0..4 {
                let slicer = Slicer::new(BlockSize::default(), 4, Sampling::All).unwrap();
                let mut slicer = slicer.only(only);
                let mut slice = Slice::new(distance, 4, Sampling::All).unwrap();
                let mut measure = |number, batch: SliceBatch| {
                    assert!(number == only || batch.keys.is_empty());
                    slice.measure(&batch)
                };
                for request in requests(3) {
                    slicer.add(&request, &mut measure).unwrap();
                }
                slicer.finish(&mut measure).unwrap();
                seen.push(slicer.accesses());
                let text = serde_json::to_string(&slice.into_counts()).unwrap();
                counts.push(serde_json::from_str(&text).unwrap());
            }
            assert!(seen.iter().all(|other| *other == seen[0]));
            let merged = merge_slice_counts(distance, seen[0], counts);
            assert_eq!(merged, sliced(distance, 4, Sampling::All, 3), "{distance}");
        }
    }

    #[test]
    fn counters_that_nobody_can_have_written_are_refused() {
        for counters in ["[[5,1],[5,1]]", "[[7,1],[5,1]]", "[[99999999999,1]]"] {
            let one = format!(
                "{{\"counts\":{counters},\"shift\":0,\"cold\":0,\"unmeasured\":0,\"max_distance\":5}}"
            );
            let text = format!(
                "{{\"counts\":{{\"read\":{one},\"write\":{one}}},\"blocks_known\":1,\"rate\":1.0}}"
            );
            assert!(serde_json::from_str::<SliceCounts>(&text).is_err(), "{counters}");
        }
    }

    #[test]
    fn bounds_hold_the_exact_miss_ratio_nearly_always_and_are_not_idle() {
        let (mut held, mut asked, mut width) = (0, 0, 0.0);
        for seed in 1..=24 {
            let exact = exact(Distance::Trd, seed);
            for sampling in [Sampling::Rate(0.2), Sampling::MaxBlocks(8192)] {
                let sliced = sliced(Distance::Trd, 16, sampling, seed);
                assert!(sliced.merged.accesses().abs_diff(exact.accesses()) <= 2);
                for size in SIZES {
                    let truth = miss_ratio(&exact, size);
                    let bounds = sliced.bounds(size).unwrap();
                    held += u32::from(bounds.low <= truth && truth <= bounds.high);
                    asked += 1;
                    width += bounds.high - bounds.low;
                }
            }
        }
        // 95 % of 288 is 274; results for the sizes and samplings of one seed are correlated.
        assert!(held >= 250 && asked == 288, "{held} of {asked}");
        assert!(width / 288.0 < 0.05, "{}", width / 288.0);
    }

    #[test]
    fn rates_and_bounds_out_of_range_are_refused() {
        let slicer = |sampling| Slicer::new(BlockSize::default(), 8, sampling).unwrap_err();
        assert_eq!(slicer(Sampling::Rate(0.0)), LocalityError::BadRate);
        let few = LocalityError::TooFewSampledBlocks { blocks: 100, least: 256 };
        assert_eq!(slicer(Sampling::MaxBlocks(800)), few);
    }
}
