//! The status of a running cache, with the same fields as a simulation's result.

use forebay_block::Volume;
use forebay_cache::{Cache, CacheStats, PROBE_PERIOD, PolicyError, VolumeStats};
use forebay_device::ExecutorStats;
use forebay_effect::{Device, IoError};
use forebay_flash::{Geometry, LogStats};
use forebay_results::{
    CacheResult, Components, Events, FlashResult, Hits, LatencyByOp, LatencyRecorder, LatencyTotal,
    Operations, ReadWrite, served_events,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::faults::FlashGivenUp;
use crate::options::VolumeDescription;
use crate::shared::Shared;

/// A running cache, now. Latencies are in microseconds, sizes in bytes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Status {
    /// Seconds since the server opened the cache.
    pub uptime_s: f64,
    /// The write policy in force.
    pub write_policy: String,
    /// When writes under write-back are acknowledged.
    pub acknowledge: String,
    /// Why the server could not adopt the configured write policy when it started: dirty data could not be
    /// destaged. Null if it adopted the policy.
    pub write_policy_failure: Option<String>,
    /// Why nothing is written to flash until the next start; null while flash works.
    pub flash_failure: Option<String>,
    /// The current quiesce, while it holds client requests back; otherwise null.
    pub quiesced: Option<Quiesced>,
    /// All volumes together.
    #[serde(flatten)]
    pub total: Workload,
    /// Each volume, in the order of the configuration.
    pub volumes: Vec<VolumeStatus>,
    /// Bytes written to the flash tier, including headers and padding.
    pub tier2_bytes_written: u64,
    /// Sizes and free space of the tiers.
    pub tiers: Tiers,
    /// The flash tier; null if there is none.
    pub flash: Option<FlashResult>,
    /// Counts of cache events.
    #[serde(serialize_with = "served_events")]
    #[schemars(with = "Events")]
    pub events: CacheStats,
    /// Counts of device operations.
    pub devices: ExecutorStats,
    /// Latencies of device operations, from the cache's request to the end of the operation.
    pub component_latency_us: Components,
    /// Completed operations of the flash device.
    #[serde(skip)]
    pub flash_operations: Operations,
    /// Requests in flight now.
    pub in_flight: u64,
}

/// How far a start is, while it reads what flash holds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct Recovering {
    /// Regions scanned.
    pub regions_done: u64,
    /// Regions to scan; 0 until their number is known.
    pub regions: u64,
    /// Records found so far.
    pub records: u64,
    /// Blocks that are missing from older copies of stores and will be copied to them from flash.
    pub completing: u64,
    /// With `--drop-clean`: dirty blocks that will be written to the stores before the cached data is
    /// dropped.
    pub destaging: u64,
    /// Seconds since the start.
    pub seconds: f64,
}

impl Recovering {
    pub(crate) fn new(of_log: &forebay_flash::RecoveryProgress, seconds: f64) -> Recovering {
        let forebay_flash::RecoveryProgress { regions_done, regions, records } = *of_log;
        Recovering { regions_done, regions, records, completing: 0, destaging: 0, seconds }
    }
}

impl std::fmt::Display for Recovering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.regions {
            _ if self.completing > 0 => {
                write!(f, "completing older copies of stores: {} blocks left", self.completing)
            }
            _ if self.destaging > 0 => write!(
                f,
                "writing dirty blocks to the stores before dropping cached data: {} left",
                self.destaging
            ),
            0 => write!(f, "opening the stores and the flash tier"),
            of => write!(
                f,
                "recovering: {} of {of} regions, {} records",
                self.regions_done, self.records
            ),
        }
    }
}

/// A quiesce.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Quiesced {
    /// Seconds since the server began to hold client requests back.
    pub since_s: f64,
    /// Seconds until clients continue; null if there is no limit.
    pub left_s: Option<f64>,
}

/// What clients asked for and what became of it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Workload {
    /// Requests of all kinds, except prefetches.
    pub requests: u64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Trims and write-zeroes requests.
    pub zeroes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Prefetch requests (NBD CACHE), which bring data into the cache. `requests`, `hits` and the other
    /// request counters do not include them.
    pub prefetches: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Bytes that clients wrote.
    pub write_bytes: u64,
    /// Block accesses that hit, by tier.
    pub hits: Hits,
    /// Block accesses that missed.
    pub misses: ReadWrite,
    /// Share of block accesses that hit.
    pub hit_ratio: f64,
    /// Time from a request's arrival to its reply.
    pub latency_us: LatencyByOp,
    /// Requests answered so far and the times they took. (`reads` and the other counters count a request
    /// when it arrives.)
    #[serde(skip)]
    pub answered: Answered,
    /// Traffic of the backing stores.
    pub backing: Backing,
    /// Current number of dirty blocks.
    pub dirty_blocks: u64,
    /// Largest number of dirty blocks at any time.
    pub dirty_blocks_max: u64,
}

