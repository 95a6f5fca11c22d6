//! `forebay trace`: inspects, converts and generates traces.

mod convert;
mod info;
mod synth;
mod written;

pub(super) use written::WroteTrace;

use crate::context::Context;
use crate::error::CliError;

pub(super) const EXAMPLE: &str = "Example:
  $ forebay trace synth zipf:blocks=10000,requests=100000 -o zipf.parquet
  $ forebay trace info zipf.parquet
  $ forebay trace convert zipf.parquet -o zipf.csv";

/// What to do with traces.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Show what a trace contains: requests, bytes, footprint, features
    Info(info::Args),
    /// Convert a trace to Forebay's own format, or to CSV, oracleGeneral or fio iolog
    Convert(convert::Args),
    /// Generate a synthetic trace
    Synth(synth::Args),
}

/// Runs the subcommand.
pub fn run(command: Command, ctx: &Context) -> Result<(), CliError> {
    match command {
        Command::Info(args) => info::run(args, ctx),
        Command::Convert(args) => convert::run(args, ctx),
        Command::Synth(args) => synth::run(args, ctx),
    }
}
