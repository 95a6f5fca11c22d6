//! What a simulation answers with.

use forebay_cache::{CacheStats, Hits as BlockHits, VolumeStats};
use forebay_flash::LogStats;
use forebay_results::{
    Backing, CacheResult, Components, FlashResult, Hits, LatencyByOp, ReadWrite, RunResult,
};
use serde::Serialize;

use crate::series::{Row, Totals};

/// A simulated run. Times are of the simulated machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SimulationResult {
    /// What every run reports, all volumes together.
    #[serde(flatten)]
    pub run: RunResult,
    /// How requests were paced: `open-loop`, `closed-loop`, `quiesced` or `untimed`.
    pub pacing: &'static str,
    /// Requests and bytes per second of simulated time.
    pub throughput: Throughput,
    /// How long operations of devices took, waiting included.
    pub component_latency_us: Components,
    /// Blocks newer than the backing store, at the end.
    pub dirty_blocks: u64,
    /// The flash tier, if there is one.
    pub flash: Option<FlashResult>,
    /// What the cache did.
    pub events: Events,
    /// Bytes of bookkeeping that the cache has in memory.
    pub metadata_bytes: u64,
    /// How many blocks the tiers hold at most.
    pub capacity_blocks: Capacity,
    /// What could not keep up, where requests came at the trace's times; empty if all could.
    pub overloaded: Vec<Overload>,
    /// What was taken for granted.
    pub assumed: Assumed,
    /// Each volume that the trace has.
    pub volumes: Vec<VolumeResult>,
    /// The run in rows. Not part of the document.
    #[serde(skip)]
    pub rows: Vec<Row>,
}

/// Requests that came faster than they could be answered.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Overload {
    /// The device that was busiest: `flash`, or the name of the volume whose backing store it is.
    pub device: String,
    /// For which share of the run it was at work.
    pub busy_share: f64,
    /// For so many seconds some request had been waiting for more than a second.
    pub seconds: f64,
    /// As a share of the run.
    pub share: f64,
}

/// Rates over the duration of the run; 0 where no time passed.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Throughput {
    /// Requests per second.
    pub requests_per_s: f64,
    /// Bytes per second read and written by requests.
    pub bytes_per_s: f64,
}

/// How many blocks each tier holds at most: of the layout slots those that count for replacement,
/// of the log its records if all are whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Capacity {
    /// Memory.
    pub tier1: u32,
    /// Flash; 0 without.
    pub tier2: u32,
}

/// What the cache did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "the names are those of `forebay_cache::CacheStats`")]
pub struct Events {
    pub demotions: u64,
    pub left_on_flash: u64,
    pub promotions: u64,
    pub read_through: u64,
    pub admitted: u64,
    pub not_admitted: u64,
    pub written_around: u64,
    pub destaged_around: u64,
    pub entered_when_read: u64,
    pub line_blocks: u64,
    pub lines_short: u64,
    pub written_in_transit: u64,
    pub bypassed_reads: u64,
    pub bypassed_writes: u64,
    pub evictions: u64,
    pub reclaim_dropped: u64,
    pub reinserted: u64,
    pub reinsertions_refused: u64,
    pub records_outdated: u64,
    pub destaged: u64,
    pub rescued: u64,
    pub flash_evictions: u64,
    pub flash_rescued: u64,
    pub waits_block: u64,
    pub waits_room: u64,
    pub merges: u64,
    pub read_modify_writes: u64,
    pub transfer_errors: u64,
}

/// What was taken for granted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Assumed {
    /// Flushes added to the trace: `none`, `every 100 writes`, `after 5s`.
    pub flush: String,
    /// How many that were.
    pub flushes_added: u64,
    /// Flushes that the trace has.
    pub flushes_traced: u64,
    /// What the configuration did not say, a sentence each.
    pub devices: Vec<String>,
}

/// One volume.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VolumeResult {
    /// Its name.
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
    /// From a request's arrival to its answer.
    pub latency_us: LatencyByOp,
    /// Accesses to blocks that found them, by tier.
    pub hits: Hits,
    /// Accesses to blocks that found them nowhere.
    pub misses: ReadWrite,
    /// Share of block accesses that hit.
    pub hit_ratio: f64,
    /// Traffic of its backing store.
    pub backing: Backing,
    /// Blocks newer than the backing store, at the end.
    pub dirty_blocks: u64,
    /// The most there ever were.
    pub dirty_blocks_max: u64,
}

/// Counters of volumes added up; the gauges too, whose maximum becomes a bound.
pub(crate) fn sum<'a>(stats: impl Iterator<Item = &'a VolumeStats>) -> VolumeStats {
    let hits = |a: BlockHits, b: BlockHits| BlockHits {
        tier1: a.tier1 + b.tier1,
        tier2: a.tier2 + b.tier2,
        delayed: a.delayed + b.delayed,
        miss: a.miss + b.miss,
    };
    stats.fold(VolumeStats::default(), |a, b| VolumeStats {
        reads: a.reads + b.reads,
        writes: a.writes + b.writes,
        zeroes: a.zeroes + b.zeroes,
        flushes: a.flushes + b.flushes,
        errors: a.errors + b.errors,
        read_bytes: a.read_bytes + b.read_bytes,
        write_bytes: a.write_bytes + b.write_bytes,
        read_hits: hits(a.read_hits, b.read_hits),
        write_hits: hits(a.write_hits, b.write_hits),
        backing_read_bytes: a.backing_read_bytes + b.backing_read_bytes,
        backing_write_bytes: a.backing_write_bytes + b.backing_write_bytes,
        backing_zero_bytes: a.backing_zero_bytes + b.backing_zero_bytes,
        backing_syncs: a.backing_syncs + b.backing_syncs,
        dirty_blocks: a.dirty_blocks + b.dirty_blocks,
        dirty_blocks_max: a.dirty_blocks_max + b.dirty_blocks_max,
        backing_errors: a.backing_errors + b.backing_errors,
    })
}

