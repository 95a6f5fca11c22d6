//! Latencies of requests.

use forebay_block::{Nanos, Op};
use hdrhistogram::{Counter, Histogram};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Histograms have room for latencies up to this value, which is 18 minutes; they grow if a longer
/// latency arrives.
const LATENCY_NS_EXPECTED: u64 = 1 << 40;
/// Significant decimal digits of percentiles; the mean and the maximum are exact.
const DIGITS: u8 = 3;

/// A distribution of latencies, in microseconds; all values are 0 if there were no latencies.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// The exact mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The 99.99th percentile.
    pub p9999: f64,
    /// The exact maximum.
    pub max: f64,
}

impl Latency {
    /// Summarizes a histogram of latencies in nanoseconds; their sum and maximum are given exactly.
    pub fn from_histogram<T: Counter>(
        histogram: &Histogram<T>,
        sum_ns: u128,
        max_ns: u64,
    ) -> Latency {
        if histogram.is_empty() {
            return Latency::default();
        }
        let us = |ns: u64| ns as f64 / 1e3;
        let at = |quantile: f64| us(histogram.value_at_quantile(quantile).min(max_ns));
        Latency {
            mean: sum_ns as f64 / 1e3 / histogram.len() as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: us(max_ns),
        }
    }

    /// The percentiles and the maximum, as pairs of a fraction of the requests and a latency in
    /// microseconds.
    pub fn quantiles(&self) -> [(f64, f64); 6] {
        [
            (0.5, self.p50),
            (0.9, self.p90),
            (0.99, self.p99),
            (0.999, self.p999),
            (0.9999, self.p9999),
            (1.0, self.max),
        ]
    }

    /// The mean, the percentiles and the maximum, in the order of the fields.
    pub fn values(&self) -> [f64; 7] {
        [self.mean, self.p50, self.p90, self.p99, self.p999, self.p9999, self.max]
    }
}

/// Latencies by kind of request, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LatencyByOp {
    /// Latency of reads.
    pub read: Latency,
    /// Latency of writes.
    pub write: Latency,
    /// Latency of trims, write-zeroes requests and flushes.
    #[serde(default)]
    pub other: Latency,
    /// Latency of all requests.
    pub all: Latency,
}

/// Counts latencies in constant memory; counting one takes a few nanoseconds. Latencies of more
/// than 18 minutes need more memory, but less than twice as much.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    histogram: Histogram<u64>,
    /// The longest latency, to the nanosecond.
    max_ns: u64,
    /// The sum of all latencies, to the nanosecond. A `u64` would overflow after 584 years, which
    /// many long latencies can add up to.
    sum_ns: u128,
}

/// The latencies counted so far. The numbers never decrease, so the differences of two totals
/// describe the latencies between them: see [`LatencyTotal::since`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LatencyTotal {
    /// Number of latencies.
    pub count: u64,
    /// Sum of the latencies in nanoseconds; at most [`u64::MAX`], which is 584 years.
    pub sum_ns: u64,
    /// For each of [`LatencyTotal::BOUNDS_NS`], the number of latencies up to this bound. The
    /// bounds are accurate to 1 %.
    pub at_most: Vec<u64>,
}

impl Default for LatencyTotal {
    fn default() -> Self {
        Self { count: 0, sum_ns: 0, at_most: vec![0; Self::BOUNDS_NS.len()] }
    }
}

impl LatencyTotal {
    /// Bounds in nanoseconds, from 1 µs to 10 s: the preferred numbers of the series R20 (ISO 3),
    /// which are 12 % apart and include 1, 2 and 5 of each decade.
    pub const BOUNDS_NS: [u64; 141] = {
        const R20: [u64; 20] = [
            100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630,
            710, 800, 900,
        ];
        let mut bounds = [0; 141];
        let mut at = 0;
        while at < bounds.len() {
            bounds[at] = R20[at % 20] * 10u64.pow(1 + at as u32 / 20);
            at += 1;
        }
        bounds
    };

