//! `forebay completions SHELL`.

use clap_complete::Shell;

use crate::context::Context;
use crate::error::CliError;
use crate::write_files::write_stdout;

/// Arguments of `forebay completions`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay completions bash > forebay.bash
  $ . ./forebay.bash")]
pub struct Args {
    /// The shell to print the script for
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completion script.
pub fn run(args: Args, _ctx: &Context) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::description(), "forebay", &mut script);
    write_stdout(&script)
}