/// Requests that were answered.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    /// Reads.
    pub read: LatencyTotal,
    /// Writes.
    pub write: LatencyTotal,
    /// All requests.
    pub all: LatencyTotal,
}

/// Traffic of the backing stores.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct Backing {
    /// What every run reports of them.
    #[serde(flatten)]
    pub traffic: forebay_results::Backing,
    /// Bytes zeroed.
    pub zero_bytes: u64,
    /// Syncs, counted when they begin; `component_latency_us` covers those that have ended.
    pub syncs: u64,
    /// Failed operations.
    pub errors: u64,
}

// The documentation of `suspended` names this time.
const _: () = assert!(PROBE_PERIOD.0 == 5_000_000_000);

/// One volume.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VolumeStatus {
    /// Name of the volume.
    pub volume: String,
    /// Size of the export in bytes.
    pub size_bytes: u64,
    /// Whether the volume rejects writes.
    pub read_only: bool,
    /// Error of the last operation on the volume's backing store; null if that operation succeeded. For an
    /// export of an NBD server, why the export cannot be reached until the next start.
    pub backing_failure: Option<String>,
    /// Whether writes to the volume fail immediately, because its backing store has been failing for
    /// `flush.give_up_after` and writes had to wait for it. The suspension ends when the store accepts an
    /// operation again. Forebay retries every five seconds, and when you run `forebay ctl resume`.
    pub suspended: bool,
    /// Whether the volume continues without the failed flash tier until the next start: cached in memory
    /// only, with write-through.
    pub pass_through: bool,
    /// Maximum number of the volume's dirty blocks on flash, if several volumes share flash; null if the
    /// volume may fill flash.
    pub dirty_on_flash_max: Option<u64>,
    /// Unreadable blocks found so far: their newest data was only on flash. If there are very many such
    /// blocks, only the first are counted.
    pub unreadable_blocks: u64,
    /// Its workload.
    #[serde(flatten)]
    pub workload: Workload,
    /// Completed operations of its backing store.
    #[serde(skip)]
    pub backing_operations: Operations,
}

/// The tiers.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct Tiers {
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Number of blocks that memory can hold now.
    pub dram_blocks: u32,
    /// Bytes of memory that the cache uses in addition to the blocks themselves.
    pub metadata_bytes: u64,
    /// Number of shards of the cache.
    pub shards: u8,
    /// Bytes of block data that fit on the flash tier, excluding headers; 0 if there is no flash tier.
    pub flash_bytes: u64,
    /// Regions of the flash log; in the slots layout, of the journal.
    pub flash_regions: u32,
    /// Regions that are free now. In the slots layout, this does not say how many blocks fit.
    pub flash_regions_free: u32,
    /// Old name of `flash.write_amplification`.
    pub flash_write_amplification: f64,
}

/// The state of one volume's store and records.
struct Health {
    stats: VolumeStats,
    failure: Option<IoError>,
    suspended: bool,
    passes_through: bool,
    unreadable_blocks: u64,
}

impl Health {
    fn of(cache: &Cache, volume: Volume) -> Health {
        Health {
            stats: cache.volume_stats(volume).copied().unwrap_or_default(),
            failure: cache.backing_failure(volume),
            suspended: cache.suspended(volume).is_some(),
            passes_through: cache.passes_through(volume),
            unreadable_blocks: cache.unreadable().filter(|&(v, _)| v == volume).count() as u64,
        }
    }
}

