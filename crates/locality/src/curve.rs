//! Miss-ratio curves: a histogram as a list of points.

use forebay_block::Op;

use crate::ReuseHistogram;

/// The miss ratio of an LRU cache as a function of its size.
#[derive(Clone, PartialEq, Debug)]
pub struct MissRatioCurve {
    /// The points, by ascending size. The last one has all possible hits.
    pub points: Vec<CurvePoint>,
    /// Number of block accesses, reads and writes together.
    pub accesses: u64,
    /// The largest reuse distance. A cache of one block more has all possible hits.
    pub max_distance: Option<u64>,
}

/// The miss ratios at one cache size: fractions of all accesses, of reads and of writes; 0 if there
/// are none.
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
    /// Creates a curve of at most `points_max` points (at least 2). Every point is exact, unless
    /// the histogram is of a sample.
    ///
    /// If the curve has few enough steps, the points are size 1 and the sizes at which it steps,
    /// and the curve is complete. Otherwise half of the points are spaced evenly on a logarithmic
    /// scale and half on a linear one.
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
    /// Returns the point at one size; exact where
    /// [`DistanceCounts::hits`](crate::DistanceCounts::hits) is.
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

/// Returns the largest size up to `size` at which hits are exact.
fn exact_size(size: u64, full: u64) -> u64 {
    if size == full { full } else { ReuseHistogram::exact_blocks(size) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Distance, ReuseDistances};
    use Op::{Read, Write};

    fn scan_twice(blocks: u64) -> ReuseHistogram {
        let mut distances = ReuseDistances::new(Distance::Trd);
        let keys: Vec<u64> = (0..blocks).chain((0..blocks).rev()).collect();
        let ops: Vec<Op> = keys.iter().map(|k| if k % 2 == 0 { Read } else { Write }).collect();
        distances.access_batch(&keys, &ops).unwrap();
        distances.into_histogram()
    }

    #[test]
    fn a_curve_with_few_steps_has_all_of_them() {
        let curve = MissRatioCurve::new(&scan_twice(8), 100);
        let points: Vec<_> = curve.points.iter().map(|p| (p.size_blocks, p.miss_ratio)).collect();
        let expected: Vec<_> = (1..=8).map(|c| (c, 1.0 - c as f64 / 16.0)).collect();
        assert_eq!(points, expected);
        assert_eq!((curve.accesses, curve.max_distance), (16, Some(7)));
        assert_eq!(curve.points[7].read_miss_ratio, 0.5);
        assert_eq!(curve.points[0].read_miss_ratio, 1.0);
        assert_eq!(curve.points[0].write_miss_ratio, 1.0 - 1.0 / 8.0);
    }

    #[test]
    fn a_long_curve_has_the_points_asked_for_from_one_block_to_all_each_exact() {
        let histogram = scan_twice(300_000);
        for points_max in [2, 3, 50, 200] {
            let points = MissRatioCurve::new(&histogram, points_max).points;
            assert!(points.len() <= points_max && points.len() * 3 > points_max);
            assert_eq!(points[0].size_blocks, 1);
            assert_eq!(points.last().unwrap().size_blocks, 300_000);
            for p in points {
                let exact = 1.0 - p.size_blocks as f64 / 600_000.0;
                assert!((p.miss_ratio - exact).abs() < 1e-12, "{p:?}");
            }
        }
    }

    #[test]
    fn a_workload_without_reuse_misses_at_every_size() {
        let histogram = ReuseDistances::new(Distance::Trd).into_histogram();
        let curve = MissRatioCurve::new(&histogram, 10);
        assert_eq!((curve.points.len(), curve.points[0].miss_ratio), (1, 0.0));
        let mut distances = ReuseDistances::new(Distance::Trd);
        distances.access_batch(&[1, 2], &[Read, Read]).unwrap();
        let curve = MissRatioCurve::new(&distances.into_histogram(), 10);
        assert_eq!((curve.points[0].miss_ratio, curve.points[0].write_miss_ratio), (1.0, 0.0));
    }
}
