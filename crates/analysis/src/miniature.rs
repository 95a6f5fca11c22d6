//! Curves of the configured cache, by miniature simulation: for each requested size, a small cache
//! runs on a sample of the blocks and represents a cache that is larger by the inverse of the
//! sampling rate (Waldspurger et al., *Cache modeling and optimization using miniature
//! simulations*, USENIX ATC 2017).

use std::collections::HashSet;
use std::sync::Arc;

use forebay_block::{BlockSize, Nanos, Op, Request};
use forebay_config::{Config, FlashLayout, Size};
use forebay_locality::{LocalityOptions, Sampling, WorkloadLocality};
use forebay_simulate::{
    Defaults, Options, Pacing, Scenario, SimulateError, Simulation, TracedVolume,
};
use forebay_trace::{Batch, SampleSpec, Sampler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::note::{tell_not_sampled, tell_too_small};
use crate::numbering::Numbering;
use crate::{AnalysisError, Columns, Described, Meter, Note, Observer, Traces, Unit, parallel};

/// Default number of blocks that the sample should have.
const SAMPLED_BLOCKS: f64 = 65_536.0;
/// A memory of fewer blocks gives no reliable result.
pub const BLOCKS_MIN: u64 = 32;
/// Bits of the sampled regions for a cache with a log: 4 KiB shifted left by this. Blocks that are
/// written together share a header in the log; requests cut to single blocks would need twice the
/// room.
const LOG_BITS: u32 = 4;
/// Seed of the miniature's sample. It differs from the seeds that users choose: of a sample taken
/// with the same seed, the miniature would contain all regions.
pub(crate) const SEED: u64 = 0x6d69_6e69;
/// Number of requests between two checks of the stop flag.
pub(crate) const CHECK_PERIOD: usize = 1 << 14;

/// The miss ratios of a configured cache at several sizes.
#[derive(Clone, Debug)]
pub struct Question {
    /// The workload; it is read twice.
    pub traces: Traces,
    /// The cache, with any policies; the sizes below replace its own.
    pub config: Config,
    /// The share of the blocks to sample; `None`: as few as give a reliable result.
    pub sample_rate: Option<f64>,
    /// Memory sizes in bytes; if empty, powers of two.
    pub memory_bytes: Vec<u64>,
    /// Sizes of the flash tier in bytes, each combined with each memory size; if empty, the
    /// configured size.
    pub flash_bytes: Vec<u64>,
}

/// The answer, and its JSON document.
#[derive(Serialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct Answer {
    /// How the curve was measured.
    pub method: &'static str,
    /// The replacement policy for memory.
    pub replacement: &'static str,
    /// The write policy.
    pub write_policy: &'static str,
    /// Size of a block, in bytes.
    pub block_size: u64,
    /// Requests in the traces.
    pub requests: u64,
    /// Block accesses. Write-zeroes requests count as writes; trims do not count.
    pub accesses: u64,
    /// Accesses that are reads.
    pub reads: u64,
    /// Accesses that are writes.
    pub writes: u64,
    /// Number of distinct blocks; an estimate if `sampled_rate` is below 1.
    pub distinct_blocks: u64,
    /// Share of blocks sampled.
    pub sampled_rate: f64,
    /// One point for each pair of sizes. A memory size with too few blocks in miniature has no point; if
    /// flash is too small for its layout in miniature, the point contains only the two sizes.
    pub points: Vec<Point>,
}

/// The results for one pair of sizes.
#[derive(Serialize, Clone, Copy, PartialEq, Debug, JsonSchema)]
pub struct Point {
    /// The sizes.
    #[serde(flatten)]
    pub size: CacheSize,
    /// The ratios; `None` if the miniature cannot be built.
    #[serde(flatten)]
    pub ratios: Option<Ratios>,
}

