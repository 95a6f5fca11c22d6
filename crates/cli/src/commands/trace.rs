//! `forebay trace`: look into traces, convert them, make synthetic ones.

use std::path::PathBuf;

use forebay_block::BlockSize;

use crate::args::{TraceArgs, block_size};
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;

/// What to do with traces.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// What is in a trace: requests, bytes, footprint, features
    Info(InfoArgs),
    /// Write a trace in Forebay's own format, or back to CSV, oracleGeneral, fio iolog
    Convert(ConvertArgs),
    /// Make a synthetic workload
    Synth(SynthArgs),
}

/// Arguments of `forebay trace info`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf' -o zipf.parquet
  $ forebay trace info zipf.parquet")]
pub struct InfoArgs {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// Size of a block in the footprint and features
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_size)]
    pub block_size: BlockSize,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `forebay trace convert`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf' -o zipf.parquet
  $ forebay trace convert zipf.parquet -o zipf.csv")]
pub struct ConvertArgs {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// The file to write; its extension says the format unless --to does
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The format to write
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,
    /// Print one JSON document about what was written
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `forebay trace synth`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf' -o zipf.parquet")]
pub struct SynthArgs {
    /// The workload, or a file that describes it
    #[arg(value_name = "SPEC")]
    pub spec: String,
    /// The trace to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Print one JSON document about what was written
    #[arg(long)]
    pub json: bool,
}

/// Runs one of them.
pub fn run(command: Command, _ctx: &Context) -> Result<(), CliError> {
    Err(CliError::failed(format_args!("not available in this build: {command:?}")))
}
