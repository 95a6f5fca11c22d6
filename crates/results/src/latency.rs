//! How long requests took.

use forebay_block::{Nanos, Op};
use hdrhistogram::{Counter, Histogram};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Latencies above this count as this: 18 minutes.
const LATENCY_NS_MAX: u64 = 1 << 40;
/// Significant decimal digits of percentiles and mean; the maximum is exact.
const DIGITS: u8 = 3;

/// A distribution of latencies, in microseconds; all 0 when there were none.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Mean.
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
    /// What a histogram of nanoseconds holds.
    pub fn from_histogram<T: Counter>(histogram: &Histogram<T>) -> Latency {
        if histogram.is_empty() {
            return Latency::default();
        }
        let max = histogram.max();
        let at = |quantile: f64| histogram.value_at_quantile(quantile).min(max) as f64 / 1e3;
        Latency {
            mean: histogram.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: max as f64 / 1e3,
        }
    }

    /// The percentiles and the maximum: fraction of the requests, microseconds.
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

    /// Mean, percentiles and maximum, in the order of the fields.
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
    /// Latency of all requests, including trims, zeroings and flushes.
    pub all: Latency,
}

/// Counts latencies, in constant memory, a few nanoseconds each.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    histogram: Histogram<u64>,
    /// The longest, to the nanosecond.
    max_ns: u64,
    /// All of them, to the nanosecond.
    sum_ns: u128,
}

/// How many latencies there were, and all of them added up: both only grow, so that the mean of a time
/// is the quotient of their differences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LatencyTotal {
    /// How many.
    pub count: u64,
    /// Their sum, nanoseconds.
    pub sum_ns: u128,
}

impl Default for LatencyHistogram {
    /// Percentiles to a thousandth, in 500 KiB.
    fn default() -> Self {
        LatencyHistogram::with_digits(DIGITS)
    }
}

impl LatencyHistogram {
    /// Percentiles to a hundredth only, in 70 KiB: quick to clear and to add.
    pub fn coarse() -> Self {
        LatencyHistogram::with_digits(DIGITS - 1)
    }

    fn with_digits(digits: u8) -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, digits);
        let histogram = histogram.expect("the bounds are sound");
        LatencyHistogram { histogram, max_ns: 0, sum_ns: 0 }
    }

    /// Counts a latency.
    pub fn record(&mut self, latency: Nanos) {
        let ns = latency.0.clamp(1, LATENCY_NS_MAX);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
        self.histogram.saturating_record(ns);
    }

    /// How many, and their sum.
    pub fn total(&self) -> LatencyTotal {
        LatencyTotal { count: self.count(), sum_ns: self.sum_ns }
    }

    /// Latencies counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Adds what another counted.
    pub fn add(&mut self, other: &LatencyHistogram) {
        // They have the same bounds, or room for each other's, so they add.
        let added = self.histogram.add(&other.histogram);
        debug_assert!(added.is_ok());
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    /// Forgets everything counted.
    pub fn clear(&mut self) {
        self.histogram.reset();
        (self.max_ns, self.sum_ns) = (0, 0);
    }

    /// The latency, in microseconds, that a share of `quantile` did not exceed; 0 when there
    /// were none.
    pub fn at_us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile).min(self.max_ns) as f64 / 1e3
    }

    /// What is reported.
    pub fn summary(&self) -> Latency {
        let all = Latency::from_histogram(&self.histogram);
        let exact = self.max_ns as f64 / 1e3;
        let least = |us: f64| us.min(exact);
        Latency {
            p50: least(all.p50),
            p90: least(all.p90),
            p99: least(all.p99),
            p999: least(all.p999),
            p9999: least(all.p9999),
            max: exact,
            ..all
        }
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
    /// Percentiles to a hundredth only, in 200 KiB; see [`LatencyHistogram::coarse`].
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

    /// Adds what another counted.
    pub fn add(&mut self, other: &LatencyRecorder) {
        self.read.add(&other.read);
        self.write.add(&other.write);
        self.other.add(&other.other);
    }

    /// All requests together.
    pub fn all(&self) -> LatencyHistogram {
        let mut all = self.read.clone();
        all.add(&self.write);
        all.add(&self.other);
        all
    }

    /// What is reported.
    pub fn summary(&self) -> LatencyByOp {
        let (read, write) = (self.read.summary(), self.write.summary());
        LatencyByOp { read, write, all: self.all().summary() }
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
    fn flushes_count_among_all_and_neither_as_reads_nor_writes() {
        let mut recorder = LatencyRecorder::default();
        recorder.record(Op::Flush, Nanos::from_micros(7));
        let mut sum = LatencyRecorder::default();
        sum.add(&recorder);
        let summary = sum.summary();
        assert_eq!((summary.read, summary.write), (Latency::default(), Latency::default()));
        assert_eq!((summary.all.max, sum.all().count()), (7.0, 1));
        sum.record(Op::Read, Nanos(12_345_679));
        let total = LatencyTotal { count: 2, sum_ns: 12_352_679 };
        assert_eq!(sum.all().total(), total, "to the nanosecond");
    }

    #[test]
    fn latencies_beyond_the_largest_count_as_the_largest() {
        let mut histogram = LatencyHistogram::default();
        histogram.record(Nanos(u64::MAX));
        histogram.record(Nanos(0));
        assert_eq!(histogram.summary().max, LATENCY_NS_MAX as f64 / 1e3);
        assert_eq!(histogram.count(), 2);
        histogram.clear();
        assert_eq!(histogram.summary(), Latency::default());
        assert_eq!(histogram.total(), LatencyTotal::default());
    }
}
