//! Arguments of `forebay mrc`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use forebay_analysis::AnalysisError;
use forebay_analysis::curve::policies::Contender;
use forebay_analysis::curve::{self as analysis, SAMPLED_BLOCKS_MIN};
use forebay_block::BlockSize;
use forebay_config::{Size, TimeSpan};
use forebay_locality::{LocalityOptions, Sampling, Scope};
use serde::{Deserialize, Serialize};

use crate::args::{TraceArgs, block_size, rate};
use crate::error::CliError;
use crate::output::OutputArgs;

/// Which reuse distance the curve is made of.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distance {
    /// Traditional reuse distance: reads and writes can hit, as in an LRU cache that allocates on
    /// both
    Trd,
    /// Useful reuse distance: only reads can hit; the previous access can be a read or a write
    Urd,
    /// Policy-optimised distance for a read-only cache: writes invalidate blocks
    PodRo,
    /// Policy-optimised distance for a write-back cache in which only writes allocate blocks
    PodWbwo,
    /// Policy-optimised distance for a write-back cache (the same as urd)
    PodWb,
    /// Policy-optimised distance for a write-through cache that allocates on writes (the same as
    /// urd)
    PodWt,
    /// Exact distance for an LRU cache that allocates on reads only; writes invalidate blocks
    LruRo,
    /// Exact distance for an LRU cache that allocates on writes only; reads can hit
    LruWbwo,
}

impl From<Distance> for forebay_locality::Distance {
    fn from(distance: Distance) -> Self {
        match distance {
            Distance::Trd => Self::Trd,
            Distance::Urd => Self::Urd,
            Distance::PodRo => Self::PodReadOnly,
            Distance::PodWbwo => Self::PodWriteOnly,
            Distance::PodWb => Self::PodWriteBack,
            Distance::PodWt => Self::PodWriteThrough,
            Distance::LruRo => Self::LruReadOnly,
            Distance::LruWbwo => Self::LruWriteOnly,
        }
    }
}

/// What a cache finds its blocks by.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// By address, as in an ordinary cache
    Sector,
    /// By content, as in a content-addressed cache, which stores identical blocks only once
    Content,
}

/// Arguments of `forebay mrc`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf' -o zipf.parquet
  $ forebay mrc zipf.parquet
  $ forebay mrc zipf.parquet --policy lru,arc,s3-fifo,opt --html policies.html")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// Which reuse distance to use
    #[arg(long, value_enum, default_value = "trd")]
    pub distance: Distance,
    /// How the cache looks up blocks; `content` needs a trace with content hashes
    #[arg(long, value_enum, default_value = "sector")]
    pub key: Key,
    /// Sample this fraction of the blocks, such as 0.05 or 5% (SHARDS)
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "max_blocks")]
    pub sample: Option<f64>,
    /// Sample at most N blocks (256 or more), lowering the rate as needed (fixed-size SHARDS)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(256..))]
    pub max_blocks: Option<u64>,
    /// Estimate the error of the curve: divide the blocks (or the sampled blocks) into N slices,
    /// and measure each slice. This uses all processors; with only two processors, it takes longer
    /// than computing the exact curve
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "16",
          value_parser = clap::value_parser!(u64).range(2..=256))]
    pub slices: Option<u64>,
    /// With --slices N: measure only slice K (1 to N), and print its counts for --merge. Each run
    /// then needs memory for only one slice
    #[arg(long, value_name = "K", requires = "slices",
          value_parser = clap::value_parser!(u64).range(1..),
          conflicts_with_all = ["sample", "max_blocks", "points", "at", "parquet", "html"])]
    pub slice: Option<u64>,
    /// Compute a curve from the slices of a trace; TRACE... are then the files written with --slice
    #[arg(long, conflicts_with_all = [
        "distance", "key", "sample", "max_blocks", "slices", "request_level", "migration_period",
        "per_volume", "policies", "config", "block_size", "format", "volumes", "limit",
        "skip_bad_lines", "follow_gaps",
    ])]
    pub merge: bool,
    /// Count requests instead of blocks: a request hits only if all its blocks hit
    #[arg(long)]
    pub request_level: bool,
    /// Move accessed blocks into the cache once every T, instead of at each access
    #[arg(long, value_name = "T")]
    pub migration_period: Option<TimeSpan>,
    /// Also compute a curve for each volume alone
    #[arg(long)]
    pub per_volume: bool,
    /// Run each of these replacement policies and print its curve. `forebay policies` lists their
    /// names; `opt` is the best possible policy (Belady). With --sample, the simulated caches are
    /// scaled down by the sampling rate
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = Contender::from_str, conflicts_with_all = [
        "distance", "key", "max_blocks", "slices", "request_level", "migration_period", "per_volume",
    ])]
    pub policies: Vec<Contender>,
    /// Simulate a scaled-down version of the cache that this file configures, and print its curve;
    /// --at sets the memory sizes [default: powers of two]
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "distance", "key", "max_blocks", "slices", "request_level", "migration_period",
        "per_volume", "block_size", "points", "policies",
    ])]
    pub config: Option<PathBuf>,
    /// With --config: sizes of the flash tier, each combined with every memory size
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', requires = "config")]
    pub flash: Vec<Size>,
    /// Block size
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_size)]
    pub block_size: BlockSize,
    /// Maximum number of points per curve; without --policy, a curve with fewer steps has one point
    /// per step [default: 200, or 21 with --policy]
    #[arg(long, value_name = "N", value_parser = points)]
    pub points: Option<usize>,
    /// Add points at these cache sizes (rounded down to whole blocks)
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub at: Vec<Size>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Parses the maximum number of points of a curve.
fn points(text: &str) -> Result<usize, String> {
    let points = text.parse().ok().filter(|points| *points >= 2);
    points.ok_or_else(|| "use 2 or more: a curve has at least two points".to_owned())
}