/// The sizes of a cache.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, JsonSchema)]
pub struct CacheSize {
    /// Size of memory, in blocks.
    pub size_blocks: u64,
    /// Size of memory, in bytes.
    pub size_bytes: u64,
    /// Size of flash, in bytes; null if there is no flash tier.
    pub flash_bytes: Option<u64>,
}

/// The results of such a cache, scaled up to the whole trace.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, JsonSchema)]
pub struct Ratios {
    /// Share of block accesses that miss.
    pub miss_ratio: f64,
    /// Share of reads that miss.
    pub read_miss_ratio: f64,
    /// Share of writes that miss.
    pub write_miss_ratio: f64,
    /// Share of block accesses that hit in memory.
    pub tier1_hit_ratio: f64,
    /// Share of block accesses that hit on flash.
    pub tier2_hit_ratio: f64,
    /// Bytes written to flash, scaled up to the whole trace.
    pub tier2_bytes_written: u64,
    /// Bytes read from the backing stores, scaled up to the whole trace.
    pub backing_read_bytes: u64,
    /// Bytes written to the backing stores, scaled up to the whole trace.
    pub backing_write_bytes: u64,
}

/// A row of `--parquet`.
pub type Row = (CacheSize, Option<Ratios>);

impl Question {
    /// A question with the default sampling rate, powers of two for memory, and the configured
    /// flash tier.
    pub fn new(traces: Traces, config: Config) -> Self {
        let (memory_bytes, flash_bytes) = (Vec::new(), Vec::new());
        Self { traces, config, sample_rate: None, memory_bytes, flash_bytes }
    }

    /// The block size, and the sizes of the flash tier.
    ///
    /// # Errors
    /// If no cache can have the configured block size, flash sizes are given without a configured
    /// flash tier, or the flash tier has no size.
    pub fn check(&self) -> Result<(BlockSize, Vec<Option<u64>>), AnalysisError> {
        let block_size = BlockSize::new(self.config.cache.block_size.bytes())
            .map_err(|error| AnalysisError::BlockSize(error.to_string()))?;
        let sizes = match (&self.config.flash, self.flash_bytes.as_slice()) {
            (None, []) => vec![None],
            (None, _) => return Err(AnalysisError::NoFlashToSize),
            (Some(flash), []) => match flash.size {
                Some(size) => vec![Some(size.bytes())],
                None => return Err(AnalysisError::NoFlashSize),
            },
            (Some(_), sizes) => sizes.iter().copied().map(Some).collect(),
        };
        Ok((block_size, sizes))
    }

