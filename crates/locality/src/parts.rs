//! Sampling at a fixed rate for a component that measures distances itself: which blocks are in the
//! sample, which part of the sample each block belongs to, and what the distances in the sample say
//! about all blocks. Source and weaknesses: [`crate::Sampling`].

use forebay_block::Op;

use crate::histogram::{HistogramBuilder, SampledRate, WEIGHT_ONE};
use crate::sample::{sample_hash, threshold};
use crate::{Distance, LocalityError, Reuse, ReuseHistogram};

/// Decides which blocks are in a sample, and divides the sample into parts that share no block.
#[derive(Clone, Copy, Debug)]
pub struct BlockSample {
    /// Blocks whose hash is below this are sampled.
    threshold: u64,
    parts: u64,
}

impl BlockSample {
    /// Samples a share `rate` of the blocks, in `parts` parts of about the same size.
    ///
    /// # Errors
    /// If the rate is out of range for [`crate::Sampling::Rate`].
    pub fn new(rate: f64, parts: usize) -> Result<Self, LocalityError> {
        Ok(Self { threshold: threshold(rate)?, parts: parts as u64 })
    }

    /// Returns the number of the part that contains the block `key`; `None` if it is not in the
    /// sample.
    #[inline]
    pub fn part_of(self, key: u64) -> Option<usize> {
        let (sampled, rest) = sample_hash(key);
        (sampled < self.threshold).then_some(((rest * self.parts) >> 32) as usize)
    }
}

/// Counts distances measured among the blocks of a sample, scaled to those of all blocks.
///
/// ```
/// use forebay_block::Op::Read;
/// use forebay_locality::{Distance, ReuseStack, SampleCounts};
/// // One block in four was looked at: 3 of 14 reads, of which one came back after a distance of 1.
/// let mut reuses = Vec::new();
/// ReuseStack::new(Distance::Trd).access_batch(&[1, 2, 1], &[Read; 3], &mut reuses).unwrap();
/// let mut counts = SampleCounts::new(0.25);
/// reuses.into_iter().for_each(|reuse| counts.add(Read, reuse));
/// let histogram = counts.finish(Distance::Trd, 2, (14, 0));
/// assert_eq!(histogram.distinct_blocks, 8);
/// assert_eq!((histogram.read.accesses(), histogram.read.cold), (14, 8));
/// // Three count as twelve; the two that are missing count at the smallest distance.
/// assert_eq!((histogram.hits(Read, 4), histogram.hits(Read, 5)), (2, 6));
/// ```
#[derive(Clone, Debug)]
pub struct SampleCounts {
    counts: HistogramBuilder,
    rate: f64,
    /// The weight of an access, in [`WEIGHT_ONE`]ths, and the factor by which distances are too
    /// small.
    weight: u64,
    scale: f64,
}

impl SampleCounts {
    /// Creates empty counts for a sample of the share `rate` of the blocks: above 0, and 1 for all
    /// blocks.
    pub fn new(rate: f64) -> Self {
        let mut counts = HistogramBuilder::new();
        let (weight, scale) = ((WEIGHT_ONE as f64 / rate).round() as u64, 1.0 / rate);
        counts.fit(scale);
        Self { counts, rate, weight, scale }
    }

    /// Counts one access; operations that access no data are ignored.
    #[inline]
    pub fn add(&mut self, op: Op, reuse: Reuse) {
        self.counts.add_weighted(op, reuse, self.scale, self.weight);
    }

    /// Returns the histogram of all blocks, estimated from the sample. `sampled_blocks` is the
    /// number of distinct blocks in the sample, `(reads, writes)` the number of accesses to all
    /// blocks, sampled or not. Where the weights of the sample add up to fewer or more accesses,
    /// the smallest distances are corrected. If the sample has no read, or no write, all reads or
    /// all writes count as cold.
    pub fn finish(
        mut self,
        distance: Distance,
        sampled_blocks: u64,
        (reads, writes): (u64, u64),
    ) -> ReuseHistogram {
        self.counts.correct(distance, reads, writes);
        let mut histogram = self.counts.finish((sampled_blocks as f64 / self.rate).round() as u64);
        histogram.sampled_rate = SampledRate(self.rate);
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Op::{Read, Write};

    #[test]
    fn the_parts_of_a_sample_share_it_evenly_and_have_nothing_else() {
        let (rate, blocks) = (0.1, 400_000u64);
        let sample = BlockSample::new(rate, 8).unwrap();
        let mut parts = [0u64; 8];
        (0..blocks).filter_map(|key| sample.part_of(key)).for_each(|part| parts[part] += 1);
        // Five standard deviations of a fair coin.
        let expected = blocks as f64 * rate / 8.0;
        let fair = |part: u64| (part as f64 - expected).abs() < 5.0 * expected.sqrt();
        assert!(parts.into_iter().all(fair), "{parts:?}");
        let all = BlockSample::new(1.0, 1).unwrap();
        assert!((0..blocks).all(|key| all.part_of(key) == Some(0)));
        for rate in [0.0, -0.1, 1.01, f64::NAN] {
            assert_eq!(BlockSample::new(rate, 8).unwrap_err(), LocalityError::BadRate);
        }
    }

    #[test]
    fn too_much_and_too_little_are_made_up_at_the_smallest_distances() {
        let counted = |near: u32, reads, writes| {
            let mut counts = SampleCounts::new(0.5);
            (0..near).for_each(|_| counts.add(Read, Reuse::at(0)));
            counts.add(Read, Reuse::at(10));
            counts.add(Write, Reuse::COLD);
            counts.finish(Distance::Trd, 7, (reads, writes))
        };
        // 5 near reads count as 10, and one far read as 2.
        let [exact, fewer, more] = [12, 9, 14].map(|reads| counted(5, reads, 2));
        for (histogram, near, all) in [(exact, 10, 12), (fewer, 7, 9), (more, 12, 14)] {
            assert_eq!(histogram.distinct_blocks, 14);
            assert_eq!((histogram.hits(Read, 20), histogram.hits(Read, 21)), (near, all));
            assert_eq!((histogram.read.accesses(), histogram.write.cold), (all, 2));
        }
        assert_eq!(counted(0, 2, 6).hits(Write, 1), 4);
        // Without any sampled access, no distance is known: nothing hits.
        let unseen = SampleCounts::new(0.5).finish(Distance::Trd, 0, (3, 0));
        assert_eq!((unseen.read.cold, unseen.hits(Read, u64::MAX)), (3, 0));
        assert!(unseen.read.is_unsampled && unseen.is_unsampled());
    }
}
