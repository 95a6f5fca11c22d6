//! Curves of the cache itself, by miniature simulation: a small cache of every size asked for runs on a
//! sample of the blocks, and stands for one as many times larger (Waldspurger et al., *Cache modeling and
//! optimization using miniature simulations*, USENIX ATC 2017).

mod show;

use forebay_analysis::{Described, Meter, Observer, Unit, parallel};
use forebay_block::{BlockSize, Nanos, Op, Request};
use forebay_config::{Config, FlashLayout, Size};
use forebay_locality::{LocalityOptions, Sampling, WorkloadLocality};
use forebay_simulate::{
    Defaults, Options, Pacing, Scenario, SimulateError, Simulation, TracedVolume,
};
use forebay_trace::{Batch, SampleSpec, Sampler};
use serde::Serialize;
use std::sync::Arc;

use super::Args;
use crate::args::load_config;
use crate::context::Context;
use crate::error::CliError;
use crate::format::{count, percent};
use crate::progress::Progress;
use crate::reading::{read_trace_batches, read_traces};
use crate::rows::write_parquet;

/// Without `--sample`, so many blocks are to be in the sample.
const SAMPLED_BLOCKS: f64 = 65_536.0;
/// A memory of fewer blocks says nothing.
pub const BLOCKS_MIN: u64 = 32;
/// Regions of a sample for a cache with a log are 4 KiB shifted by this. Blocks that are written together
/// share a header in the log, and requests cut to single blocks would need twice the room.
const LOG_BITS: u32 = 4;
/// Another one than samples have that users take: of such a sample, all regions would be in the miniature.
pub const SEED: u64 = 0x6d69_6e69;
/// How often a simulation looks whether it is to stop, in requests.
pub const CHECK_PERIOD: usize = 1 << 14;

/// Computes and prints the curve, or the surface.
pub fn run(args: &Args, config: &std::path::Path, ctx: &Context) -> Result<(), CliError> {
    args.traces
        .check_rereadable("; a miniature reads it twice, the first time to choose the sample")?;
    let loaded = load_config(config)?;
    let block_size = BlockSize::new(loaded.cache.block_size.bytes())
        .map_err(|error| CliError::usage(error).next("change cache.block_size"))?;
    if !args.flash.is_empty() && loaded.flash.is_none() {
        let what = "--flash gives sizes of a flash tier, and the configuration has none";
        return Err(CliError::usage(what).next("add a [flash] section"));
    }
    let flash_sizes = match (&loaded.flash, args.flash.as_slice()) {
        (None, _) => vec![None],
        (Some(flash), []) => match flash.size {
            Some(size) => vec![Some(size.bytes())],
            None => {
                let what = "the configuration gives the flash tier no size";
                return Err(CliError::usage(what).next("give sizes with --flash"));
            }
        },
        (Some(_), sizes) => sizes.iter().map(|size| Some(size.bytes())).collect(),
    };
    let survey = Survey::new(args, block_size, ctx)?;
    let rate = args.sample.unwrap_or_else(|| match SAMPLED_BLOCKS / survey.blocks as f64 {
        rate if rate < 0.5 => rate,
        _ => 1.0,
    });
    let memory_sizes = match args.at.as_slice() {
        [] => survey.sizes(block_size),
        sizes => sizes.iter().map(|size| size.bytes()).collect(),
    };
    let least = ((BLOCKS_MIN as f64 / rate).ceil() as u64).saturating_mul(block_size.bytes());
    let (large, small): (Vec<u64>, Vec<u64>) =
        memory_sizes.into_iter().partition(|&bytes| bytes >= least);
    tell_too_small(&small, rate, ctx);
    let mut pairs = Vec::new();
    for &dram in &large {
        pairs.extend(flash_sizes.iter().map(|&flash| Sizes { dram, flash }));
    }
    if pairs.is_empty() {
        let error = CliError::failed("no size is left to simulate");
        return Err(error.next(match rate {
            1.0 => "give larger ones with --at",
            _ => "give larger ones with --at, or a higher --sample",
        }));
    }
    // Regions are of 4 KiB at least; a smaller block is sampled with its neighbours.
    let bits = block_size.shift().saturating_sub(12);
    let is_log = loaded.flash.as_ref().is_some_and(|flash| flash.layout == FlashLayout::Log);
    let bits = if is_log { bits.max(LOG_BITS) } else { bits };
    let requests = sampled(args, rate, bits, ctx)?;
    let miniature = Miniature {
        config: loaded,
        volumes: survey.volumes.clone(),
        requests,
        rate,
        reads: survey.reads,
        writes: survey.writes,
        block_size,
    };
    let points = miniature.simulate(&pairs, ctx)?;
    let answer = Answer {
        config: config.display().to_string(),
        method: "miniature simulation",
        replacement: miniature.config.replacement.policy.name(),
        write_policy: miniature.config.cache.write_policy.name(),
        block_size: block_size.bytes(),
        requests: survey.requests,
        accesses: survey.reads + survey.writes,
        reads: survey.reads,
        writes: survey.writes,
        distinct_blocks: survey.blocks,
        sampled_rate: rate,
        points,
    };
    if let Some(path) = &args.output.parquet {
        write_parquet(path, &show::rows(&answer))?;
    }
    if let Some(path) = &args.output.html {
        show::report(&answer, args).write_html(path)?;
    }
    args.output.emit(&answer, |out| show::print(&answer, out))
}