    /// Reads the traces twice and simulates every pair of sizes, on all processors.
    ///
    /// # Errors
    /// If no cache can have the configuration or a requested size, the traces cannot be read, the
    /// sample is empty, no size is left, or the observer stops the work.
    pub fn ask(&self, observer: &dyn Observer) -> Result<Answer, AnalysisError> {
        let (block_size, flash_sizes) = self.check()?;
        let mut survey = Survey::new(&self.traces, block_size, observer)?;
        let rate = self.sample_rate.unwrap_or_else(|| {
            let rate = SAMPLED_BLOCKS / survey.blocks as f64;
            if rate < 0.5 { rate } else { 1.0 }
        });
        let memory_sizes = match self.memory_bytes.as_slice() {
            [] => survey.sizes(block_size),
            sizes => sizes.to_vec(),
        };
        let least = ((BLOCKS_MIN as f64 / rate).ceil() as u64).saturating_mul(block_size.bytes());
        let (large, small): (Vec<u64>, Vec<u64>) =
            memory_sizes.into_iter().partition(|&bytes| bytes >= least);
        tell_too_small(small, rate, observer);
        let mut pairs = Vec::new();
        for &dram in &large {
            pairs.extend(flash_sizes.iter().map(|&flash| Sizes { dram, flash }));
        }
        if pairs.is_empty() {
            return Err(AnalysisError::NoSizes { sampled: rate < 1.0 });
        }
        // Regions are of 4 KiB at least; a smaller block is sampled with its neighbours.
        let bits = block_size.shift().saturating_sub(12);
        let flash = self.config.flash.as_ref();
        let is_log = flash.is_some_and(|flash| flash.layout() == FlashLayout::Log);
        let bits = if is_log { bits.max(LOG_BITS) } else { bits };
        let numbering = Numbering::new(&self.config, std::mem::take(&mut survey.volumes));
        let (mut requests, start) = sampled(&self.traces, rate, bits, observer)?;
        let distinct_blocks = match rate < 1.0 {
            true => survey.blocks,
            false => distinct(&requests, block_size),
        };
        requests.iter_mut().for_each(|request| *request = numbering.renumber(*request));
        let miniature = Miniature {
            config: &self.config,
            volumes: &numbering.volumes,
            requests,
            start,
            rate,
            reads: survey.reads,
            writes: survey.writes,
            block_size,
        };
        for (op, accesses) in [(Op::Read, survey.reads), (Op::Write, survey.writes)] {
            tell_not_sampled(op, accesses, !miniature.samples(op), observer);
        }
        let points = miniature.simulate(&pairs, observer)?;
        Ok(Answer {
            method: "miniature simulation",
            replacement: self.config.replacement.policy.name(),
            write_policy: self.config.cache.write_policy.name(),
            block_size: block_size.bytes(),
            requests: survey.requests,
            accesses: survey.reads + survey.writes,
            reads: survey.reads,
            writes: survey.writes,
            distinct_blocks,
            sampled_rate: rate,
            points,
        })
    }
}

impl Answer {
    /// A row for each pair of sizes.
    pub fn rows(&self) -> Columns {
        Columns::from_rows(self.points.iter().map(|point| -> Row { (point.size, point.ratios) }))
    }
}

/// Facts about the traces that the simulation needs beforehand.
struct Survey {
    /// By number, with whether each has requests.
    volumes: Vec<(TracedVolume, bool)>,
    requests: u64,
    /// Block accesses; write-zeroes requests count as writes.
    reads: u64,
    writes: u64,
    /// Estimated number of distinct blocks.
    blocks: u64,
    /// Estimated number of blocks of a cache that has every possible hit.
    reused: u64,
}

impl Survey {
    fn new(
        traces: &Traces,
        block_size: BlockSize,
        observer: &dyn Observer,
    ) -> Result<Self, AnalysisError> {
        let sampling = Sampling::MaxBlocks(16_384);
        let options = LocalityOptions { block_size, sampling, ..LocalityOptions::default() };
        let mut workload = WorkloadLocality::new(options)?;
        let (mut reads, mut writes) = (0, 0);
        let mut ends: Vec<Option<u64>> = Vec::new();
        let traces = traces.read(observer, |request| -> Result<(), AnalysisError> {
            let at = request.volume.0 as usize;
            if ends.len() <= at {
                ends.resize(at + 1, None);
            }
            let end = request.offset.saturating_add(request.length);
            ends[at] = ends[at].max(Some(end));
            if request.length > 0 {
                let blocks = block_size.index_of(end - 1).0 - block_size.index_of(request.offset).0;
                match request.op {
                    Op::Read => reads += blocks + 1,
                    Op::Write | Op::WriteZeroes => writes += blocks + 1,
                    Op::Trim | Op::Flush => {}
                }
            }
            Ok(workload.add(request)?)
        })?;
        if reads + writes == 0 {
            return Err(AnalysisError::NoAccesses);
        }
        let all = workload.finish()?.all.unwrap_or_default();
        Ok(Self {
            volumes: volumes(&traces, &ends),
            requests: traces.requests,
            reads,
            writes,
            blocks: all.distinct_blocks.max(1),
            reused: all.max_distance().map_or(1, |max| max + 1),
        })
    }

