//! `forebay report`: combines the `--json` documents of other commands in one page.

use std::path::PathBuf;

use forebay_render::overview::{self, OverviewError};

use crate::context::Context;
use crate::error::CliError;

/// Arguments of `forebay report`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf:blocks=20k,requests=200k' -o zipf.parquet
  $ forebay mrc zipf.parquet --json -o mrc.json
  $ forebay plan zipf.parquet --budget 50% --backing SlowHDD --json -o plan.json
  $ forebay report mrc.json plan.json -o report.html")]
pub struct Args {
    /// JSON documents printed by `trace info`, `mrc`, `plan`, `partition`, `consolidate`, `sample`,
    /// `representatives`, `simulate`, `replay`, `load` and `ctl status`. Charts show LABEL, or the
    /// file name if you omit LABEL
    #[arg(value_name = "[LABEL=]FILE", required = true)]
    pub documents: Vec<String>,
    /// The HTML page to write
    #[arg(short, long, value_name = "X.html")]
    pub output: PathBuf,
    /// Heading of the page
    #[arg(long, value_name = "TEXT", default_value = "Forebay report")]
    pub title: String,
}

/// Reads the documents and writes the page.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    let file = |argument: &String| {
        PathBuf::from(argument.split_once('=').map_or(argument.as_str(), |a| a.1))
    };
    let read: Vec<PathBuf> = args.documents.iter().map(file).collect();
    crate::check_files::check_files([&args.output], &read)?;
    let report = overview::page(&args.documents, args.title).map_err(told)?;
    report.write_html(&args.output)?;
    ctx.note(format_args!("wrote {}", args.output.display()));
    Ok(())
}

/// The failure for an error, with advice.
fn told(error: OverviewError) -> CliError {
    match error {
        OverviewError::Read { path, error } => CliError::file("cannot read", &path, error),
        OverviewError::NotJson { .. } => {
            CliError::usage(error).next("use a file that a command wrote with --json -o FILE")
        }
        OverviewError::Incomplete { .. } => {
            CliError::usage(error).next("rerun the command with --json and this version of Forebay")
        }
        error => CliError::usage(error).next(
            "use a document that trace info, mrc, plan, partition, consolidate, sample, \
             representatives, simulate, replay, load or ctl status wrote with --json",
        ),
    }
}
