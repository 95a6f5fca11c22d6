//! The command line.

mod canaries;
mod ci;
mod hunt;
mod single;
mod soak;
mod table;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Looks for runs in which the cache breaks a disk's promises, under power cuts, kills, faults and
/// completions in any order.
#[derive(Parser, Debug)]
#[command(version)]
pub struct Arguments {
    /// Number of threads [default: one for each processor].
    #[arg(long, global = true)]
    jobs: Option<usize>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Run every test that a change must pass; the number of runs is fixed.
    Ci,
    /// Run all trials in turn for hours. Ctrl-C ends the soak, and the same command resumes it.
    /// Failing runs are shrunk and kept.
    Soak {
        /// Only these trials, separated by commas: kinds of runs, pairs, management, array.
        #[arg(long)]
        kinds: Option<String>,
        /// Total hours to run, including the time before the soak was resumed.
        #[arg(long, default_value_t = f64::INFINITY)]
        hours: f64,
        /// First seed.
        #[arg(long, default_value_t = 1 << 32)]
        seed: u64,
        /// Directory for the progress and the failing runs.
        #[arg(long, default_value = "target/soak")]
        state: PathBuf,
    },
    /// Run all trials in turn, in small slices, until the first failure.
    Hunt {
        /// Minutes after which the hunt ends if it finds nothing.
        #[arg(long, default_value_t = 10.0)]
        minutes: f64,
        /// Only these trials, separated by commas: kinds of runs, pairs, management, array.
        #[arg(long)]
        kinds: Option<String>,
    },
    /// Run every sequence of two operations, with every order of completion, a power cut after
    /// every completion, and, for each cut, every subset of the writes that were not yet durable.
    Exhaustive {
        /// Run only this case, and print it step by step.
        #[arg(long)]
        case: Option<u64>,
        /// Plant this bug, which must be found.
        #[arg(long)]
        bug: Option<String>,
    },
    /// Format, start, destage and stop, with a failure or a power cut at every device operation in
    /// turn.
    Manage,
    /// Plant one bug after another in the cache; each must be found. Needs a build without
    /// `--release`.
    Canaries {
        /// First seed [default: near the seed that last found the bug].
        #[arg(long)]
        first: Option<u64>,
        /// Maximum number of seeds to try for each bug.
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
        /// Only this bug.
        #[arg(long)]
        bug: Option<String>,
    },
    /// Play one run and print it step by step.
    Seed {
        /// Kind of the run: dram, back, through, ...
        kind: String,
        /// Seed of the run.
        seed: u64,
        /// Look for a shorter run that also fails, and write it to this file.
        #[arg(long)]
        shrink: Option<PathBuf>,
    },
    /// Play a run from a file and print it step by step.
    Replay {
        /// The file.
        tape: PathBuf,
    },
}

/// Runs the command.
pub fn perform(arguments: &Arguments) -> Result<(), String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(processors);
    match &arguments.what {
        What::Ci => ci::ci(jobs),
        What::Soak { kinds, hours, seed, state } => soak::soak(&soak::Soak {
            jobs,
            kinds: kinds.as_deref(),
            hours: *hours,
            first: *seed,
            directory: state,
        }),
        What::Hunt { minutes, kinds } => hunt::hunt(jobs, *minutes, kinds.as_deref()),
        What::Exhaustive { case, bug } => ci::exhaustive(jobs, *case, bug.as_deref()),
        What::Manage => ci::manage(jobs),
        What::Canaries { first, seeds, bug } => {
            canaries::canaries(jobs, *first, *seeds, bug.as_deref())
        }
        What::Seed { kind, seed, shrink } => single::seed(kind, *seed, shrink.as_deref()),
        What::Replay { tape } => single::replay(tape),
    }
}