/// Bytes written to flash, headers and padding included.
pub(crate) fn flash_bytes(log: Option<&LogStats>) -> u64 {
    let pages = |l: &LogStats| l.payload_pages + l.header_pages + l.superblock_pages;
    log.map_or(0, |l| pages(l) * u64::from(l.page_size))
}

pub(crate) fn totals(stats: &VolumeStats, log: Option<&LogStats>) -> Totals {
    let (hits, misses) = hits(stats);
    Totals {
        hits,
        misses,
        tier2_bytes_written: flash_bytes(log),
        backing_read_bytes: stats.backing_read_bytes,
        backing_write_bytes: stats.backing_write_bytes,
        dirty_blocks: stats.dirty_blocks,
        flash_utilisation: log.map_or(0.0, LogStats::utilisation),
    }
}

fn hits(s: &VolumeStats) -> (Hits, ReadWrite) {
    let hits = Hits {
        tier1: ReadWrite { read: s.read_hits.tier1, write: s.write_hits.tier1 },
        tier2: ReadWrite { read: s.read_hits.tier2, write: s.write_hits.tier2 },
        delayed: ReadWrite { read: s.read_hits.delayed, write: s.write_hits.delayed },
    };
    (hits, ReadWrite { read: s.read_hits.miss, write: s.write_hits.miss })
}

impl VolumeResult {
    pub(crate) fn new(
        name: &str,
        size_bytes: u64,
        s: &VolumeStats,
        added: u64,
        latency_us: LatencyByOp,
    ) -> VolumeResult {
        let (hits, misses) = hits(s);
        VolumeResult {
            volume: name.to_owned(),
            size_bytes,
            requests: requests(s) - added,
            reads: s.reads,
            writes: s.writes,
            errors: s.errors,
            read_bytes: s.read_bytes,
            write_bytes: s.write_bytes,
            latency_us,
            hits,
            misses,
            hit_ratio: CacheResult::ratio_of(&hits, &misses),
            backing: backing(s),
            dirty_blocks: s.dirty_blocks,
            dirty_blocks_max: s.dirty_blocks_max,
        }
    }
}

fn requests(s: &VolumeStats) -> u64 {
    s.reads + s.writes + s.zeroes + s.flushes
}

fn backing(s: &VolumeStats) -> Backing {
    Backing { read_bytes: s.backing_read_bytes, write_bytes: s.backing_write_bytes }
}

/// What every run reports, from counters. `added` flushes are none of the workload's requests.
pub(crate) fn run_result(
    s: &VolumeStats,
    added: u64,
    latency_us: LatencyByOp,
    duration_s: f64,
    tier2_bytes_written: u64,
) -> RunResult {
    let (hits, misses) = hits(s);
    RunResult {
        requests: requests(s) - added,
        reads: s.reads,
        writes: s.writes,
        errors: s.errors,
        read_bytes: s.read_bytes,
        write_bytes: s.write_bytes,
        duration_s,
        latency_us,
        cache: Some(CacheResult {
            hits,
            misses,
            hit_ratio: CacheResult::ratio_of(&hits, &misses),
            tier2_bytes_written,
            backing: backing(s),
            dirty_blocks_max: s.dirty_blocks_max,
        }),
    }
}

impl Throughput {
    pub(crate) fn of(run: &RunResult) -> Throughput {
        if run.duration_s <= 0.0 {
            return Throughput::default();
        }
        Throughput {
            requests_per_s: run.requests as f64 / run.duration_s,
            bytes_per_s: (run.read_bytes + run.write_bytes) as f64 / run.duration_s,
        }
    }
}

impl From<&CacheStats> for Events {
    fn from(s: &CacheStats) -> Self {
        Events {
            demotions: s.demotions,
            left_on_flash: s.left_on_flash,
            promotions: s.promotions,
            read_through: s.read_through,
            admitted: s.admitted,
            not_admitted: s.not_admitted,
            written_around: s.written_around,
            destaged_around: s.destaged_around,
            entered_when_read: s.entered_when_read,
            line_blocks: s.line_blocks,
            lines_short: s.lines_short,
            written_in_transit: s.written_in_transit,
            bypassed_reads: s.bypassed_reads,
            bypassed_writes: s.bypassed_writes,
            evictions: s.evictions,
            reclaim_dropped: s.reclaim_dropped,
            reinserted: s.reinserted,
            reinsertions_refused: s.reinsertions_refused,
            records_outdated: s.records_outdated,
            destaged: s.destaged,
            rescued: s.rescued,
            flash_evictions: s.flash_evictions,
            flash_rescued: s.flash_rescued,
            waits_block: s.waits_block,
            waits_room: s.waits_room,
            merges: s.merges,
            read_modify_writes: s.read_modify_writes,
            transfer_errors: s.transfer_errors,
        }
    }
}
