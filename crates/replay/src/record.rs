//! Measurements during a run. Recording a request takes a few nanoseconds.

use forebay_block::{Nanos, Op};
use forebay_effect::IoError;
use forebay_results::{Latency, LatencyHistogram, LatencyRecorder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Initial length of an interval in nanoseconds, unless the user sets another.
const INTERVAL_NS: u64 = 100_000_000;
/// At this number of intervals, neighbours are merged, so that long runs use bounded memory.
const INTERVALS_MAX: usize = 1000;

/// A piece of a run's time: what was completed in it.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Start of the interval, in seconds from the start of the run.
    pub start_s: f64,
    /// Length of the interval in seconds.
    pub length_s: f64,
    /// Completed requests.
    pub requests: u64,
    /// Failed requests; `requests` includes them.
    pub errors: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// 99th percentile of the latency in microseconds. If intervals were merged, because the run was long
    /// or because several submitters sent requests, this is the highest of the merged percentiles.
    pub p99_us: f64,
    /// Maximum latency in microseconds.
    pub max_us: f64,
}

impl Interval {
    fn absorb(&mut self, other: &Interval) {
        let requests = self.requests + other.requests;
        let sum = self.mean_us * self.requests as f64 + other.mean_us * other.requests as f64;
        self.mean_us = if requests == 0 { 0.0 } else { sum / requests as f64 };
        self.requests = requests;
        self.errors += other.errors;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
        self.p99_us = self.p99_us.max(other.p99_us);
        self.max_us = self.max_us.max(other.max_us);
    }
}

/// How a run is divided into intervals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Intervals {
    /// Intervals of 100 ms, and longer ones if the run takes long.
    #[default]
    Auto,
    /// Intervals of this length, at least 1 ms, regardless of their number.
    Every(Nanos),
}

/// How many requests of a queue were in flight.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct QueueResult {
    /// Maximum number of requests in flight.
    pub depth: u32,
    /// Number of submitters (threads that send requests), each with a separate queue. If the target
    /// is a file or device, this is 1: a single queue holds the requests of all `--jobs`, and
    /// `queue.depth` is the sum of the jobs' depths.
    pub jobs: u32,
    /// Mean number of requests in flight in all queues together, by Little's law.
    pub mean: f64,
    /// The largest number of requests that one queue held.
    pub max: u32,
    /// Share of requests that found the queue full and made the submitter wait.
    pub full_share: f64,
}

/// Failed requests by kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Failures(Vec<(IoError, u64)>);

impl Failures {
    pub fn add(&mut self, error: IoError, count: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == error) {
            Some((_, n)) => *n += count,
            None => self.0.push((error, count)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (IoError, u64)> + '_ {
        self.0.iter().copied()
    }
}

/// The measurements of one submitter.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub latency: LatencyRecorder,
    /// Times from when a request was due until it was answered.
    pub response: LatencyHistogram,
    /// Times from when a request was due until it was sent.
    pub lateness: LatencyHistogram,
    pub requests: [u64; 5],
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub errors: u64,
    pub failures: Failures,
    /// Sum of all latencies in nanoseconds. Divided by the duration of the run, it is the mean
    /// number of requests in flight.
    pub busy_ns: u128,
    pub pending_max: u32,
    pub found_full: u64,
    pub sent: u64,
    /// When the last request was completed, from the start of the run.
    pub last: Nanos,
    intervals: Vec<Interval>,
    interval_ns: u64,
    automatic: bool,
    current: Current,
}

/// The interval that has not ended yet.
#[derive(Debug)]
struct Current {
    index: u64,
    interval: Interval,
    latency: LatencyHistogram,
    /// When the interval ends, in nanoseconds from the start of the run.
    end_ns: u64,
}

