//! What a simulation answers with.

use forebay_cache::{CacheStats, VolumeStats};
use forebay_flash::LogStats;
use forebay_results::{
    Backing, CacheResult, Components, Events, FlashResult, Hits, LatencyByOp, ReadWrite, RunResult,
    simulated_events,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::series::{Row, Totals};

/// A simulated run. Times are of the simulated machine.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct SimulationResult {
    /// What every run reports, all volumes together.
    #[serde(flatten)]
    pub run: RunResult,
    /// How requests arrived: `open-loop`, `closed-loop`, `quiesced` or `untimed`.
    pub pacing: &'static str,
    /// Requests and bytes per second of simulated time; null with `--untimed`.
    #[schemars(with = "Option<Throughput>")]
    pub throughput: Throughput,
    /// How long operations of devices took, waits included; null with `--untimed`.
    #[schemars(with = "Option<Components>")]
    pub component_latency_us: Components,
    /// Blocks newer than the backing store, at the end.
    pub dirty_blocks: u64,
    /// The flash tier; null without one.
    pub flash: Option<FlashResult>,
    /// How often the cache did what.
    #[serde(serialize_with = "simulated_events")]
    #[schemars(with = "Events")]
    pub events: CacheStats,
    /// Bytes of memory that the cache takes for everything but the blocks themselves.
    pub metadata_bytes: u64,
    /// How many blocks the tiers hold at most.
    pub capacity_blocks: Capacity,
    /// Devices that could not keep up where requests came at the trace's times; empty if all could.
    pub overloaded: Vec<Overload>,
    /// The destage of all dirty data after the last request, once every outage with an end is over. No other
    /// counter includes its work. Null without [`--outage`](docs/simulation.md#when-a-store-fails).
    pub after_outages: Option<AfterOutages>,
    /// What was assumed because neither the trace nor the configuration says it.
    pub assumed: Assumed,
    /// Each volume of the trace.
    pub volumes: Vec<VolumeResult>,
    /// The run in rows. Not part of the document.
    #[serde(skip)]
    pub rows: Vec<Row>,
}

/// Requests that came faster than they could be answered.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Overload {
    /// The device that was busiest: `flash`, or the name of the volume whose backing store it is.
    pub device: String,
    /// Share of the run during which the device was busy.
    pub busy_share: f64,
    /// Seconds during which some request had been waiting for more than a second.
    pub seconds: f64,
    /// The share of the run during which some request had been waiting for more than a second.
    pub share: f64,
}

/// A destage of everything after the last request, when the outages that end have ended. Nothing of it is in the
/// other counters.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, JsonSchema)]
pub struct AfterOutages {
    /// Whether everything reached the backing stores, durably. After a sync that failed, no later one is
    /// believed, so it is false then, even with no block dirty.
    pub destaged: bool,
    /// How many seconds this took.
    pub seconds: f64,
    /// Blocks that are still newer than the backing store.
    pub dirty_blocks: u64,
}

/// Rates over the duration of the run; 0 where no time passed.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct Throughput {
    /// Requests per second; 0 where no time passed.
    pub requests_per_s: f64,
    /// Bytes per second read and written by requests.
    pub bytes_per_s: f64,
}

/// How many blocks each tier holds at most: of the slots layout those that count for replacement,
/// of the log its records if all are whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Capacity {
    /// In memory.
    pub tier1: u32,
    /// On flash: in the slots layout the blocks that count for replacement, in the log its records if all
    /// are whole. 0 without flash.
    pub tier2: u32,
}

/// What was taken for granted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Assumed {
    /// Flushes that were added to the trace: `none`, `every 100 writes`, `after 5s`.
    pub flush: String,
    /// How many flushes were added.
    pub flushes_added: u64,
    /// How many flushes the trace has.
    pub flushes_traced: u64,
    /// What the configuration does not say about devices, a sentence each.
    pub devices: Vec<String>,
    /// How much flash writes at a time, in bytes, where `flash.page_size` is unset and a real device would
    /// decide: often 4096, with which more is written than here. Null if the configuration says it, and without
    /// a flash tier in slots.
    pub flash_page_bytes: Option<u32>,
}

/// One volume.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct VolumeResult {
    /// Its name in the trace.
    pub volume: String,
    /// Its size.
    pub size_bytes: u64,
    /// Requests of all kinds, failed ones included.
    pub requests: u64,
    /// Read requests among them.
    pub reads: u64,
    /// Write requests among them.
    pub writes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes that read requests asked for.
    pub read_bytes: u64,
    /// Bytes that write requests brought.
    pub write_bytes: u64,
    /// From a request's arrival to its answer; null with `--untimed`.
    #[schemars(with = "Option<LatencyByOp>")]
    pub latency_us: LatencyByOp,
    /// Accesses to blocks that found them, by tier.
    pub hits: Hits,
    /// Accesses to blocks that found them nowhere.
    pub misses: ReadWrite,
    /// Share of block accesses that hit, delayed hits among them.
    pub hit_ratio: f64,
    /// Traffic of its backing store.
    pub backing: Backing,
    /// Blocks newer than the backing store, at the end.
    pub dirty_blocks: u64,
    /// The largest number of such blocks at any time.
    pub dirty_blocks_max: u64,
}

pub(crate) fn totals(stats: &VolumeStats, log: Option<&LogStats>) -> Totals {
    let cache = CacheResult::new(stats, log.map_or(0, LogStats::bytes_written));
    Totals {
        cache,
        dirty_blocks: stats.dirty_blocks,
        flash_utilisation: log.map_or(0.0, LogStats::utilisation),
    }
}

impl VolumeResult {
    pub(crate) fn new(
        name: &str,
        size_bytes: u64,
        s: &VolumeStats,
        added: u64,
        latency_us: LatencyByOp,
    ) -> VolumeResult {
        let CacheResult { hits, misses, hit_ratio, backing, dirty_blocks_max, .. } =
            CacheResult::new(s, 0);
        VolumeResult {
            volume: name.to_owned(),
            size_bytes,
            requests: s.requests() - added,
            reads: s.reads,
            writes: s.writes,
            errors: s.errors,
            read_bytes: s.read_bytes,
            write_bytes: s.write_bytes,
            latency_us,
            hits,
            misses,
            hit_ratio,
            backing,
            dirty_blocks: s.dirty_blocks,
            dirty_blocks_max,
        }
    }
}

/// What every run reports, from counters. `added` flushes are none of the workload's requests.
pub(crate) fn run_result(
    s: &VolumeStats,
    added: u64,
    latency_us: LatencyByOp,
    duration_s: f64,
    tier2_bytes_written: u64,
) -> RunResult {
    RunResult {
        requests: s.requests() - added,
        reads: s.reads,
        writes: s.writes,
        errors: s.errors,
        read_bytes: s.read_bytes,
        write_bytes: s.write_bytes,
        duration_s,
        latency_us,
        cache: Some(CacheResult::new(s, tier2_bytes_written)),
    }
}

impl Throughput {
    pub(crate) fn mean(run: &RunResult) -> Throughput {
        if run.duration_s <= 0.0 {
            return Throughput::default();
        }
        Throughput {
            requests_per_s: run.requests as f64 / run.duration_s,
            bytes_per_s: (run.read_bytes + run.write_bytes) as f64 / run.duration_s,
        }
    }
}
