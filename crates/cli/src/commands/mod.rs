//! The subcommands, one file each.
//!
//! To add `forebay NAME`: write `commands/NAME.rs` with a clap `Args` struct and
//! `pub fn run(args: Args, ctx: &Context) -> Result<(), CliError>`, then add three lines here:
//! `mod NAME;`, a variant of [`Command`] whose doc comment is the one-line description, and an arm
//! of [`run`]. Add `#[command(after_help = ...)]` with an "Example:" whose lines start with `  $ `
//! and fit a terminal of 80 columns. A test pastes these lines into a shell; `prepared` in
//! `tests/command_line.rs` lists the files that the test prepares.

mod backing;
mod completions;
mod consolidate;
mod ctl;
pub mod documents;
mod external;
mod flash;
mod load;
mod man;
mod mrc;
mod partition;
mod plan;
mod policies;
mod python;
mod ranges;
mod replay;
mod report;
mod sample;
mod serve;
mod simulate;
mod trace;
mod unknown;

use std::ffi::OsString;
use std::io::IsTerminal;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::context::Context;
use crate::error::CliError;
use crate::write_files::write_stdout;

/// Measures block workloads, sizes cache tiers for them, and runs those caches.
#[derive(Parser, Debug)]
#[command(name = "forebay", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// Print only errors: no progress, no notes
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Inspect and convert traces, and generate synthetic ones
    #[command(subcommand, after_help = trace::EXAMPLE)]
    Trace(trace::Command),
    /// Compute miss-ratio curves of a workload
    Mrc(mrc::Args),
    /// Find the cache tiers to buy for a workload and a budget
    Plan(plan::Args),
    /// Divide a cache among volumes: compute how much memory and flash each volume gets
    Partition(Box<partition::Args>),
    /// Check whether several workloads fit in one cache, and show which workloads waste cache space
    Consolidate(consolidate::Args),
    /// Sample a trace: write a smaller trace with similar features and hit ratios
    Sample(sample::Args),
    /// Run a configured cache in virtual time, and show its hits, latencies and traffic
    Simulate(simulate::Args),
    /// Replay a trace against real devices, an NBD export or Forebay's cache
    Replay(Box<replay::Args>),
    /// Send a synthetic workload to real devices, an NBD export or Forebay's cache
    Load(Box<load::Args>),
    /// Run the cache, and serve its volumes over NBD
    Serve(serve::Args),
    /// Combine the results of other commands in one HTML page
    Report(report::Args),
    /// Query and control a running server
    Ctl(ctl::Args),
    /// Inspect, verify or recover a flash tier while the server is stopped
    #[command(subcommand, after_help = flash::EXAMPLE)]
    Flash(flash::Command),
    /// Inspect, recover or release a backing store while the server is stopped
    #[command(subcommand, after_help = backing::EXAMPLE)]
    Backing(backing::Command),
    /// List the replacement policies, with the idea, source and parameters of each
    Policies(policies::Args),
    /// Group traces by their features, and pick one trace from each group (Python package)
    Representatives(python::Representatives),
    /// Run every combination of traces and configurations in a study file (Python package)
    Study(python::Study),
    /// Describe every trace under a directory (Python package)
    Fleet(python::Fleet),
    /// Recommend a second tier, a policy and a block size for a trace (Python package)
    Advise(python::Advise),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Write the manual pages
    Man(man::Args),
    /// Any other command NAME runs the executable `forebay-NAME` on the PATH.
    #[command(external_subcommand)]
    External(Vec<OsString>),
}

/// Runs the command given by the arguments of this process.
pub fn main() -> Result<(), CliError> {
    let cli = parse()?;
    run(cli.command, &Context::new(cli.quiet))
}

/// Parses the command line; prints an error and exits with status 2 if it is invalid.
fn parse() -> Result<Cli, CliError> {
    let parsed = description().try_get_matches().and_then(|found| Cli::from_arg_matches(&found));
    parsed.or_else(|error| match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) => {
            let words = std::env::args_os().skip(1);
            let words = words.map(|word| word.to_string_lossy().into_owned());
            Err(unknown::command(&description(), words.take_while(|word| word != name), name))
        }
        // clap ignores errors when it writes a help page.
        _ if !error.use_stderr() && !std::io::stdout().is_terminal() => {
            write_stdout(error.render().to_string().as_bytes())?;
            std::process::exit(0)
        }
        _ => ranges::explain(error),
    })
}

/// Runs one command.
pub fn run(command: Command, ctx: &Context) -> Result<(), CliError> {
    match command {
        Command::Trace(command) => trace::run(command, ctx),
        Command::Mrc(args) => mrc::run(args, ctx),
        Command::Plan(args) => plan::run(args, ctx),
        Command::Partition(args) => partition::run(*args, ctx),
        Command::Consolidate(args) => consolidate::run(args, ctx),
        Command::Sample(args) => sample::run(args, ctx),
        Command::Simulate(args) => simulate::run(args, ctx),
        Command::Replay(args) => replay::run(*args, ctx),
        Command::Load(args) => load::run(*args, ctx),
        Command::Serve(args) => serve::run(args, ctx),
        Command::Report(args) => report::run(args, ctx),
        Command::Ctl(args) => ctl::run(args, ctx),
        Command::Flash(command) => flash::run(command, ctx),
        Command::Backing(command) => backing::run(command, ctx),
        Command::Policies(args) => policies::run(args, ctx),
        Command::Representatives(args) => args.run(ctx),
        Command::Study(args) => args.run(ctx),
        Command::Fleet(args) => args.run(ctx),
        Command::Advise(args) => args.run(ctx),
        Command::Completions(args) => completions::run(args, ctx),
        Command::Man(args) => man::run(args, ctx),
        Command::External(words) => external::run(&words),
    }
}

/// The whole command line, for completion scripts, manual pages and suggestions.
pub fn description() -> clap::Command {
    with_negative_numbers(Cli::command())
}

/// Lets every option take `-1` as a value, so that the option's own error says which values are
/// valid.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let commands: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command =
        command.mut_args(|arg| match arg.get_action().takes_values() && !arg.is_positional() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        });
    commands
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, with_negative_numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        description().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            command.get_subcommands().for_each(|c| check(c, &path));
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<_> = help.lines().filter(|l| l.starts_with("  $ ")).collect();
            assert!(!examples.is_empty(), "`{path}` has no example in its after_help");
            let wide = examples.iter().find(|l| l.len() > 80);
            assert!(wide.is_none(), "`{path}`: a wrapped example cannot be pasted: {wide:?}");
            let excused = examples.iter().find(|l| l.contains("||"));
            assert!(excused.is_none(), "`{path}`: an example that may fail shows nothing");
        }
        description().get_subcommands().for_each(|c| check(c, "forebay"));
    }
}
