//! `forebay man DIR`.

use std::path::PathBuf;

use crate::context::Context;
use crate::error::CliError;

/// Arguments of `forebay man`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay man man1
  $ test -s man1/forebay-trace-info.1")]
pub struct Args {
    /// Directory for the pages; created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes one page per command, such as `forebay-trace-info.1` for `forebay trace info`.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .map_err(|e| CliError::file("cannot create", directory, e))?;
    let command = super::description().disable_help_subcommand(true);
    clap_mangen::generate_to(command, directory)
        .map_err(|e| CliError::file("cannot write into", directory, e))?;
    ctx.note(format_args!("wrote the manual pages to {}", directory.display()));
    Ok(())
}