    /// The latencies counted after `earlier`, which is an earlier total of the same histogram.
    pub fn since(&self, earlier: &Self) -> Self {
        let at_most = self.at_most.iter().zip(&earlier.at_most);
        Self {
            count: self.count.saturating_sub(earlier.count),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
            at_most: at_most.map(|(now, then)| now.saturating_sub(*then)).collect(),
        }
    }

    /// The latency in microseconds that a fraction `quantile` of the latencies did not exceed,
    /// interpolated between two bounds. The error is at most 13 % between 1 µs and 10 s. `None` if
    /// there were no latencies.
    pub fn quantile_us(&self, quantile: f64) -> Option<f64> {
        let rank = (quantile * self.count as f64).max(1.0);
        let bounds = Self::BOUNDS_NS.iter().zip(&self.at_most);
        let mut below = (0.0, 0.0);
        for (&bound, &at_most) in bounds {
            let (bound, at_most) = (bound as f64 / 1e3, at_most as f64);
            if at_most >= rank {
                let (least, fewer) = below;
                return Some(least + (bound - least) * (rank - fewer) / (at_most - fewer));
            }
            below = (bound, at_most);
        }
        (self.count > 0).then_some(below.0)
    }
}

impl Default for LatencyHistogram {
    /// Creates a histogram with percentiles accurate to 0.1 %, which takes 500 KiB.
    fn default() -> Self {
        LatencyHistogram::with_digits(DIGITS)
    }
}

impl LatencyHistogram {
    /// Creates a histogram with percentiles accurate to only 1 %, which takes 70 KiB, and is quick
    /// to clear and to add.
    pub fn coarse() -> Self {
        LatencyHistogram::with_digits(DIGITS - 1)
    }

    fn with_digits(digits: u8) -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_EXPECTED, digits);
        let mut histogram = histogram.expect("the bounds are sound");
        histogram.auto(true);
        LatencyHistogram { histogram, max_ns: 0, sum_ns: 0 }
    }

    /// Counts a latency. A latency of 0 counts as 1 ns.
    pub fn record(&mut self, latency: Nanos) {
        let ns = latency.0.max(1);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
        // The histogram grows to hold any latency, so this succeeds.
        let recorded = self.histogram.record(ns);
        debug_assert!(recorded.is_ok());
    }

    /// The total of the latencies counted so far.
    pub fn total(&self) -> LatencyTotal {
        let sum_ns = u64::try_from(self.sum_ns).unwrap_or(u64::MAX);
        let mut total = LatencyTotal { count: self.count(), sum_ns, ..LatencyTotal::default() };
        let mut at = 0;
        let mut counted = 0;
        for cell in self.histogram.iter_recorded() {
            // The longest latency that this cell counts is less than 1 % longer than the shortest.
            let ns = self.histogram.lowest_equivalent(cell.value_iterated_to());
            while at < total.at_most.len() && LatencyTotal::BOUNDS_NS[at] < ns {
                total.at_most[at] = counted;
                at += 1;
            }
            counted += cell.count_since_last_iteration();
        }
        total.at_most[at..].fill(counted);
        total
    }

    /// Number of latencies counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Adds the latencies that `other` has counted.
    pub fn add(&mut self, other: &LatencyHistogram) {
        // The histogram grows to hold the longest latency of `other`, so this succeeds.
        let added = self.histogram.add(&other.histogram);
        debug_assert!(added.is_ok());
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    /// Discards all counts.
    pub fn clear(&mut self) {
        self.histogram.reset();
        (self.max_ns, self.sum_ns) = (0, 0);
    }

    /// The latency in microseconds that a fraction `quantile` of the latencies did not exceed; 0 if
    /// there were no latencies.
    pub fn at_us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile).min(self.max_ns) as f64 / 1e3
    }

    /// The latencies to report.
    pub fn summary(&self) -> Latency {
        Latency::from_histogram(&self.histogram, self.sum_ns, self.max_ns)
    }
}

/// Counts latencies by kind of request.
#[derive(Clone, Debug, Default)]
pub struct LatencyRecorder {
    /// Latencies of reads.
    pub read: LatencyHistogram,
    /// Latencies of writes.
    pub write: LatencyHistogram,
    /// Latencies of trims, zeroings and flushes.
    pub other: LatencyHistogram,
}

