//! The run as a series of rows, one for each interval.

use forebay_block::Nanos;
use forebay_results::{CacheResult, Hits, Latency, ReadWrite};
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::options::Interval;

/// Initial number of requests per row with [`Interval::Adaptive`].
const ROW_REQUESTS: u64 = 1024;
/// When [`Interval::Adaptive`] reaches this number of rows, each two rows become one.
const ROWS_MAX: usize = 512;
/// Initial range of the latency histograms: 2^40 ns, 18 minutes. They grow for longer latencies.
const LATENCY_NS_EXPECTED: u64 = 1 << 40;

/// What happened in an interval.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Seconds from the first request to the start of the interval.
    pub start_s: f64,
    /// Seconds from the first request to the end of the interval.
    pub end_s: f64,
    /// Answered requests, including assumed flushes.
    pub requests: u64,
    /// Block accesses that hit, by tier.
    pub hits: Hits,
    /// Block accesses that missed.
    pub misses: ReadWrite,
    /// Latencies of all requests; null with `--untimed`.
    pub latency_us: Option<Latency>,
    /// Bytes written to the flash tier.
    pub tier2_bytes_written: u64,
    /// Bytes read from the backing stores.
    pub backing_read_bytes: u64,
    /// Bytes written to the backing stores.
    pub backing_write_bytes: u64,
    /// Dirty blocks at the end of the interval.
    pub dirty_blocks: u64,
    /// Share of the regions of the flash log (in the slots layout, of its journal) that are in use at the
    /// end of the interval.
    pub flash_utilisation: f64,
}

/// Snapshot of the cache's counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub cache: CacheResult,
    pub dirty_blocks: u64,
    pub flash_utilisation: f64,
}

/// Collects the rows of a run.
#[derive(Debug)]
pub(crate) struct Series {
    interval: Interval,
    rows: Vec<(Row, Option<Latencies>)>,
    latency: Latencies,
    requests: u64,
    /// Where the current row ends: after this number of requests, or at `time_due`.
    requests_due: u64,
    time_due: Nanos,
    start: Nanos,
    last: Totals,
}

impl Series {
    pub fn new(interval: Interval) -> Series {
        let (requests_due, time_due) = match interval {
            Interval::Adaptive => (ROW_REQUESTS, Nanos(u64::MAX)),
            Interval::Time(time) => (u64::MAX, time),
        };
        Series {
            interval,
            rows: Vec::new(),
            latency: Latencies::default(),
            requests: 0,
            requests_due,
            time_due,
            start: Nanos(0),
            last: Totals::default(),
        }
    }