impl Recorder {
    pub fn new(intervals: Intervals) -> Recorder {
        let (interval_ns, automatic) = match intervals {
            Intervals::Auto => (INTERVAL_NS, true),
            Intervals::Every(length) => (length.0.max(1_000_000), false),
        };
        Recorder {
            latency: LatencyRecorder::default(),
            response: LatencyHistogram::default(),
            lateness: LatencyHistogram::default(),
            requests: [0; 5],
            read_bytes: 0,
            write_bytes: 0,
            errors: 0,
            failures: Failures::default(),
            busy_ns: 0,
            pending_max: 0,
            found_full: 0,
            sent: 0,
            last: Nanos(0),
            intervals: Vec::new(),
            interval_ns,
            automatic,
            current: Current {
                index: 0,
                interval: Interval::default(),
                latency: LatencyHistogram::coarse(),
                end_ns: interval_ns,
            },
        }
    }

    /// Records a request that was completed at `now`, counted from the start of the run.
    pub fn complete(
        &mut self,
        now: Nanos,
        op: Op,
        bytes: u64,
        latency: Nanos,
        result: Result<(), IoError>,
    ) {
        if now.0 >= self.current.end_ns {
            self.roll(now);
        }
        self.last = now;
        self.requests[op as usize] += 1;
        self.busy_ns += u128::from(latency.0);
        self.latency.record(op, latency);
        let interval = &mut self.current.interval;
        interval.requests += 1;
        self.current.latency.record(latency);
        match (op, result) {
            (_, Err(error)) => {
                interval.errors += 1;
                self.errors += 1;
                self.failures.add(error, 1);
            }
            (Op::Read, Ok(())) => {
                self.read_bytes += bytes;
                interval.read_bytes += bytes;
            }
            (Op::Write, Ok(())) => {
                self.write_bytes += bytes;
                interval.write_bytes += bytes;
            }
            (Op::Trim | Op::Flush | Op::WriteZeroes, Ok(())) => {}
        }
    }

