//! The result of a simulation.

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
    /// Latencies of device operations, including waits; null with `--untimed`.
    #[schemars(with = "Option<Components>")]
    pub component_latency_us: Components,
    /// Dirty blocks at the end.
    pub dirty_blocks: u64,
    /// The flash tier; null if there is none.
    pub flash: Option<FlashResult>,
    /// Counts of cache events.
    #[serde(serialize_with = "simulated_events")]
    #[schemars(with = "Events")]
    pub events: CacheStats,
    /// Bytes of memory that the cache uses in addition to the blocks themselves.
    pub metadata_bytes: u64,
    /// Maximum number of blocks in each tier.
    pub capacity_blocks: Capacity,
    /// Devices that could not keep up with requests that arrived at the trace's timestamps; empty if all devices
    /// kept up.
    pub overloaded: Vec<Overload>,
    /// The destage of all dirty data after the last request, once every outage that has an end is over. No
    /// other counter includes this destage. Null without
    /// [`--outage`](docs/simulation.md#when-a-store-fails).
    pub after_outages: Option<AfterOutages>,
    /// Values that the simulator assumed because neither the trace nor the configuration gives them.
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
    /// The busiest of the devices for which requests waited: `flash`, or the name of the volume whose
    /// backing store it is.
    pub device: String,
    /// Share of the run during which the device was busy.
    pub busy_share: f64,
    /// Seconds during which at least one request that may have needed this device had been waiting for more
    /// than a second. Requests to volumes whose store fails during the run (`--outage`) do not count.
    pub seconds: f64,
    /// `seconds` as a share of the run.
    pub share: f64,
}

/// A destage of everything after the last request, when the outages that end have ended. Nothing of it is in the
/// other counters.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, JsonSchema)]
pub struct AfterOutages {
    /// Whether everything reached the backing stores durably. After a failed sync, no later sync is trusted,
    /// so this is false even if no block is dirty.
    pub destaged: bool,
    /// Seconds that the destage took.
    pub seconds: f64,
    /// Blocks that are still dirty.
    pub dirty_blocks: u64,
}

/// Rates over the duration of the run; 0 where no time passed.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct Throughput {
    /// Requests per second; 0 if no time passed.
    pub requests_per_s: f64,
    /// Bytes that requests read and wrote per second.
    pub bytes_per_s: f64,
}

/// How many blocks each tier holds at most: of the slots layout those that count for replacement,
/// of the log its records if all are whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Capacity {
    /// Blocks in memory.
    pub tier1: u32,
    /// Blocks on flash: in the slots layout, excluding the cells reserved for blocks in flight; in the log
    /// layout, the records that fit if each holds a whole block. 0 if there is no flash tier.
    pub tier2: u32,
}

/// What was taken for granted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct Assumed {
    /// Flushes that were added to the trace: `none`, `every 100 writes` or `5 s after a write`, for example.
    pub flush: String,
    /// Number of added flushes.
    pub flushes_added: u64,
    /// Number of flushes in the trace.
    pub flushes_traced: u64,
    /// Assumptions about devices that the configuration does not describe, one sentence each.
    pub devices: Vec<String>,
    /// Assumed size of a flash page in bytes, if `flash.page_size` is unset. A real page is often 4096 bytes,
    /// and the cache then writes more than in the simulation. Null if `flash.page_size` is set, or if there
    /// is no flash tier in the slots layout.
    pub flash_page_bytes: Option<u32>,
}

/// One volume.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct VolumeResult {
    /// Name of the volume in the trace.
    pub volume: String,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Requests of all kinds, including failed ones.
    pub requests: u64,
    /// Completed read requests, including failed ones.
    pub reads: u64,
    /// Completed write requests, including failed ones.
    pub writes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes requested by reads.
    pub read_bytes: u64,
    /// Bytes sent by writes.
    pub write_bytes: u64,
    /// Time from a request's arrival to its reply; null with `--untimed`.
    #[schemars(with = "Option<LatencyByOp>")]
    pub latency_us: LatencyByOp,
    /// Block accesses that hit, by tier.
    pub hits: Hits,
    /// Block accesses that missed.
    pub misses: ReadWrite,
    /// Share of block accesses that hit, including delayed hits.
    pub hit_ratio: f64,
    /// Traffic of the volume's backing store.
    pub backing: Backing,
    /// Dirty blocks at the end.
    pub dirty_blocks: u64,
    /// Largest number of dirty blocks at any time.
    pub dirty_blocks_max: u64,
}

/// Assumed flushes, which do not count as requests of the workload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AddedFlushes {
    pub count: u64,
    /// Number of added flushes that were answered with an error.
    pub failed: u64,
}

impl std::iter::Sum for AddedFlushes {
    fn sum<I: Iterator<Item = AddedFlushes>>(all: I) -> AddedFlushes {
        all.fold(AddedFlushes::default(), |sum, one| AddedFlushes {
            count: sum.count + one.count,
            failed: sum.failed + one.failed,
        })
    }
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
        added: AddedFlushes,
        latency_us: LatencyByOp,
    ) -> VolumeResult {
        let CacheResult { hits, misses, hit_ratio, backing, dirty_blocks_max, .. } =
            CacheResult::new(s, 0);
        VolumeResult {
            volume: name.to_owned(),
            size_bytes,
            requests: s.requests() - added.count,
            reads: s.reads,
            writes: s.writes,
            errors: s.errors - added.failed,
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

/// Builds the part of the result that every run reports. The `added` flushes are subtracted,
/// because they are not requests of the workload.
pub(crate) fn run_result(
    s: &VolumeStats,
    added: AddedFlushes,
    latency_us: LatencyByOp,
    duration_s: f64,
    tier2_bytes_written: u64,
) -> RunResult {
    RunResult {
        requests: s.requests() - added.count,
        reads: s.reads,
        writes: s.writes,
        errors: s.errors - added.failed,
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
