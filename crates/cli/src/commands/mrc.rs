//! `forebay mrc`: miss-ratio curves.

use clap::ValueEnum;
use forebay_block::BlockSize;
use forebay_config::TimeSpan;

use crate::args::{TraceArgs, block_size, rate};
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;

/// Which distance the curve is made of.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distance {
    /// Traditional reuse distance: all accesses
    Trd,
    /// Useful reuse distance: only what a read-only cache uses
    Urd,
    /// Policy-optimised distance, read-only cache
    PodRo,
    /// Policy-optimised distance, write-back of writes only
    PodWbwo,
    /// Policy-optimised distance, write-back
    PodWb,
    /// Policy-optimised distance, write-through
    PodWt,
}

/// Arguments of `forebay mrc`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf' -o zipf.parquet
  $ forebay mrc zipf.parquet")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// Which reuse distance to use
    #[arg(long, value_enum, default_value = "trd")]
    pub distance: Distance,
    /// Sample this fraction of the blocks (SHARDS)
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with = "max_blocks")]
    pub sample: Option<f64>,
    /// Follow at most N blocks, lowering the rate as needed (fixed-size SHARDS)
    #[arg(long, value_name = "N")]
    pub max_blocks: Option<u64>,
    /// Count a request as a hit only if all its blocks hit
    #[arg(long)]
    pub request_level: bool,
    /// Move data between tiers only every T
    #[arg(long, value_name = "T")]
    pub migration_period: Option<TimeSpan>,
    /// One curve per volume
    #[arg(long)]
    pub per_volume: bool,
    /// Size of a block
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_size)]
    pub block_size: BlockSize,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Computes and prints the curves.
pub fn run(args: Args, _ctx: &Context) -> Result<(), CliError> {
    Err(CliError::failed(format_args!("not available in this build: {args:?}")))
}
