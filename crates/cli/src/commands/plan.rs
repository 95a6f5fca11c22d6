//! `forebay plan`: which tiers to buy.

use std::path::PathBuf;

use clap::ValueEnum;
use forebay_block::BlockSize;

use crate::args::{TraceArgs, block_size, rate};
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;

/// The write policy to plan for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Writes go to the cache and to the backing store
    WriteThrough,
    /// Writes go to the backing store later
    WriteBack,
}

/// How sizes are searched.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// A few evaluations guided by hit-to-miss ratios
    Cydonia,
    /// Every size
    Exhaustive,
}

/// How one choice is judged.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evaluate {
    /// From the curves and the devices' latencies
    Analytic,
    /// By simulating the cache
    Simulate,
    /// By replaying the trace
    Replay,
}

/// Arguments of `forebay plan`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf' -o zipf.parquet
  $ forebay plan zipf.parquet --budget 10")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// What may be spent on tiers, in dollars
    #[arg(long, value_name = "USD")]
    pub budget: f64,
    /// The catalogue of devices, TOML
    #[arg(long, value_name = "FILE")]
    pub devices: Option<PathBuf>,
    /// The write policy
    #[arg(long, value_enum, default_value = "write-through")]
    pub policy: Policy,
    /// How sizes are searched
    #[arg(long, value_enum, default_value = "exhaustive")]
    pub method: Method,
    /// How one choice is judged
    #[arg(long, value_enum, default_value = "analytic")]
    pub evaluate: Evaluate,
    /// Sample this fraction of the blocks
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub sample: Option<f64>,
    /// Size of a block
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_size)]
    pub block_size: BlockSize,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Plans and prints the choices.
pub fn run(args: Args, _ctx: &Context) -> Result<(), CliError> {
    Err(CliError::failed(format_args!("not available in this build: {args:?}")))
}