    /// Whether the current row ends before an event at `now`, counted from the first request.
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        self.requests >= self.requests_due || now >= self.time_due
    }

    /// Counts an answered request.
    #[inline]
    pub fn count(&mut self, latency: Option<Nanos>) {
        self.requests += 1;
        if let Some(latency) = latency {
            self.latency.record(latency);
        }
    }

    /// Ends the row that is due at `now`.
    pub fn close(&mut self, now: Nanos, totals: Totals) {
        let mut end = now;
        if let Interval::Time(period) = self.interval {
            end = now.min(self.time_due);
            // Intervals without any request have no rows.
            self.time_due = Nanos((now.0 / period.0 + 1).saturating_mul(period.0));
        }
        self.push(end, totals);
        if let Interval::Time(period) = self.interval {
            self.start = Nanos(self.time_due.0 - period.0);
        }
        if self.interval == Interval::Adaptive && self.rows.len() >= ROWS_MAX {
            self.halve();
        }
    }

    /// Returns all rows. A row that has not ended yet ends at `now`. Rows have latencies only if
    /// the run `is_timed`.
    pub fn finish(mut self, now: Nanos, totals: Totals, is_timed: bool) -> Vec<Row> {
        if self.requests > 0 || self.rows.is_empty() {
            self.push(now, totals);
        }
        let with_latency = |(mut row, latency): (Row, Option<Latencies>)| {
            if let Some(latency) = latency {
                row.latency_us = Some(latency.summary());
            }
            Row { latency_us: row.latency_us.filter(|_| is_timed), ..row }
        };
        self.rows.into_iter().map(with_latency).collect()
    }

    fn push(&mut self, end: Nanos, totals: Totals) {
        let (now, last) = (totals.cache, self.last.cache);
        let row = Row {
            start_s: self.start.as_secs_f64(),
            end_s: end.as_secs_f64(),
            requests: self.requests,
            hits: now.hits.zip(last.hits, |now, last| now - last),
            misses: now.misses - last.misses,
            latency_us: None,
            tier2_bytes_written: now.tier2_bytes_written - last.tier2_bytes_written,
            backing_read_bytes: now.backing.read_bytes - last.backing.read_bytes,
            backing_write_bytes: now.backing.write_bytes - last.backing.write_bytes,
            dirty_blocks: totals.dirty_blocks,
            flash_utilisation: totals.flash_utilisation,
        };
        match self.interval {
            Interval::Adaptive => {
                let latency = std::mem::take(&mut self.latency);
                self.rows.push((row, Some(latency)));
            }
            Interval::Time(_) => {
                let latency_us = Some(self.latency.summary());
                self.rows.push((Row { latency_us, ..row }, None));
                self.latency.clear();
            }
        }
        (self.requests, self.start, self.last) = (0, end, totals);
    }

    /// Merges each two rows into one.
    fn halve(&mut self) {
        let mut rows = std::mem::take(&mut self.rows).into_iter();
        while let Some((first, latency)) = rows.next() {
            let merged = match rows.next() {
                None => (first, latency),
                Some((second, other)) => {
                    (first.and(&second), latency.zip(other).map(|(a, b)| a.and(&b)))
                }
            };
            self.rows.push(merged);
        }
        self.requests_due *= 2;
    }
}

impl Row {
    /// Merges both rows, except for their latencies.
    fn and(&self, next: &Row) -> Row {
        Row {
            start_s: self.start_s,
            requests: self.requests + next.requests,
            hits: self.hits.zip(next.hits, |a, b| a + b),
            misses: self.misses + next.misses,
            tier2_bytes_written: self.tier2_bytes_written + next.tier2_bytes_written,
            backing_read_bytes: self.backing_read_bytes + next.backing_read_bytes,
            backing_write_bytes: self.backing_write_bytes + next.backing_write_bytes,
            ..*next
        }
    }
}

/// The latencies of a row.
#[derive(Debug)]
struct Latencies {
    histogram: Histogram<u32>,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_EXPECTED, 2);
        let mut histogram = histogram.expect("the bounds are sound");
        histogram.auto(true);
        Self { histogram, sum_ns: 0, max_ns: 0 }
    }
}

