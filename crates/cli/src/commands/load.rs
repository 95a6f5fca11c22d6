//! `forebay load`: sends a synthetic workload to real devices.

use std::path::PathBuf;

use forebay_analysis::Unit;
use forebay_config::TimeSpan;
use forebay_render::run::Echo;
use forebay_replay::{Feed, Length, Pace, RunOptions, Workload, at_rate};
use forebay_trace::{Spec, TraceError};

use super::replay::answer::Answer;
use super::replay::target::{Opened, TargetArgs};
use crate::args::interval;
use crate::context::Context;
use crate::error::CliError;
use crate::notes;
use crate::output::OutputArgs;

/// Maximum number of requests to hash for the workload's identity.
const HASHED_MAX: u64 = 1_000_000;

/// Arguments of `forebay load`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
SPEC has the same form as for `forebay trace synth`: a TOML file, or a line such as \
zipf:blocks=64Ki,write=0.3. Without --rate or --open-loop, each job keeps --queue-depth requests \
in flight and ignores the arrival times in SPEC.

Example:
  $ forebay load zipf:blocks=4Ki --target d.img --create 16MiB --requests 20k")]
pub struct Args {
    /// The workload, or the path of a TOML file that describes it
    #[arg(value_name = "SPEC")]
    pub spec: String,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Open loop: send N requests per second; they are evenly spaced, unless SPEC asks for random
    /// times
    #[arg(long, value_name = "N", value_parser = number, help_heading = "Pace")]
    pub rate: Option<u64>,
    /// Open loop: send requests at the times that SPEC sets
    #[arg(long, conflicts_with_all = ["rate", "quiesce"], help_heading = "Pace")]
    pub open_loop: bool,
    /// Maximum number of requests in flight per job [default: 256 with --rate or --open-loop,
    /// otherwise 16]
    #[arg(long, value_name = "N", help_heading = "Pace")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub queue_depth: Option<u32>,
    /// Number of parallel jobs; each job has its own queue and, for NBD, its own connections. With
    /// --target FILE, one queue holds the requests of all jobs. A job sends its next request when
    /// an earlier one completes, so --jobs cannot be combined with --rate or --open-loop
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Pace")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    #[arg(conflicts_with_all = ["rate", "open_loop", "verify", "quiesce"])]
    pub jobs: u32,
    /// Stop after this time; until then, SPEC is repeated
    #[arg(long, value_name = "T", help_heading = "Length")]
    pub duration: Option<TimeSpan>,
    /// Stop after N requests; until then, SPEC is repeated
    #[arg(long, value_name = "N", value_parser = number, help_heading = "Length")]
    pub requests: Option<u64>,
    /// Time per row of --intervals and per point of --html [default: 100ms, or longer in long runs]
    #[arg(long, value_name = "T", value_parser = interval, help_heading = "Output")]
    pub interval: Option<TimeSpan>,
    /// Write a row for each interval to FILE as Parquet (--parquet writes one row for the whole
    /// run)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub intervals: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Runs the workload.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    args.target.check()?;
    let mut read = args.target.files()?;
    // SPEC may be an inline description instead of a file name; then no such file exists.
    read.push(PathBuf::from(&args.spec));
    args.output.check_with(&args.intervals, &read)?;
    let open_loop = args.rate.is_some() || args.open_loop;
    let usual = if open_loop { 256 } else { 16 };
    let depth = if args.target.quiesce { 1 } else { args.queue_depth.unwrap_or(usual) };
    let mut spec = Spec::parse(&args.spec).map_err(bad_spec)?;
    notes::repeated_keys(&spec).for_each(|note| ctx.note(note));
    if let Some(rate) = args.rate {
        at_rate(&mut spec, rate);
    }
    let length = match (args.requests, args.duration) {
        (Some(requests), _) => Length::Requests(requests),
        (None, Some(_)) => Length::Endless,
        (None, None) => Length::AsDescribed,
    };
    let workload = Workload::new(&spec, length).map_err(bad_spec)?;
    let survey = workload.survey(HASHED_MAX).map_err(bad_spec)?;
    let identity = survey.identity(args.spec.clone());
    let mut opened = Opened::open(&args.target, &survey, (depth, args.jobs), ctx)?;
    let placement = opened.placement(&survey)?;
    let pace = if open_loop { Pace::Timed { rate: 1.0 } } else { Pace::AsFastAsPossible };
    let echo = Echo {
        command: "load",
        rate: open_loop.then_some(1.0),
        as_fast_as_possible: !open_loop,
        queue_depth: depth,
        jobs: args.jobs,
        ..args.target.echo()
    };
    let options = RunOptions {
        pace,
        // A file has one queue, which the jobs share.
        queue_depth: depth * (args.jobs / opened.submitters().max(1)).max(1),
        ..args.target.run_options(args.duration, args.interval)
    };
    let finished = {
        let progress = ctx.progress("sending", Unit::Count, workload.requests_total());
        opened.run(Feed::start(workload), placement, options, &progress, ctx)
    };
    Answer::new(finished, opened, identity, echo, ctx)?
        .give(&args.output, args.intervals.as_deref())
}

/// The failure for an invalid SPEC, which is bad usage.
fn bad_spec(error: TraceError) -> CliError {
    CliError::usage(error).next("docs/trace-formats.md lists all keys")
}

/// Parses a number above 0, such as `1000`, `20k` or `2M`; for clap's `value_parser`.
fn number(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 3] = [("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
    let unit = UNITS.iter().find_map(|(unit, n)| Some((text.strip_suffix(unit)?, *n)));
    let (digits, unit) = unit.unwrap_or((text, 1));
    let n = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    n.filter(|&n| n > 0)
        .ok_or_else(|| format!("`{text}` is not a whole number above 0, such as 1000, 20k or 2M"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_are_above_zero() {
        assert_eq!((number("7"), number("20k"), number("2M")), (Ok(7), Ok(20_000), Ok(2_000_000)));
        for text in ["0", "", "k", "-1", "1.5k", "99999999999G"] {
            assert!(number(text).unwrap_err().contains("not a whole number above 0"), "{text}");
        }
    }
}