/// Takes a status under the lock, and assembles it outside.
pub(crate) fn snapshot(shared: &Shared, volumes: &[VolumeDescription]) -> Status {
    let mut core = shared.lock();
    core.report_all_hits();
    let cache = &core.cache();
    let health: Vec<Health> = volumes.iter().map(|v| Health::of(cache, v.volume)).collect();
    let latency = core.latency();
    let (config, events, log) =
        (cache.config().clone(), *cache.stats(), cache.log_stats().copied());
    let published = core.published_bytes();
    let (metadata_bytes, dirty_blocks) = (cache.memory_bytes() + published, cache.dirty_blocks());
    let dirty_on_flash_max = cache.dirty_share();
    let given_up = FlashGivenUp::of(cache, volumes);
    let (dram_blocks, unsettled) = (cache.dram_blocks(), cache.unsettled());
    let (devices, in_flight) = (core.device_stats(), core.in_flight() as u64);
    let components = core.device_latencies();
    let uptime_s = shared.clock.now().as_secs_f64();
    drop(core);

    let (write_policy, acknowledge) =
        forebay_setup::policy_words(config.write_policy, config.acknowledge);
    let none = LatencyRecorder::coarse();
    let volume = |(v, health): (&VolumeDescription, &Health)| {
        let latency = latency.get(v.volume.0 as usize).unwrap_or(&none);
        VolumeStatus {
            volume: v.name.clone(),
            size_bytes: v.size_bytes,
            read_only: v.read_only,
            backing_failure: health.failure.map(|error| error.to_string()),
            suspended: health.suspended,
            pass_through: health.passes_through,
            dirty_on_flash_max,
            unreadable_blocks: health.unreadable_blocks,
            workload: workload(&health.stats, latency),
            backing_operations: components.operations(Device::Backing(v.volume)),
        }
    };
    let mut all = LatencyRecorder::coarse();
    latency.iter().for_each(|of_volume| all.add(of_volume));
    let total = VolumeStats { dirty_blocks, ..health.iter().map(|h| &h.stats).sum() };
    Status {
        uptime_s,
        write_policy: write_policy.to_string(),
        acknowledge: acknowledge.to_string(),
        write_policy_failure: unsettled.map(policy_failure),
        flash_failure: given_up.map(|given_up| given_up.to_string()),
        quiesced: None,
        total: workload(&total, &all),
        volumes: volumes.iter().zip(&health).map(volume).collect(),
        tier2_bytes_written: log.as_ref().map_or(0, LogStats::bytes_written),
        tiers: Tiers {
            block_bytes: config.block_size.bytes(),
            dram_blocks,
            metadata_bytes,
            shards: config.shards,
            flash_bytes: config.flash.as_ref().map_or(0, |flash| room(&flash.geometry)),
            flash_regions: log.map_or(0, |l| l.regions_total),
            flash_regions_free: log.map_or(0, |l| l.regions_free),
            flash_write_amplification: log.map_or(0.0, |l| l.write_amplification()),
        },
        flash: log.as_ref().map(FlashResult::from),
        events,
        devices,
        flash_operations: components.operations(Device::Flash),
        component_latency_us: components
            .summary(volumes.iter().map(|v| (v.volume, v.name.as_str()))),
        in_flight,
    }
}

/// Why the configured write policy is not in force.
fn policy_failure(error: PolicyError) -> String {
    format!(
        "dirty data from earlier runs could not be destaged ({error}); the server stays in \
         write-back mode until you set the policy again"
    )
}

/// Bytes of blocks that the flash tier can hold: its cells, or its regions without their header
/// pages. (Headers of batches take space in regions too: one page for each batch.)
fn room(g: &Geometry) -> u64 {
    match u64::from(g.slots) {
        0 => u64::from(g.regions) * u64::from(g.region_pages - 1) * u64::from(g.page_size),
        slots => slots * u64::from(g.block_size),
    }
}

fn workload(s: &VolumeStats, latency: &LatencyRecorder) -> Workload {
    let CacheResult { hits, misses, hit_ratio, backing, dirty_blocks_max, .. } =
        CacheResult::new(s, 0);
    Workload {
        requests: s.requests(),
        reads: s.reads,
        writes: s.writes,
        zeroes: s.zeroes,
        flushes: s.flushes,
        prefetches: s.prefetches,
        errors: s.errors,
        read_bytes: s.read_bytes,
        write_bytes: s.write_bytes,
        hits,
        misses,
        hit_ratio,
        latency_us: latency.summary(),
        answered: Answered {
            read: latency.read.total(),
            write: latency.write.total(),
            all: latency.all().total(),
        },
        backing: Backing {
            traffic: backing,
            zero_bytes: s.backing_zero_bytes,
            syncs: s.backing_syncs,
            errors: s.backing_errors,
        },
        dirty_blocks: s.dirty_blocks,
        dirty_blocks_max,
    }
}
