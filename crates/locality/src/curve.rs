//! Miss-ratio curves: a histogram drawn as points.

use forebay_block::Op;

use crate::ReuseHistogram;

/// The miss ratio of an LRU cache by its size.
#[derive(Clone, PartialEq, Debug)]
pub struct MissRatioCurve {
    /// Sizes ascending; the last has every hit there is.
    pub points: Vec<CurvePoint>,
    /// Block accesses, reads and writes.
    pub accesses: u64,
    /// The largest reuse distance; a cache of one block more has every hit.
    pub max_distance: Option<u64>,
}

/// One cache size. Ratios are fractions of the accesses of their kind; 0 where there are none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CurvePoint {
    /// The size of the cache, in blocks.
    pub size_blocks: u64,
    /// Misses per access.
    pub miss_ratio: f64,
    /// Read misses per read.
    pub read_miss_ratio: f64,
    /// Write misses per write: writes to blocks that the cache did not hold. 1 where the distance
    /// does not measure writes.
    pub write_miss_ratio: f64,
}

impl MissRatioCurve {
    /// A curve of at most `points_max` points (2 at least). Every point is exact.
    ///
    /// If the curve has that few steps, the points are one block and the sizes at which it
    /// steps: nothing is left out. Otherwise half of the points are spaced evenly on a
    /// logarithmic scale and half on a linear one.
    pub fn new(histogram: &ReuseHistogram, points_max: usize) -> Self {
        let sizes = sizes(histogram, points_max.max(2));
        Self {
            points: sizes.into_iter().map(|size| CurvePoint::at(histogram, size)).collect(),
            accesses: histogram.accesses(),
            max_distance: histogram.max_distance(),
        }
    }
}

impl CurvePoint {
    /// The point of one size; exact where [`DistanceCounts::hits`](crate::DistanceCounts::hits)
    /// is.
    pub fn at(histogram: &ReuseHistogram, size_blocks: u64) -> Self {
        let (reads, writes) = (histogram.read.accesses(), histogram.write.accesses());
        let read_misses = reads - histogram.hits(Op::Read, size_blocks);
        let write_misses = writes - histogram.hits(Op::Write, size_blocks);
        Self {
            size_blocks,
            miss_ratio: ratio(read_misses + write_misses, reads + writes),
            read_miss_ratio: ratio(read_misses, reads),
            write_miss_ratio: ratio(write_misses, writes),
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn sizes(histogram: &ReuseHistogram, points_max: usize) -> Vec<u64> {
    let full = histogram.max_distance().map_or(1, |max| max + 1);
    let steps: Vec<u64> =
        core::iter::once(1).chain(histogram.breakpoints()).take(points_max + 2).collect();
    let mut sizes = steps;
    sizes.dedup();
    if sizes.len() > points_max {
        let half = (points_max / 2) as u64;
        let log_step = (full as f64).ln() / half as f64;
        let even = (1..=half).map(|i| (u128::from(full) * u128::from(i) / u128::from(half)) as u64);
        let log = (0..half).map(|i| (log_step * i as f64).exp().round() as u64);
        sizes = log.chain(even).map(|size| exact_size(size.clamp(1, full), full)).collect();
        sizes.sort_unstable();
        sizes.dedup();
    }
    sizes
}

/// The largest size up to `size` at which hits are exact.
fn exact_size(size: u64, full: u64) -> u64 {
    if size == full { full } else { ReuseHistogram::exact_blocks(size) }
}