    /// Memory sizes in bytes: powers of two from 1 MiB up to the first that has every possible hit.
    fn sizes(&self, block_size: BlockSize) -> Vec<u64> {
        let full = (self.reused * block_size.bytes()).next_power_of_two().max(1 << 20);
        (20..=full.ilog2()).map(|shift| 1 << shift).collect()
    }
}

fn volumes(traces: &Described, ends: &[Option<u64>]) -> Vec<(TracedVolume, bool)> {
    let volumes = traces.metadata.volumes.iter().enumerate();
    volumes
        .map(|(at, volume)| {
            let end = ends.get(at).copied().flatten();
            let bytes = volume.bytes.unwrap_or(0).max(end.unwrap_or(0));
            (TracedVolume { name: volume.name.clone(), bytes }, end.is_some())
        })
        .collect()
}

/// The misses of all `accesses` of one kind, estimated from the `misses` in a sample with this
/// rate.
///
/// Misses are divided by the rate, whatever share of the accesses is in the sample: the accesses
/// that chance adds or leaves out are mostly those of popular blocks, which hit. If no access is in
/// the sample, all count as misses, because none is known to hit.
pub(crate) fn scaled_misses(misses: u64, is_sampled: bool, accesses: u64, rate: f64) -> f64 {
    if is_sampled { misses as f64 / rate } else { accesses as f64 }
}

/// Samples the traces. Returns the requests, cut to the sampled blocks, and the time of the whole
/// trace's first request.
fn sampled(
    traces: &Traces,
    rate: f64,
    bits: u32,
    observer: &dyn Observer,
) -> Result<(Vec<Request>, Nanos), AnalysisError> {
    let sampler = Sampler::new(SampleSpec { rate, bits, seed: SEED, number: 0 })?;
    let (mut requests, mut start) = (Vec::new(), None);
    let mut sample = Batch::default();
    traces.read_batches(observer, |batch, _| -> Result<(), AnalysisError> {
        start = start.or(batch.time_ns.first().copied());
        sample.clear();
        for i in (0..batch.len()).filter(|&i| batch.op[i] != Op::Trim) {
            sampler.sample(&batch.record(i), Nanos(0), &mut sample);
        }
        requests.extend(sample.requests());
        Ok(())
    })?;
    if requests.is_empty() {
        return Err(AnalysisError::EmptySample);
    }
    Ok((requests, Nanos(start.unwrap_or(0))))
}

/// The number of distinct blocks that the requests read or write.
fn distinct(requests: &[Request], block_size: BlockSize) -> u64 {
    let accesses = requests
        .iter()
        .filter(|r| matches!(r.op, Op::Read | Op::Write | Op::WriteZeroes) && r.length > 0);
    let blocks = accesses.flat_map(|r| {
        let last = block_size.index_of(r.offset.saturating_add(r.length) - 1).0;
        (block_size.index_of(r.offset).0..=last).map(|block| (r.volume, block))
    });
    blocks.collect::<HashSet<_>>().len() as u64
}

/// Sizes of the tiers, in bytes.
#[derive(Clone, Copy)]
struct Sizes {
    dram: u64,
    flash: Option<u64>,
}

struct Miniature<'a> {
    config: &'a Config,
    volumes: &'a [TracedVolume],
    requests: Vec<Request>,
    /// The time at which the whole trace begins, from which the intervals of policies are counted.
    start: Nanos,
    rate: f64,
    reads: u64,
    writes: u64,
    block_size: BlockSize,
}

