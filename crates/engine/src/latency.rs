//! How long requests took.

use forebay_block::{Nanos, Op};
use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies above this count as this: 18 minutes.
const LATENCY_NS_MAX: u64 = 1 << 40;
/// Significant decimal digits kept.
const DIGITS: u8 = 2;

/// Latencies of one volume's requests.
#[derive(Clone, Debug)]
pub struct VolumeLatency {
    read: Histogram<u64>,
    write: Histogram<u64>,
    other: Histogram<u64>,
}

/// A distribution of latencies, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99 % took no longer.
    pub p99: f64,
    /// 99.9 % took no longer.
    pub p999: f64,
    /// 99.99 % took no longer.
    pub p9999: f64,
    /// The longest.
    pub max: f64,
}

/// Latencies by kind of request; microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Of reads.
    pub read: LatencySummary,
    /// Of writes.
    pub write: LatencySummary,
    /// Of all requests, flushes and zeroings too.
    pub all: LatencySummary,
}

impl Default for VolumeLatency {
    fn default() -> Self {
        VolumeLatency { read: histogram(), write: histogram(), other: histogram() }
    }
}

impl VolumeLatency {
    /// Counts a request.
    pub fn record(&mut self, op: Op, latency: Nanos) {
        let histogram = match op {
            Op::Read => &mut self.read,
            Op::Write => &mut self.write,
            Op::Trim | Op::Flush | Op::WriteZeroes => &mut self.other,
        };
        histogram.saturating_record(latency.0.max(1));
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &VolumeLatency) {
        for (into, from) in [
            (&mut self.read, &other.read),
            (&mut self.write, &other.write),
            (&mut self.other, &other.other),
        ] {
            // They have the same bounds, so they add.
            let added = into.add(from);
            debug_assert!(added.is_ok());
        }
    }

    /// Requests counted.
    pub fn count(&self) -> u64 {
        self.read.len() + self.write.len() + self.other.len()
    }

    /// What is reported.
    pub fn summary(&self) -> Latency {
        let mut all = self.read.clone();
        for other in [&self.write, &self.other] {
            let added = all.add(other);
            debug_assert!(added.is_ok());
        }
        Latency { read: summary(&self.read), write: summary(&self.write), all: summary(&all) }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("the bounds are sound")
}

fn summary(histogram: &Histogram<u64>) -> LatencySummary {
    if histogram.is_empty() {
        return LatencySummary::default();
    }
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
    LatencySummary {
        mean: histogram.mean() / 1e3,
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        max: histogram.max() as f64 / 1e3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_hundredth_and_in_microseconds() {
        let mut latency = VolumeLatency::default();
        for us in 1..=1000 {
            latency.record(Op::Read, Nanos::from_micros(us));
        }
        latency.record(Op::Write, Nanos::from_micros(5000));
        let mut sum = VolumeLatency::default();
        sum.add(&latency);
        let summary = sum.summary();
        let close = |a: f64, b: f64| (a - b).abs() <= b / 100.0;
        assert!(close(summary.read.p50, 500.0), "{summary:?}");
        assert!(close(summary.read.p99, 990.0), "{summary:?}");
        assert!(close(summary.read.mean, 500.5), "{summary:?}");
        assert!(close(summary.all.max, 5000.0) && close(summary.write.p50, 5000.0));
        assert_eq!(sum.count(), 1001);
    }

    #[test]
    fn a_latency_beyond_all_bounds_is_counted() {
        let mut latency = VolumeLatency::default();
        latency.record(Op::Flush, Nanos(u64::MAX));
        assert_eq!(latency.count(), 1);
        assert!(latency.summary().all.max > 1e9 / 1e3);
    }
}