impl Args {
    /// Refuses cache sizes that are smaller than a block, such as a number without its unit.
    pub fn check_sizes(&self) -> Result<(), CliError> {
        let block = Size(self.block_size.bytes());
        match self.at.iter().find(|size| size.bytes() < block.bytes()) {
            Some(size) => {
                let what = format!("--at {size} is smaller than one block ({block})");
                let error = CliError::usage(what).kept("nothing was read");
                Err(error.next("use sizes of at least one block, with units, such as 64MiB"))
            }
            None => Ok(()),
        }
    }

    /// The sizes given with --at, in blocks.
    pub fn at(&self) -> Vec<u64> {
        self.at.iter().map(|size| size.bytes() >> self.block_size.shift()).collect()
    }

    /// Maximum number of points of a curve of reuse distances.
    pub fn points(&self) -> usize {
        self.points.unwrap_or(analysis::POINTS)
    }

    /// What to measure.
    pub fn options(&self) -> Result<LocalityOptions, CliError> {
        let by_request = self.request_level || self.migration_period.is_some();
        if by_request && (self.sample.is_some() || self.max_blocks.is_some()) {
            let what = "--request-level and --migration-period need all blocks, not a sample";
            return Err(CliError::usage(what).next("omit --sample and --max-blocks"));
        }
        let sampled = self.sample.is_some() || self.max_blocks.is_some() || self.slices.is_some();
        if self.key == Key::Content && (by_request || sampled) {
            let what = "--key content needs all blocks, and counts individual blocks rather than \
                        requests";
            let next = "omit --sample, --max-blocks, --slices, --request-level and \
                        --migration-period";
            return Err(CliError::usage(what).next(next));
        }
        let keeps_all = matches!(
            self.distance,
            Distance::Trd | Distance::Urd | Distance::PodWb | Distance::PodWt
        );
        if self.key == Key::Content && !keeps_all {
            let what = "--key content models only caches that admit every accessed block";
            return Err(CliError::usage(what).next("use --distance trd or urd"));
        }
        if self.slices.is_some() && (by_request || self.per_volume) {
            let what = "--slices counts blocks, not requests, for all volumes together";
            let next = "omit --request-level, --migration-period and --per-volume";
            return Err(CliError::usage(what).next(next));
        }
        if let (Some(blocks), Some(slices)) = (self.max_blocks, self.slices)
            && blocks / slices.max(1) < SAMPLED_BLOCKS_MIN
        {
            let what = format_args!(
                "--max-blocks {blocks} allows fewer than {SAMPLED_BLOCKS_MIN} blocks for each of \
                 {slices} slices"
            );
            let least = SAMPLED_BLOCKS_MIN * slices;
            return Err(CliError::usage(what).next(format_args!("use {least} or more")));
        }
        if self.migration_period.is_some_and(|period| period.nanos().0 == 0) {
            return Err(CliError::usage("--migration-period must be greater than 0"));
        }
        Ok(LocalityOptions {
            block_size: self.block_size,
            distance: self.distance.into(),
            sampling: match (self.sample, self.max_blocks) {
                (Some(rate), _) => Sampling::Rate(rate),
                (None, Some(blocks)) => Sampling::MaxBlocks(blocks),
                (None, None) => Sampling::All,
            },
            scope: if self.per_volume { Scope::Both } else { Scope::Together },
            request_level: self.request_level,
            migration_period: self.migration_period.map(TimeSpan::nanos),
        })
    }

    /// Adds advice to an error: if the traces have no accesses, --limit or --volumes may be too
    /// narrow.
    pub fn refused(&self, error: AnalysisError) -> CliError {
        let narrow = self.traces.limit.is_some() || !self.traces.volumes.is_empty();
        let nothing = matches!(error, AnalysisError::NoAccesses);
        let error = CliError::from(error);
        if nothing && narrow {
            error.next("raise --limit, or select more volumes with --volumes")
        } else {
            error
        }
    }
}