impl LatencyRecorder {
    /// Creates a recorder with percentiles accurate to only 1 %, which takes 200 KiB; see
    /// [`LatencyHistogram::coarse`].
    pub fn coarse() -> Self {
        let each = LatencyHistogram::coarse;
        LatencyRecorder { read: each(), write: each(), other: each() }
    }

    /// Counts a request.
    pub fn record(&mut self, op: Op, latency: Nanos) {
        match op {
            Op::Read => self.read.record(latency),
            Op::Write => self.write.record(latency),
            Op::Trim | Op::Flush | Op::WriteZeroes => self.other.record(latency),
        }
    }

    /// Adds the latencies that `other` has counted.
    pub fn add(&mut self, other: &LatencyRecorder) {
        self.read.add(&other.read);
        self.write.add(&other.write);
        self.other.add(&other.other);
    }

    /// The latencies of all requests together.
    pub fn all(&self) -> LatencyHistogram {
        let mut all = self.read.clone();
        all.add(&self.write);
        all.add(&self.other);
        all
    }

    /// The latencies to report.
    pub fn summary(&self) -> LatencyByOp {
        let [read, write, other] = [&self.read, &self.write, &self.other].map(|own| own.summary());
        LatencyByOp { read, write, other, all: self.all().summary() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_thousandth_and_in_microseconds() {
        let mut recorder = LatencyRecorder::default();
        for us in 1..=10_000 {
            recorder.record(if us % 2 == 0 { Op::Read } else { Op::Write }, Nanos::from_micros(us));
        }
        let all = recorder.summary().all;
        for (is, should) in [
            (all.mean, 5000.5),
            (all.p50, 5000.0),
            (all.p90, 9000.0),
            (all.p99, 9900.0),
            (all.p999, 9990.0),
            (all.p9999, 9999.0),
            (all.max, 10_000.0),
        ] {
            assert!((is / should - 1.0f64).abs() < 1.1e-3, "{is} against {should}");
        }
    }

    #[test]
    fn the_mean_is_exact_also_of_several_recorders_together() {
        let mut sum = LatencyRecorder::coarse();
        for ns in [12_345_679, 98_765_433] {
            let mut one = LatencyRecorder::coarse();
            one.record(Op::Read, Nanos(ns));
            assert_eq!(one.summary().read.mean, ns as f64 / 1e3);
            sum.add(&one);
        }
        assert_eq!(sum.summary().all.mean, 55_555.556);
    }

    #[test]
    fn flushes_count_among_all_and_neither_as_reads_nor_writes() {
        let mut recorder = LatencyRecorder::default();
        recorder.record(Op::Flush, Nanos::from_micros(7));
        let mut sum = LatencyRecorder::default();
        sum.add(&recorder);
        let summary = sum.summary();
        assert_eq!((summary.read, summary.write), (Latency::default(), Latency::default()));
        assert_eq!((summary.other, summary.other.max), (summary.all, 7.0));
        assert_eq!((summary.all.max, sum.all().count()), (7.0, 1));
        assert_eq!((summary.all.mean, summary.all.p50), (7.0, 7.0));
        sum.record(Op::Read, Nanos(12_345_679));
        let total = sum.all().total();
        assert_eq!((total.count, total.sum_ns), (2, 12_352_679), "to the nanosecond");
    }

    #[test]
    fn as_many_are_at_most_a_bound_as_a_plain_count_says() {
        for mut histogram in [LatencyHistogram::default(), LatencyHistogram::coarse()] {
            // From 0.1 µs to 100 s. All differ from the bounds by more than the width of a
            // histogram cell.
            let ns = |n: u64| (10f64.powf(2.0 + n as f64 * 9.0 / 5000.0)) as u64;
            let apart = |ns: u64| {
                let near = |bound: &u64| (ns as f64 / *bound as f64 - 1.0).abs() < 0.01;
                !LatencyTotal::BOUNDS_NS.iter().any(near)
            };
            let all: Vec<u64> = (0..5000).map(ns).filter(|&ns| apart(ns)).collect();
            all.iter().for_each(|&ns| histogram.record(Nanos(ns)));
            let total = histogram.total();
            for (bound, at_most) in LatencyTotal::BOUNDS_NS.into_iter().zip(&total.at_most) {
                let counted = all.iter().filter(|&&ns| ns <= bound).count() as u64;
                assert_eq!(*at_most, counted, "{bound} ns");
            }
            assert_eq!((total.count, total.sum_ns), (all.len() as u64, all.iter().sum()));
        }
    }

    #[test]
    fn a_latency_as_long_as_a_bound_is_at_most_that() {
        for (at, bound) in LatencyTotal::BOUNDS_NS.into_iter().enumerate() {
            let mut histogram = LatencyHistogram::coarse();
            histogram.record(Nanos(bound));
            let at_most = histogram.total().at_most;
            assert!(at_most[..at].iter().all(|&n| n == 0) && at_most[at..].iter().all(|&n| n == 1));
        }
    }

    #[test]
    fn percentiles_between_two_totals_are_those_of_the_latencies_in_between() {
        let mut histogram = LatencyHistogram::coarse();
        assert_eq!(histogram.total().quantile_us(0.5), None);
        for us in 1..=2000 {
            histogram.record(Nanos::from_micros(us * 1000));
        }
        let before = histogram.total();
        for us in 1..=10_000 {
            histogram.record(Nanos::from_micros(us));
        }
        let between = histogram.total().since(&before);
        assert_eq!(between.count, 10_000);
        for (quantile, should) in [(0.001, 10.0), (0.5, 5000.0), (0.99, 9900.0), (1.0, 10_000.0)] {
            let is = between.quantile_us(quantile).unwrap();
            assert!((is / should - 1.0).abs() < 0.13, "{quantile}: {is} against {should}");
        }
        assert_eq!(before.since(&before).quantile_us(0.99), None);
        histogram.clear();
        histogram.record(Nanos(100_000_000_000));
        assert_eq!(histogram.total().quantile_us(0.5), Some(1e7), "beyond the last bound");
    }

    #[test]
    fn latencies_of_hours_and_years_are_as_exact_as_short_ones() {
        for mut histogram in [LatencyHistogram::default(), LatencyHistogram::coarse()] {
            for ns in [1 << 41, 1 << 42] {
                histogram.record(Nanos(ns));
            }
            let summary = histogram.summary();
            let exact = (3 * (1u64 << 40)) as f64 / 1e3;
            assert_eq!((summary.mean, summary.max), (exact, (1u64 << 42) as f64 / 1e3));
            let median = (1u64 << 41) as f64 / 1e3;
            assert!((summary.p50 / median - 1.0).abs() < 0.01, "{summary:?}");
            histogram.record(Nanos(u64::MAX));
            assert_eq!(histogram.summary().max, u64::MAX as f64 / 1e3);
            let mut sum = LatencyHistogram::coarse();
            sum.add(&histogram);
            assert_eq!((sum.count(), sum.summary().max), (3, u64::MAX as f64 / 1e3));
            histogram.clear();
            assert_eq!(histogram.summary(), Latency::default());
            assert_eq!(histogram.total(), LatencyTotal::default());
        }
    }

    #[test]
    fn the_sum_of_many_long_latencies_does_not_overflow() {
        let mut histogram = LatencyHistogram::coarse();
        let hour = Nanos(3_600_000_000_000);
        histogram.record(hour);
        // 2^24 hours are 1,900 years, more than the 584 years of 2^64 ns.
        for _ in 0..24 {
            let half = histogram.clone();
            histogram.add(&half);
        }
        assert_eq!(histogram.count(), 1 << 24);
        assert_eq!((histogram.summary().mean, histogram.summary().max), (3.6e9, 3.6e9));
        assert_eq!(histogram.total().sum_ns, u64::MAX, "what a total can hold");
    }

    #[test]
    fn a_latency_of_nothing_counts_as_a_nanosecond() {
        let mut histogram = LatencyHistogram::default();
        histogram.record(Nanos(0));
        assert_eq!((histogram.count(), histogram.summary().max), (1, 1e-3));
    }
}
