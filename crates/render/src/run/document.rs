//! A run for programs: the JSON document and its rows.

use forebay_analysis::Columns;
use forebay_replay::{Interval, Machine, RealRun, TargetInfo, VerifyResult};
use forebay_results::{Latency, TraceIdentity};
use serde::Serialize;

/// A run as it is reported.
#[derive(Serialize)]
pub struct Document {
    /// What was measured.
    #[serde(flatten)]
    pub result: RealRun,
    /// What reading back has found, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyResult>,
    /// Which requests these were.
    pub trace: TraceIdentity,
    /// What requests were sent to.
    pub target: TargetInfo,
    /// How the run was asked for.
    pub options: Echo,
    /// What it ran on.
    pub machine: Machine,
    /// Forebay's version.
    pub version: &'static str,
}

/// How the run was asked for.
#[derive(Clone, Serialize, Default)]
pub struct Echo {
    /// `replay` or `load`.
    pub command: &'static str,
    /// How many times as fast as the workload; absent in a closed loop.
    pub rate: Option<f64>,
    /// Whether each request is sent as soon as the queue has room.
    pub as_fast_as_possible: bool,
    /// Whether each request waited for all background work of the one before.
    pub quiesce: bool,
    /// Requests in flight at most.
    pub queue_depth: u32,
    /// Submitters.
    pub jobs: u32,
    /// Whether writes are left out.
    pub reads_only: bool,
    /// Whether requests beyond the target wrap around.
    pub wrap: bool,
    /// Whether volumes lie one after the other on the first of the target.
    pub concatenate: bool,
    /// Seed of the data that is written.
    pub data_seed: u64,
    /// The configuration file's text.
    pub config: Option<String>,
}

/// The run as one row.
pub(super) fn row(document: &Document) -> Columns {
    use std::iter::once;
    let r = &document.result;
    let run = &r.run;
    let mut rows = Columns::default()
        .texts("trace", once(document.trace.name.as_str()))
        .texts("trace_xxh3", once(document.trace.xxh3.as_str()))
        .texts("target", once(document.target.kind))
        .texts("via", once(document.target.via.as_str()))
        .texts("cpu", once(document.machine.cpu.as_str()))
        .texts("kernel", once(document.machine.kernel.as_str()))
        .texts("ended_by", once(r.ended_by))
        .integers("cores", once(document.machine.cores))
        .integers("queue_depth", once(u64::from(r.queue.depth)))
        .integers("jobs", once(u64::from(r.queue.jobs)))
        .reals("rate", once(document.options.rate.unwrap_or(0.0)))
        .integers("requests", once(run.requests))
        .integers("reads", once(run.reads))
        .integers("writes", once(run.writes))
        .integers("errors", once(run.errors))
        .integers("read_bytes", once(run.read_bytes))
        .integers("write_bytes", once(run.write_bytes))
        .reals("duration_s", once(run.duration_s))
        .reals("bytes_per_s", once(r.throughput.bytes_per_s))
        .reals("requests_per_s", once(r.throughput.requests_per_s))
        .reals("queue_mean", once(r.queue.mean))
        .reals("queue_full_share", once(r.queue.full_share))
        .reals("cpu_s", once(r.cpu_s))
        .integers("rss_bytes", once(r.rss_bytes));
    let latency = &run.latency_us;
    rows = latencies(rows, READ_COLUMNS, &latency.read);
    rows = latencies(rows, WRITE_COLUMNS, &latency.write);
    rows = latencies(rows, ALL_COLUMNS, &latency.all);
    rows = maybe_latencies(rows, RESPONSE_COLUMNS, r.response_us.as_ref());
    rows = maybe_latencies(rows, LATENESS_COLUMNS, r.lateness_us.as_ref());
    let Some(cache) = &run.cache else { return rows };
    rows.integers("tier1_read_hits", once(cache.hits.tier1.read))
        .integers("tier1_write_hits", once(cache.hits.tier1.write))
        .integers("tier2_read_hits", once(cache.hits.tier2.read))
        .integers("tier2_write_hits", once(cache.hits.tier2.write))
        .integers("read_misses", once(cache.misses.read))
        .integers("write_misses", once(cache.misses.write))
        .reals("hit_ratio", once(cache.hit_ratio))
        .integers("tier2_bytes_written", once(cache.tier2_bytes_written))
        .integers("backing_read_bytes", once(cache.backing.read_bytes))
        .integers("backing_write_bytes", once(cache.backing.write_bytes))
        .integers("dirty_blocks_max", once(cache.dirty_blocks_max))
}

macro_rules! latency_columns {
    ($($name:ident = $prefix:literal),*) => {
        $(const $name: [&str; 7] = [
            concat!($prefix, "_mean_us"), concat!($prefix, "_p50_us"),
            concat!($prefix, "_p90_us"), concat!($prefix, "_p99_us"),
            concat!($prefix, "_p999_us"), concat!($prefix, "_p9999_us"),
            concat!($prefix, "_max_us"),
        ];)*
    };
}
latency_columns!(
    READ_COLUMNS = "read",
    WRITE_COLUMNS = "write",
    ALL_COLUMNS = "all",
    RESPONSE_COLUMNS = "response",
    LATENESS_COLUMNS = "lateness"
);

fn latencies(rows: Columns, names: [&'static str; 7], l: &Latency) -> Columns {
    names
        .into_iter()
        .zip(l.values())
        .fold(rows, |rows, (name, value)| rows.reals(name, std::iter::once(value)))
}

/// The same columns, null where there is nothing to measure.
fn maybe_latencies(rows: Columns, names: [&'static str; 7], l: Option<&Latency>) -> Columns {
    let values = l.map(Latency::values);
    let value = |at: usize| values.as_ref().map(|values| values[at]);
    names
        .into_iter()
        .enumerate()
        .fold(rows, |rows, (at, name)| rows.optional_reals(name, std::iter::once(value(at))))
}

/// A row for each piece of the run.
pub fn interval_rows(intervals: &[Interval]) -> Columns {
    let each = || intervals.iter();
    Columns::default()
        .reals("start_s", each().map(|i| i.start_s))
        .reals("length_s", each().map(|i| i.length_s))
        .integers("requests", each().map(|i| i.requests))
        .integers("errors", each().map(|i| i.errors))
        .integers("read_bytes", each().map(|i| i.read_bytes))
        .integers("write_bytes", each().map(|i| i.write_bytes))
        .reals("mean_us", each().map(|i| i.mean_us))
        .reals("p99_us", each().map(|i| i.p99_us))
        .reals("max_us", each().map(|i| i.max_us))
}
