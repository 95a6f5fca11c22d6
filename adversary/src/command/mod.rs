//! What the command line asks for.

mod canaries;
mod ci;
mod hunt;
mod single;
mod soak;
mod table;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Looks for runs in which the cache breaks a disk's promises: power cuts, kills, faults,
/// completions in any order.
#[derive(Parser, Debug)]
#[command(version)]
pub struct Arguments {
    /// Threads; as many as there are processors if not given.
    #[arg(long, global = true)]
    jobs: Option<usize>,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Everything that a change has to pass, bounded by operations.
    Ci,
    /// Play all trials in turn for hours. Ctrl-C ends it, the same command resumes it. Failing runs are
    /// shrunk and kept.
    Soak {
        /// Only these trials: kinds of runs, pairs, management, array; separated by commas.
        #[arg(long)]
        kinds: Option<String>,
        /// Hours, those of earlier calls included.
        #[arg(long, default_value_t = f64::INFINITY)]
        hours: f64,
        /// First seed.
        #[arg(long, default_value_t = 1 << 32)]
        seed: u64,
        /// Where it keeps how far it is, and what it finds.
        #[arg(long, default_value = "target/soak")]
        state: PathBuf,
    },
    /// Everything in turn, in small slices, until the first failure.
    Hunt {
        /// Minutes after which the hunt ends if nothing was found.
        #[arg(long, default_value_t = 10.0)]
        minutes: f64,
        /// Only these trials: kinds of runs, pairs, management, array; separated by commas.
        #[arg(long)]
        kinds: Option<String>,
    },
    /// Every sequence of two operations, every order, every cut, every surviving subset.
    Exhaustive {
        /// Only this case, told line by line.
        #[arg(long)]
        case: Option<u64>,
        /// With this bug, which must be found.
        #[arg(long)]
        bug: Option<String>,
    },
    /// Formatting, starting, destaging and stopping, failed and cut at every device operation.
    Manage,
    /// Gives the cache one bug after another, each of which must be found. Needs a build without
    /// `--release`.
    Canaries {
        /// The seed to begin with. Without it each search begins near the seed that found its bug before.
        #[arg(long)]
        first: Option<u64>,
        /// Seeds to try for each at most.
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
        /// Only this bug.
        #[arg(long)]
        bug: Option<String>,
    },
    /// One run, told line by line.
    Seed {
        /// dram, back, through, ...
        kind: String,
        /// Which.
        seed: u64,
        /// Look for a shorter run that fails as well, and keep it in this file.
        #[arg(long)]
        shrink: Option<PathBuf>,
    },
    /// A run kept in a file, told line by line.
    Replay {
        /// The file.
        tape: PathBuf,
    },
}

/// Does what is asked for.
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
