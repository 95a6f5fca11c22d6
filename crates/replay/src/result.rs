//! The result of a run on a real target.

use std::collections::BTreeMap;

use forebay_block::{Nanos, Op};
use forebay_results::{Components, Latency, LatencyHistogram, LatencyRecorder, RunResult};
use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::placement::Adjusted;
use crate::record::{Failures, Interval, QueueResult, merge};
use crate::run::{End, JobOutcome, Pace, RunOptions};
use crate::usage::Usage;

/// A run on a real target. Latencies are in microseconds, sizes in bytes.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct RealRun {
    /// What every run has.
    #[serde(flatten)]
    pub run: RunResult,
    /// Whether the run completed all requests of the workload, or lasted for the whole `--duration`.
    pub complete: bool,
    /// Why the run ended: `end` (of the workload), `time` (`--duration` had passed), `signal` or `error`.
    /// After `signal` or `error`, the results are partial and the command exits with status 1.
    pub ended_by: &'static str,
    /// Requests and bytes per second.
    pub throughput: Throughput,
    /// Latencies of the device operations behind the cache, from the cache's request to the end of the operation;
    /// an empty object without `--config`.
    #[serde(serialize_with = "or_empty")]
    #[schemars(with = "Components")]
    pub component_latency_us: Option<Components>,
    /// Time from when a request was due until it was answered. This is the latency for a client that does not
    /// slow down with the target. Null in a closed loop, where no request has a due time.
    pub response_us: Option<Latency>,
    /// Time from when a request was due until it was sent. Null in a closed loop.
    pub lateness_us: Option<Latency>,
    /// Requests in flight.
    pub queue: QueueResult,
    /// Processor time that this process used during the run, in seconds.
    pub cpu_s: f64,
    /// Peak resident memory of this process, in bytes.
    pub rss_bytes: u64,
    /// Completed requests by operation.
    pub operations: Operations,
    /// Failed requests by reason.
    pub failures: BTreeMap<String, u64>,
    /// Requests whose outcome is unknown because the target was lost.
    pub lost: u64,
    /// Requests that were left out or changed to fit the target.
    pub adjusted: Adjusted,
    /// Seconds of idle time that were skipped.
    pub idle_skipped_s: f64,
    /// Number of times that the target waited because the workload was not read or generated fast enough.
    pub starved: u64,
    /// Results for each interval of the run.
    pub intervals: Vec<Interval>,
    /// The distribution that percentiles come from, for pictures.
    #[serde(skip)]
    pub latency: LatencyRecorder,
}

/// Work per time, over the whole run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Throughput {
    /// Bytes read and written per second.
    pub bytes_per_s: f64,
    /// Requests completed per second.
    pub requests_per_s: f64,
}

/// Requests by operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Operations {
    /// Reads.
    pub read: u64,
    /// Writes.
    pub write: u64,
    /// Trims.
    pub trim: u64,
    /// Flushes.
    pub flush: u64,
    /// Write-zeroes requests.
    pub write_zeroes: u64,
}

fn or_empty<S: Serializer>(components: &Option<Components>, to: S) -> Result<S::Ok, S::Error> {
    match components {
        Some(components) => components.serialize(to),
        None => to.serialize_map(Some(0))?.end(),
    }
}

