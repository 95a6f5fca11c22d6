//! `forebay representatives`, which the Python package brings.
//!
//! It is listed here so that help, manual pages and completions know it; what it does is in
//! `python/forebay/representatives.py`, and so is the reading of its options.

use std::ffi::OsString;

use crate::error::CliError;
use crate::output::write_stdout;

/// Arguments of `forebay representatives`.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[command(after_help = "Options: --features FILE (a table of features instead of traces), \
--clusters N, --dimensions N, --format NAME, --limit N, --json, -o FILE, --parquet FILE, \
--html FILE. `forebay representatives --help` lists them, where the package is installed; \
docs/python.md says how to install it.

Example:
  $ forebay trace synth zipf:requests=1000 -o a.csv
  $ forebay trace synth sequential:requests=1000 -o b.csv
  $ forebay representatives a.csv b.csv --clusters 2")]
pub struct Args {
    /// Traces of any format, and options
    #[arg(value_name = "TRACE", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Runs the package's program; returns only on failure.
pub fn run(args: &Args) -> Result<(), CliError> {
    let error = super::external::run_python("representatives", &args.words);
    if args.words.iter().any(|word| word == "--help" || word == "-h") {
        // Without the package there is still this page.
        let mut command = super::description();
        let page = command.find_subcommand_mut("representatives").map(|c| c.render_long_help());
        return write_stdout(page.unwrap_or_default().to_string().as_bytes());
    }
    error
}