    /// Number of completed requests.
    pub fn completed(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Returns all intervals, including those without requests.
    pub fn finish(&mut self, end: Nanos) -> Vec<Interval> {
        self.roll(end);
        let length_s = self.interval_ns as f64 / 1e9;
        let mut intervals = std::mem::take(&mut self.intervals);
        if self.current.interval.requests > 0 || intervals.is_empty() {
            intervals.push(self.closed());
        }
        for (interval, number) in intervals.iter_mut().zip(0u64..) {
            interval.start_s = number as f64 * length_s;
            interval.length_s = length_s.min((end.as_secs_f64() - interval.start_s).max(1e-9));
        }
        intervals
    }

    /// Closes the current interval, and the empty ones up to `now`.
    #[cold]
    fn roll(&mut self, now: Nanos) {
        while now.0 >= self.current.end_ns {
            if self.automatic && self.intervals.len() >= INTERVALS_MAX {
                self.join_neighbours();
                continue;
            }
            let closed = self.closed();
            self.intervals.push(closed);
            self.current.interval = Interval::default();
            self.current.latency.clear();
            self.current.index += 1;
            self.current.end_ns += self.interval_ns;
        }
    }

    fn closed(&self) -> Interval {
        let latency = self.current.latency.summary();
        let Latency { mean, p99, max, .. } = latency;
        Interval { mean_us: mean, p99_us: p99, max_us: max, ..self.current.interval }
    }

    fn join_neighbours(&mut self) {
        join(&mut self.intervals);
        self.interval_ns *= 2;
        // The number of merged intervals is even, so the current one begins where a longer one
        // does.
        self.current.index = self.intervals.len() as u64;
        self.current.end_ns = (self.current.index + 1) * self.interval_ns;
    }
}

fn join(intervals: &mut Vec<Interval>) {
    let joined = intervals.chunks(2).map(|pair| {
        let mut first = pair[0];
        pair[1..].iter().for_each(|second| first.absorb(second));
        first
    });
    *intervals = joined.collect();
}

/// Merges the intervals of several submitters into one sequence.
pub(crate) fn merge(mut all: Vec<Vec<Interval>>, end: Nanos) -> Vec<Interval> {
    let length = |i: &[Interval]| i.iter().map(|i| i.length_s).fold(0.0, f64::max);
    // Only automatic intervals differ in length, by powers of two.
    let longest = all.iter().map(|i| length(i)).fold(0.0, f64::max);
    for intervals in &mut all {
        while intervals.len() > 1 && length(intervals) * 1.5 < longest {
            join(intervals);
            let first = intervals.first().map_or(0.0, |i| i.length_s);
            intervals.iter_mut().for_each(|i| i.length_s = first * 2.0);
        }
    }
    let mut merged: Vec<Interval> = Vec::new();
    for intervals in all {
        for (i, interval) in intervals.iter().enumerate() {
            match merged.get_mut(i) {
                Some(sum) => sum.absorb(interval),
                None => merged.push(*interval),
            }
        }
    }
    for (interval, number) in merged.iter_mut().zip(0u64..) {
        interval.start_s = number as f64 * longest;
        interval.length_s = longest.min((end.as_secs_f64() - interval.start_s).max(1e-9));
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(recorder: &mut Recorder, at_ms: u64, us: u64) {
        let (now, latency) = (Nanos(at_ms * 1_000_000), Nanos::from_micros(us));
        recorder.complete(now, Op::Read, 512, latency, Ok(()));
    }

    #[test]
    fn intervals_cover_the_run_without_gaps() {
        let mut recorder = Recorder::new(Intervals::Auto);
        record(&mut recorder, 50, 100);
        record(&mut recorder, 350, 300);
        let intervals = recorder.finish(Nanos(360_000_000));
        let counts: Vec<u64> = intervals.iter().map(|i| i.requests).collect();
        assert_eq!(counts, [1, 0, 0, 1]);
        assert_eq!(intervals[3].max_us, 300.0);
        assert!((intervals[3].length_s - 0.06).abs() < 1e-9);
    }

    #[test]
    fn what_failed_moved_no_bytes() {
        let mut recorder = Recorder::new(Intervals::Auto);
        let latency = Nanos::from_micros(9);
        recorder.complete(Nanos(1), Op::Write, 512, latency, Err(IoError::Device));
        recorder.complete(Nanos(2), Op::Write, 4096, latency, Ok(()));
        assert_eq!((recorder.completed(), recorder.errors, recorder.write_bytes), (2, 1, 4096));
        assert_eq!(recorder.finish(Nanos(3))[0].write_bytes, 4096);
    }

    #[test]
    fn a_long_run_keeps_all_counts_in_few_intervals() {
        let mut recorder = Recorder::new(Intervals::Auto);
        let requests = 5000;
        for i in 0..requests {
            record(&mut recorder, i * 137, i + 1);
        }
        let end = Nanos(requests * 137 * 1_000_000);
        let intervals = recorder.finish(end);
        assert!(intervals.len() <= INTERVALS_MAX + 1);
        assert_eq!(intervals.iter().map(|i| i.requests).sum::<u64>(), requests);
        let length: f64 = intervals.iter().map(|i| i.length_s).sum();
        assert!((length - end.as_secs_f64()).abs() < 1e-6, "{length}");
        for pair in intervals.windows(2) {
            assert!(pair[0].max_us < pair[1].max_us, "requests are in the wrong interval");
        }
        let chosen = {
            let mut recorder = Recorder::new(Intervals::Every(Nanos(137_000_000)));
            (0..requests).for_each(|i| record(&mut recorder, i * 137, 1));
            recorder.finish(end)
        };
        assert_eq!(chosen.len() as u64, requests);
    }

    #[test]
    fn intervals_of_two_submitters_add_up() {
        let mut one = Recorder::new(Intervals::Auto);
        (0..3000).for_each(|i| record(&mut one, i * 100, 10));
        let mut two = Recorder::new(Intervals::Auto);
        record(&mut two, 150, 1000);
        let end = Nanos(300_000_000_000);
        let merged = merge(vec![one.finish(end), two.finish(Nanos(160_000_000))], end);
        assert_eq!(merged.iter().map(|i| i.requests).sum::<u64>(), 3001);
        assert_eq!(merged[0].max_us, 1000.0);
        let length: f64 = merged.iter().map(|i| i.length_s).sum();
        assert!((length - 300.0).abs() < 1e-6, "{length}");
    }
}
