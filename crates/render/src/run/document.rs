//! A run for programs: the JSON document and its rows.

use forebay_analysis::Columns;
use forebay_replay::{Machine, QueueResult, RealRun, TargetInfo, Throughput, VerifyResult};
use forebay_results::{CacheResult, Latency, LatencyByOp, TraceIdentity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The JSON document of a run.
#[derive(Serialize, JsonSchema)]
pub struct Document {
    /// The results of the run.
    #[serde(flatten)]
    pub result: RealRun,
    /// Result of reading back the written data; left out without `--verify`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyResult>,
    /// Identity of the requests.
    pub trace: TraceIdentity,
    /// Where requests were sent.
    pub target: TargetInfo,
    /// The options of the run.
    pub options: Echo,
    /// The machine on which the command ran.
    pub machine: Machine,
    /// Forebay's version.
    pub version: &'static str,
}

/// The options of a run.
#[derive(Clone, Serialize, Deserialize, Default, JsonSchema)]
pub struct Echo {
    /// `replay` or `load`.
    pub command: &'static str,
    /// Speed as a multiple of the workload's own speed; null in a closed loop.
    pub rate: Option<f64>,
    /// Whether each request is sent as soon as the queue has room.
    pub as_fast_as_possible: bool,
    /// Whether each request waited for all background work of the previous one.
    pub quiesce: bool,
    /// Maximum number of requests in flight for each job.
    pub queue_depth: u32,
    /// Number of parallel jobs (`--jobs`); 1 in a replay.
    pub jobs: u32,
    /// Whether writes, trims and write-zeroes requests are skipped.
    pub reads_only: bool,
    /// Whether requests beyond the end of the target wrap around.
    pub wrap: bool,
    /// Whether volumes are placed one after another on the first volume of the target.
    pub concatenate: bool,
    /// Seed for the written data.
    pub data_seed: u64,
    /// The text of the configuration file; null if there is none.
    pub config: Option<String>,
}

/// A row of `--parquet`: the run, and the results of its cache.
pub type RunRow = (Row, Option<CacheResult>);

/// The run in one row.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Identity of the requests.
    pub trace: TraceIdentity,
    /// `block`, `nbd` or `engine`.
    pub target_kind: &'static str,
    /// How the target is reached: the I/O backend, or the number of connections and the kind of
    /// replies.
    pub target_via: String,
    /// The options of the run.
    pub options: Echo,
    /// The machine on which the command ran.
    pub machine: Machine,
    /// Why the run ended: `end` (of the workload), `time` (`--duration` had passed), `signal` or `error`.
    pub ended_by: &'static str,
    /// Completed requests of all kinds, including failed ones.
    pub requests: u64,
    /// Completed read requests, including failed ones.
    pub reads: u64,
    /// Completed write requests, including failed ones.
    pub writes: u64,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Bytes requested by reads.
    pub read_bytes: u64,
    /// Bytes sent by writes.
    pub write_bytes: u64,
    /// Seconds from the first request to the last completion.
    pub duration_s: f64,
    /// Requests and bytes per second.
    pub throughput: Throughput,
    /// Requests in flight.
    pub queue: QueueResult,
    /// Processor time that this process used during the run, in seconds.
    pub cpu_s: f64,
    /// Peak resident memory of this process, in bytes.
    pub rss_bytes: u64,
    /// Time from sending a request to its answer.
    pub latency_us: LatencyByOp,
    /// Time from when a request was due to its answer; null in a closed loop.
    pub response_us: Option<Latency>,
    /// Time from when a request was due until it was sent; null in a closed loop.
    pub lateness_us: Option<Latency>,
}

/// The run as one row.
pub(super) fn row(document: &Document) -> Columns {
    let result = &document.result;
    let run = &result.run;
    let row = Row {
        trace: document.trace.clone(),
        target_kind: document.target.kind,
        target_via: document.target.via.clone(),
        options: document.options.clone(),
        machine: document.machine.clone(),
        ended_by: result.ended_by,
        requests: run.requests,
        reads: run.reads,
        writes: run.writes,
        errors: run.errors,
        read_bytes: run.read_bytes,
        write_bytes: run.write_bytes,
        duration_s: run.duration_s,
        throughput: result.throughput,
        queue: result.queue,
        cpu_s: result.cpu_s,
        rss_bytes: result.rss_bytes,
        latency_us: run.latency_us,
        response_us: result.response_us,
        lateness_us: result.lateness_us,
    };
    let row: RunRow = (row, run.cache);
    Columns::from_rows([row])
}