/// Combines the measurements of all submitters into one result.
pub(crate) fn assemble(
    outcomes: &mut [JobOutcome],
    options: &RunOptions,
    before: Usage,
) -> RealRun {
    let start = outcomes.iter().map(|o| o.span.0).min().unwrap_or_default();
    let end = outcomes.iter().map(|o| o.span.1).max().unwrap_or_default();
    let span = end.saturating_sub(start);
    let mut sum = Sum::default();
    let mut intervals = Vec::new();
    for outcome in outcomes.iter_mut() {
        sum.add(outcome);
        let shift = outcome.span.0.saturating_sub(start);
        let own_end = Nanos(span.0.saturating_sub(shift.0).max(outcome.recorder.last.0));
        intervals.push(outcome.recorder.finish(own_end));
    }
    let duration_s = span.as_secs_f64();
    let per_s = |n: u64| if duration_s > 0.0 { n as f64 / duration_s } else { 0.0 };
    let operations = sum.operations;
    let requests = sum.requests.iter().sum();
    let after = Usage::now();
    let ended_by = ended_by(outcomes);
    let timed = options.pace != Pace::AsFastAsPossible;
    RealRun {
        run: RunResult {
            requests,
            reads: operations.read,
            writes: operations.write,
            errors: sum.errors,
            read_bytes: sum.read_bytes,
            write_bytes: sum.write_bytes,
            duration_s,
            latency_us: sum.latency.summary(),
            cache: None,
        },
        complete: matches!(ended_by, "end" | "time"),
        ended_by,
        throughput: Throughput {
            bytes_per_s: per_s(sum.read_bytes + sum.write_bytes),
            requests_per_s: per_s(requests),
        },
        component_latency_us: None,
        response_us: timed.then(|| sum.response.summary()),
        lateness_us: timed.then(|| sum.lateness.summary()),
        queue: QueueResult {
            depth: options.queue_depth,
            jobs: outcomes.len() as u32,
            mean: if span.0 == 0 { 0.0 } else { sum.busy_ns as f64 / span.0 as f64 },
            max: sum.pending_max,
            full_share: if sum.sent == 0 { 0.0 } else { sum.found_full as f64 / sum.sent as f64 },
        },
        cpu_s: after.cpu_s - before.cpu_s,
        rss_bytes: after.rss_bytes,
        operations,
        failures: sum.failures.iter().map(|(error, n)| (error.to_string(), n)).collect(),
        lost: sum.lost,
        adjusted: sum.adjusted,
        idle_skipped_s: sum.skipped.as_secs_f64(),
        starved: sum.starved,
        intervals: merge(intervals, span),
        latency: sum.latency,
    }
}

fn ended_by(outcomes: &[JobOutcome]) -> &'static str {
    let any = |wanted: fn(&End) -> bool| outcomes.iter().any(|o| wanted(&o.end));
    if any(|end| matches!(end, End::Failed(_))) {
        "error"
    } else if any(|end| matches!(end, End::Stopped)) {
        "signal"
    } else if any(|end| matches!(end, End::TimeUp)) {
        "time"
    } else {
        "end"
    }
}

#[derive(Default)]
struct Sum {
    latency: LatencyRecorder,
    response: LatencyHistogram,
    lateness: LatencyHistogram,
    requests: [u64; 5],
    operations: Operations,
    read_bytes: u64,
    write_bytes: u64,
    errors: u64,
    failures: Failures,
    busy_ns: u128,
    pending_max: u32,
    found_full: u64,
    sent: u64,
    lost: u64,
    adjusted: Adjusted,
    skipped: Nanos,
    starved: u64,
}

impl Sum {
    fn add(&mut self, outcome: &JobOutcome) {
        let recorder = &outcome.recorder;
        self.latency.add(&recorder.latency);
        self.response.add(&recorder.response);
        self.lateness.add(&recorder.lateness);
        for (sum, n) in self.requests.iter_mut().zip(recorder.requests) {
            *sum += n;
        }
        let of = |op: Op| self.requests[op as usize];
        self.operations = Operations {
            read: of(Op::Read),
            write: of(Op::Write),
            trim: of(Op::Trim),
            flush: of(Op::Flush),
            write_zeroes: of(Op::WriteZeroes),
        };
        self.read_bytes += recorder.read_bytes;
        self.write_bytes += recorder.write_bytes;
        self.errors += recorder.errors;
        recorder.failures.iter().for_each(|(error, n)| self.failures.add(error, n));
        self.busy_ns += recorder.busy_ns;
        self.pending_max = self.pending_max.max(recorder.pending_max);
        self.found_full += recorder.found_full;
        self.sent += recorder.sent;
        self.lost += u64::from(outcome.lost);
        self.adjusted.add(&outcome.adjusted);
        self.skipped = self.skipped.max(outcome.skipped);
        self.starved += outcome.starved;
    }
}