impl Miniature<'_> {
    /// Whether the sample contains any access of this kind.
    fn samples(&self, op: Op) -> bool {
        let kind = |request: &Request| match request.op {
            Op::WriteZeroes => Op::Write,
            op => op,
        };
        self.requests.iter().any(|request| kind(request) == op && request.length > 0)
    }

    /// Simulates every pair of sizes, on all processors.
    fn simulate(
        &self,
        pairs: &[Sizes],
        observer: &dyn Observer,
    ) -> Result<Vec<Point>, AnalysisError> {
        let total = (pairs.len() * self.requests.len()) as u64;
        let meter = observer.begin("simulating", Unit::Count, Some(total));
        parallel::map(pairs, |&sizes| self.point(sizes, &*meter, observer))
    }

    fn point(
        &self,
        sizes: Sizes,
        meter: &dyn Meter,
        observer: &dyn Observer,
    ) -> Result<Point, AnalysisError> {
        let full = self.config_of(sizes, 1.0);
        // A cache that cannot be built in full size is an error, even if its miniature could be
        // built.
        let scenario = |config: &Config| Scenario::new(config, self.volumes, &Defaults::default());
        let named = |error: SimulateError| AnalysisError::NoSuchCache {
            memory_bytes: sizes.dram,
            flash_bytes: sizes.flash,
            error,
        };
        scenario(&full).map_err(named)?;
        let size_blocks = sizes.dram / self.block_size.bytes();
        let size = CacheSize { size_blocks, size_bytes: sizes.dram, flash_bytes: sizes.flash };
        let mut point = Point { size, ratios: None };
        let scaled = match scenario(&self.config_of(sizes, self.rate)) {
            Ok(scaled) => scaled,
            Err(error) => {
                let flash_bytes = sizes.flash.unwrap_or(0);
                observer.note(Note::FlashTooSmall { flash_bytes, reason: error });
                meter.inc(self.requests.len() as u64);
                return Ok(point);
            }
        };
        let how = Options { pacing: Pacing::Untimed, ..Options::default() };
        let mut simulation = Simulation::new(&scaled, &how).map_err(named)?;
        simulation.stop_when(Arc::clone(observer.stop_flag()));
        simulation.advance_to(self.start);
        for requests in self.requests.chunks(CHECK_PERIOD) {
            observer.check()?;
            for request in requests {
                simulation.add(request)?;
            }
            meter.inc(requests.len() as u64);
        }
        let result = simulation.finish()?;
        let cache = result.run.cache.unwrap_or_default();
        let (hits, misses) = (cache.hits, cache.misses);
        let scaled = |misses: u64, op: Op, accesses: u64| {
            scaled_misses(misses, self.samples(op), accesses, self.rate)
        };
        let read_misses = scaled(misses.read, Op::Read, self.reads);
        let write_misses = scaled(misses.write, Op::Write, self.writes);
        let ratio = |part: f64, accesses: u64| match accesses {
            0 => 0.0,
            _ => (part / accesses as f64).min(1.0),
        };
        let all = self.reads + self.writes;
        let miss_ratio = ratio(read_misses + write_misses, all);
        let tier2_hits = hits.tier2.sum() as f64 / self.rate;
        let tier2_hit_ratio = ratio(tier2_hits, all).min(1.0 - miss_ratio);
        let whole = |bytes: u64| (bytes as f64 / self.rate).round() as u64;
        point.ratios = Some(Ratios {
            miss_ratio,
            read_miss_ratio: ratio(read_misses, self.reads),
            write_miss_ratio: ratio(write_misses, self.writes),
            tier1_hit_ratio: 1.0 - miss_ratio - tier2_hit_ratio,
            tier2_hit_ratio,
            tier2_bytes_written: whole(cache.tier2_bytes_written),
            backing_read_bytes: whole(cache.backing.read_bytes),
            backing_write_bytes: whole(cache.backing.write_bytes),
        });
        Ok(point)
    }

    /// The configuration with tiers of these sizes, scaled down by a rate.
    fn config_of(&self, sizes: Sizes, rate: f64) -> Config {
        let block = self.block_size.bytes();
        let scaled = |bytes: u64| ((bytes as f64 * rate / block as f64).round() as u64) * block;
        let mut config = self.config.clone();
        config.cache.dram = Size(scaled(sizes.dram));
        if let Some(flash) = &mut config.flash {
            flash.size = sizes.flash.map(|bytes| Size(scaled(bytes)));
        }
        config
    }
}