impl Latencies {
    #[inline]
    fn record(&mut self, latency: Nanos) {
        let ns = latency.0.max(1);
        // The histogram grows to hold any latency, so this cannot fail.
        let recorded = self.histogram.record(ns);
        debug_assert!(recorded.is_ok());
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    fn and(mut self, other: &Self) -> Self {
        // The histogram grows to hold the other's longest latency, so this cannot fail.
        let added = self.histogram.add(&other.histogram);
        debug_assert!(added.is_ok());
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self
    }

    fn clear(&mut self) {
        self.histogram.reset();
        (self.sum_ns, self.max_ns) = (0, 0);
    }

    fn summary(&self) -> Latency {
        Latency::from_histogram(&self.histogram, self.sum_ns, self.max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_results::Backing;

    fn totals(n: u64) -> Totals {
        let tier1 = ReadWrite { read: n, write: 2 * n };
        let hits = Hits { tier1, ..Hits::default() };
        let backing = Backing { read_bytes: 3 * n, write_bytes: 0 };
        let cache = CacheResult { hits, backing, ..CacheResult::default() };
        Totals { cache, dirty_blocks: n, ..Totals::default() }
    }

    /// `n` requests 1 ms apart; request `i` has a latency of `i` microseconds.
    fn run(interval: Interval, n: u64) -> Vec<Row> {
        let mut series = Series::new(interval);
        for i in 0..n {
            let now = Nanos(i * 1_000_000);
            if series.is_due(now) {
                series.close(now, totals(i));
            }
            series.count(Some(Nanos(i * 1_000)));
        }
        series.finish(Nanos(n * 1_000_000), totals(n), true)
    }

    #[test]
    fn adaptive_rows_stay_few_and_lose_nothing() {
        let n = 2_000_000;
        let rows = run(Interval::Adaptive, n);
        assert!((ROWS_MAX / 2..=ROWS_MAX).contains(&rows.len()), "{}", rows.len());
        assert_eq!(rows.iter().map(|r| r.requests).sum::<u64>(), n);
        assert_eq!(rows.iter().map(|r| r.hits.tier1.write).sum::<u64>(), 2 * n);
        assert_eq!(rows.last().unwrap().dirty_blocks, n);
        assert!(rows.windows(2).all(|w| w[0].end_s == w[1].start_s));
        let (first, last) = (rows.first().unwrap(), rows.last().unwrap());
        let longest = first.latency_us.unwrap().max;
        assert!(longest < first.end_s * 1e3 + 100.0);
        assert!(last.latency_us.unwrap().p50 > longest);
        // The first row's latencies are 0, 1, 2 and so on, in microseconds; 0 is recorded as 1 ns.
        let requests = first.requests as f64;
        assert_eq!(first.latency_us.unwrap().max, requests - 1.0);
        let mean = (requests - 1.0) / 2.0 + 1e-3 / requests;
        assert!((first.latency_us.unwrap().mean - mean).abs() < 1e-9, "{:?}", first.latency_us);
    }

    #[test]
    fn rows_by_time_begin_and_end_on_time_and_skip_what_is_idle() {
        let mut series = Series::new(Interval::Time(Nanos(10)));
        for (now, n) in [(0, 0), (9, 1), (10, 2), (35, 3), (36, 4)] {
            if series.is_due(Nanos(now)) {
                series.close(Nanos(now), totals(n));
            }
            series.count(None);
        }
        let rows = series.finish(Nanos(38), totals(5), false);
        assert!(rows.iter().all(|r| r.latency_us.is_none()));
        let seen: Vec<_> = rows
            .iter()
            .map(|r| ((r.start_s * 1e9).round(), (r.end_s * 1e9).round(), r.requests))
            .collect();
        assert_eq!(seen, [(0.0, 10.0, 2), (10.0, 20.0, 1), (30.0, 38.0, 2)]);
        assert_eq!(rows.iter().map(|r| r.backing_read_bytes).sum::<u64>(), 15);
    }

    #[test]
    fn latencies_of_hours_and_years_are_as_exact_as_short_ones() {
        let mut latencies = Latencies::default();
        for ns in [1 << 41, 1 << 42] {
            latencies.record(Nanos(ns));
        }
        let summary = latencies.summary();
        let exact = (3 * (1u64 << 40)) as f64 / 1e3;
        assert_eq!((summary.mean, summary.max), (exact, (1u64 << 42) as f64 / 1e3));
        assert!((summary.p50 / ((1u64 << 41) as f64 / 1e3) - 1.0).abs() < 0.01, "{summary:?}");
        // When rows merge, the histogram of the first has no room yet for the latency of the
        // second.
        let mut second = Latencies::default();
        second.record(Nanos(u64::MAX));
        let both = Latencies::default().and(&second).and(&second).summary();
        assert_eq!((both.mean, both.max), (u64::MAX as f64 / 1e3, u64::MAX as f64 / 1e3));
    }
}