/// Says which sizes of memory have too few blocks in the sample.
pub fn tell_too_small(bytes: &[u64], rate: f64, ctx: &Context) {
    if bytes.is_empty() {
        return;
    }
    let names: Vec<String> = bytes.iter().map(|&bytes| Size(bytes).to_string()).collect();
    let why = match rate {
        1.0 => format!("fewer than {BLOCKS_MIN} blocks"),
        _ => format!(
            "{} of it is fewer than {BLOCKS_MIN} blocks; --sample 1 looks at all",
            percent(rate)
        ),
    };
    ctx.note(format_args!("left out {}: {why}", names.join(", ")));
}

/// What has to be known of the trace first.
struct Survey {
    volumes: Vec<TracedVolume>,
    requests: u64,
    /// Block accesses, zeroings counted as writes.
    reads: u64,
    writes: u64,
    /// Distinct blocks, estimated from a sample.
    blocks: u64,
    /// The blocks in which every reuse fits, estimated.
    reused: u64,
}

impl Survey {
    fn new(args: &Args, block_size: BlockSize, ctx: &Context) -> Result<Self, CliError> {
        let sampling = Sampling::MaxBlocks(16_384);
        let options = LocalityOptions { block_size, sampling, ..LocalityOptions::default() };
        let mut workload = WorkloadLocality::new(options)?;
        let (mut reads, mut writes) = (0, 0);
        let mut ends: Vec<u64> = Vec::new();
        let traces = read_traces(&args.traces, ctx, |request| {
            let at = request.volume.0 as usize;
            if ends.len() <= at {
                ends.resize(at + 1, 0);
            }
            let end = request.offset.saturating_add(request.length);
            ends[at] = ends[at].max(end);
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
            return Err(CliError::failed("there is not one read or write to measure"));
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

    /// Powers of two, up to the first that holds every reuse.
    fn sizes(&self, block_size: BlockSize) -> Vec<u64> {
        let full = (self.reused * block_size.bytes()).next_power_of_two().max(1 << 20);
        (20..=full.ilog2()).map(|shift| 1 << shift).collect()
    }
}

fn volumes(traces: &Described, ends: &[u64]) -> Vec<TracedVolume> {
    let volumes = traces.metadata.volumes.iter().enumerate();
    volumes
        .map(|(at, volume)| TracedVolume {
            name: volume.name.clone(),
            bytes: volume.bytes.unwrap_or(0).max(ends.get(at).copied().unwrap_or(0)),
        })
        .collect()
}

/// The sample: requests cut to the blocks that are in it.
fn sampled(args: &Args, rate: f64, bits: u32, ctx: &Context) -> Result<Vec<Request>, CliError> {
    let sampler = Sampler::new(SampleSpec { rate, bits, seed: SEED, number: 0 })?;
    let mut requests = Vec::new();
    let mut sample = Batch::default();
    read_trace_batches(&args.traces, ctx, |batch| {
        sample.clear();
        for i in (0..batch.len()).filter(|&i| batch.op[i] != Op::Trim) {
            sampler.sample(&batch.record(i), Nanos(0), &mut sample);
        }
        requests.extend(sample.requests());
        Ok(())
    })?;
    if requests.is_empty() {
        let error = CliError::failed("no block is in the sample");
        return Err(error.next("raise --sample"));
    }
    Ok(requests)
}

/// Sizes of the tiers, in bytes.
#[derive(Clone, Copy)]
struct Sizes {
    dram: u64,
    flash: Option<u64>,
}

struct Miniature {
    config: Config,
    volumes: Vec<TracedVolume>,
    requests: Vec<Request>,
    rate: f64,
    reads: u64,
    writes: u64,
    block_size: BlockSize,
}

impl Miniature {
    /// Every pair of sizes, on all processors.
    fn simulate(&self, pairs: &[Sizes], ctx: &Context) -> Result<Vec<Point>, CliError> {
        let total = (pairs.len() * self.requests.len()) as u64;
        let progress = ctx.progress("simulating", Unit::Count, Some(total));
        let points = parallel::map(pairs, |&sizes| self.point(sizes, &progress, ctx));
        progress.finish();
        points
    }

    fn point(&self, sizes: Sizes, progress: &Progress, ctx: &Context) -> Result<Point, CliError> {
        let full = self.config_of(sizes, 1.0);
        // A cache that cannot be built is an error, however small its miniature.
        let scenario = |config: &Config| Scenario::new(config, &self.volumes, &Defaults::default());
        let named = |error: SimulateError| {
            let flash = sizes.flash.map_or(String::new(), |size| format!(" and {}", Size(size)));
            CliError::usage(format!("a cache of {}{flash}: {error}", Size(sizes.dram)))
        };
        scenario(&full).map_err(named)?;
        let mut point = Point {
            size_blocks: sizes.dram / self.block_size.bytes(),
            size_bytes: sizes.dram,
            flash_bytes: sizes.flash,
            ratios: None,
        };
        let scaled = match scenario(&self.config_of(sizes, self.rate)) {
            Ok(scaled) => scaled,
            Err(error) => {
                let flash = Size(sizes.flash.unwrap_or(0));
                ctx.note(format_args!("{flash} of flash is too small in miniature: {error}"));
                progress.inc(self.requests.len() as u64);
                return Ok(point);
            }
        };
        let how = Options { pacing: Pacing::Untimed, ..Options::default() };
        let mut simulation = Simulation::new(&scaled, &how).map_err(named)?;
        simulation.stop_when(Arc::clone(ctx.stop_flag()));
        for requests in self.requests.chunks(CHECK_PERIOD) {
            ctx.check()?;
            for request in requests {
                simulation.add(request)?;
            }
            progress.inc(requests.len() as u64);
        }
        let result = simulation.finish()?;
        let cache = result.run.cache.unwrap_or_default();
        let (hits, misses) = (cache.hits, cache.misses);
        // Misses of the sample by the accesses that a sample of this rate should have: what chance has put
        // in or left out are popular blocks, which hit.
        let expected = |accesses: u64| accesses as f64 * self.rate;
        let ratio = |part: u64, accesses: u64| match accesses {
            0 => 0.0,
            _ => (part as f64 / expected(accesses)).min(1.0),
        };
        let all = self.reads + self.writes;
        let tier2 = hits.tier2.sum();
        let miss_ratio = ratio(misses.sum(), all);
        let tier2_hit_ratio = ratio(tier2, all).min(1.0 - miss_ratio);
        let whole = |bytes: u64| (bytes as f64 / self.rate).round() as u64;
        point.ratios = Some(Ratios {
            miss_ratio,
            read_miss_ratio: ratio(misses.read, self.reads),
            write_miss_ratio: ratio(misses.write, self.writes),
            tier1_hit_ratio: 1.0 - miss_ratio - tier2_hit_ratio,
            tier2_hit_ratio,
            tier2_bytes_written: whole(cache.tier2_bytes_written),
            backing_read_bytes: whole(cache.backing.read_bytes),
            backing_write_bytes: whole(cache.backing.write_bytes),
        });
        Ok(point)
    }

    /// The configuration with tiers of these sizes, at a rate.
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

/// The document.
#[derive(Serialize)]
struct Answer {
    /// The file.
    config: String,
    method: &'static str,
    replacement: &'static str,
    write_policy: &'static str,
    block_size: u64,
    requests: u64,
    accesses: u64,
    reads: u64,
    writes: u64,
    /// Estimated.
    distinct_blocks: u64,
    sampled_rate: f64,
    points: Vec<Point>,
}

#[derive(Serialize)]
struct Point {
    /// Of memory.
    size_blocks: u64,
    size_bytes: u64,
    flash_bytes: Option<u64>,
    /// None if there is no miniature of it.
    #[serde(flatten)]
    ratios: Option<Ratios>,
}

/// Shares of block accesses, and bytes in the whole trace.
#[derive(Serialize, Clone, Copy)]
struct Ratios {
    miss_ratio: f64,
    read_miss_ratio: f64,
    write_miss_ratio: f64,
    tier1_hit_ratio: f64,
    tier2_hit_ratio: f64,
    tier2_bytes_written: u64,
    backing_read_bytes: u64,
    backing_write_bytes: u64,
}

impl Answer {
    fn facts(&self) -> Vec<(String, String)> {
        let facts = [
            ("requests", count(self.requests)),
            ("block accesses", count(self.accesses)),
            ("of these writes", percent(self.writes as f64 / self.accesses as f64)),
            ("distinct data", format!("about {}", Size(self.distinct_blocks * self.block_size))),
            ("cache", self.config.clone()),
            ("write policy", self.write_policy.to_owned()),
            ("replacement", self.replacement.to_owned()),
            ("block size", Size(self.block_size).to_string()),
            ("simulated with", format!("{} of the blocks", percent(self.sampled_rate))),
        ];
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
