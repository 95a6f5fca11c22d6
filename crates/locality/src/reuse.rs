//! Reuse-distance histograms of a stream of block accesses, exact or sampled.

use forebay_block::Op;

use crate::histogram::{HistogramBuilder, SampledRate};
use crate::sample::{Sample, Sampling};
use crate::{Distance, LocalityError, ReuseHistogram, ReuseStack};

/// Measures the reuse distances of a stream of block accesses and counts them.
///
/// ```
/// use forebay_block::Op::{Read, Write};
/// use forebay_locality::{Distance, ReuseDistances};
/// let mut distances = ReuseDistances::new(Distance::Trd);
/// distances.access_batch(&[10, 11, 12, 10], &[Read, Write, Read, Read]).unwrap();
/// let histogram = distances.into_histogram();
/// assert_eq!(histogram.max_distance(), Some(2));
/// assert_eq!((histogram.hits(Read, 2), histogram.hits(Read, 3)), (0, 1));
/// ```
#[derive(Clone, Debug)]
pub struct ReuseDistances {
    stack: ReuseStack,
    counts: HistogramBuilder,
    sample: Option<Sample>,
}

impl ReuseDistances {
    /// Creates a measurement of exact distances.
    pub fn new(distance: Distance) -> Self {
        let (stack, counts) = (ReuseStack::new(distance), HistogramBuilder::new());
        Self { stack, counts, sample: None }
    }

    /// Creates a measurement of distances, of all blocks or of a sample.
    ///
    /// # Errors
    /// If the sampling rate or bound is out of range.
    pub fn sampled(distance: Distance, sampling: Sampling) -> Result<Self, LocalityError> {
        let sample = Sample::new(sampling)?;
        Ok(Self {
            stack: Sample::stack(distance, sampling),
            counts: HistogramBuilder::new(),
            sample,
        })
    }

    /// Processes accesses in order. Trims and flushes do not count as accesses and change nothing.
    ///
    /// # Errors
    /// If the slices differ in length (nothing is processed), or if more blocks are held than can
    /// be ordered (the histogram then covers the accesses processed so far).
    pub fn access_batch(&mut self, keys: &[u64], ops: &[Op]) -> Result<(), LocalityError> {
        match &mut self.sample {
            None => {
                let counts = &mut self.counts;
                self.stack.for_each_chunk(keys, ops, |ops, reuses| {
                    for (&op, &reuse) in ops.iter().zip(reuses) {
                        counts.add(op, reuse);
                    }
                })
            }
            Some(sample) => sample.access_batch(&mut self.stack, &mut self.counts, keys, ops),
        }
    }

    /// Returns the histogram. All other memory is freed first.
    pub fn into_histogram(self) -> ReuseHistogram {
        let Self { stack, counts, sample } = self;
        let (distance, blocks) = (stack.distance(), stack.blocks_known());
        drop(stack);
        finish(distance, blocks, counts, sample.as_ref())
    }
}

fn finish(
    distance: Distance,
    blocks: u64,
    mut counts: HistogramBuilder,
    sample: Option<&Sample>,
) -> ReuseHistogram {
    let Some(sample) = sample else { return counts.finish(blocks) };
    let (reads, writes) = sample.seen();
    counts.correct(distance, reads, writes);
    let rate = sample.rate();
    let distinct_blocks = (blocks as f64 / rate).round() as u64;
    counts.limit(distinct_blocks);
    let mut histogram = counts.finish(distinct_blocks);
    histogram.sampled_rate = SampledRate(rate);
    histogram
}
