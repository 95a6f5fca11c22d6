//! `forebay replay`: replays a trace against real devices.

pub mod answer;
pub mod target;

use std::time::Duration;

use forebay_analysis::Unit;
use forebay_block::Nanos;
use forebay_config::TimeSpan;
use forebay_render::run::Echo;
use forebay_replay::{Feed, Pace, RunOptions, Survey};

use self::answer::Answer;
use self::target::{Opened, TargetArgs};
use crate::args::{TraceArgs, interval, positive};
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;

/// Arguments of `forebay replay`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A replay writes generated data, which destroys the data on the target; confirm this with --write. \
With --config, --write is required only if the flash tier or a store already exists. Forebay refuses \
to write to a target that is mounted or that another program has locked.

Example:
  $ forebay trace synth 'zipf:blocks=4Ki,requests=10k,write=0.2' -o z.parquet
  $ forebay replay z.parquet --target d.img --create 16MiB --write --verify")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Replay at N times the recorded speed
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
    #[arg(conflicts_with = "as_fast_as_possible", help_heading = "Pace")]
    pub rate: f64,
    /// Send each request as soon as the queue has room
    #[arg(long, conflicts_with = "quiesce", help_heading = "Pace")]
    pub as_fast_as_possible: bool,
    /// Maximum number of requests in flight; while the queue is full, the next request waits
    #[arg(long, value_name = "N", default_value = "64", help_heading = "Pace")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub queue_depth: u32,
    /// Skip idle periods longer than T, or all idle periods if you omit T. A period is idle if no
    /// request is in flight or due
    #[arg(long, value_name = "T", num_args = 0..=1, default_missing_value = "0s")]
    #[arg(require_equals = true, help_heading = "Pace")]
    pub skip_idle: Option<TimeSpan>,
    /// Stop after this time
    #[arg(long, value_name = "T", help_heading = "Pace")]
    pub duration: Option<TimeSpan>,
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

impl Args {
    /// How long the replay of a trace that spans `span` takes if the target keeps up; `None` if the
    /// duration depends only on the target.
    fn lasts(&self, span: Nanos) -> Option<Duration> {
        if self.as_fast_as_possible || self.target.quiesce || self.skip_idle.is_some() {
            return None;
        }
        let lasts = Duration::try_from_secs_f64(span.as_secs_f64() / self.rate).ok();
        let limit = self.duration.map(|time| Duration::from_nanos(time.nanos().0));
        lasts.into_iter().chain(limit).min()
    }
}

/// Replays the trace.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    args.target.check()?;
    let read = args.target.files()?;
    args.output.check_with(&args.intervals, args.traces.traces.iter().chain(&read))?;
    let why = ", but a replay reads it twice, the first time to check that it fits the target";
    args.traces.check_rereadable(why)?;
    let mut survey = Survey::default();
    let traces = args.traces.recorded().read(ctx, |request| {
        survey.add(request);
        Ok::<_, CliError>(())
    })?;
    if survey.requests == 0 {
        return Err(CliError::failed("there are no requests to replay"));
    }
    survey.name_volumes(traces.metadata.volumes.iter().map(|v| v.name.as_str()));
    let identity = survey.identity(args.traces.names());
    let depth = if args.target.quiesce { 1 } else { args.queue_depth };
    let mut opened = Opened::open(&args.target, &survey, (depth, 1), ctx)?;
    let placement = opened.placement(&survey)?;
    let as_fast_as_possible = args.as_fast_as_possible || args.target.quiesce;
    let pace = match as_fast_as_possible {
        true => Pace::AsFastAsPossible,
        false => Pace::Timed { rate: args.rate },
    };
    let options = RunOptions {
        pace,
        queue_depth: depth,
        skip_idle: args.skip_idle.map(TimeSpan::nanos),
        ..args.target.run_options(args.duration, args.interval)
    };
    let echo = Echo {
        command: "replay",
        rate: (!as_fast_as_possible).then_some(args.rate),
        as_fast_as_possible,
        queue_depth: depth,
        jobs: 1,
        ..args.target.echo()
    };
    let finished = {
        let (requests, lasts) = (Some(survey.requests), args.lasts(survey.span()));
        let progress = ctx.progress_lasting("replaying", Unit::Count, requests, lasts);
        let feed = Feed::start(args.traces.recorded().open(ctx)?);
        opened.run(feed, placement, options, &progress, ctx)
    };
    Answer::new(finished, opened, identity, echo, ctx)?
        .give(&args.output, args.intervals.as_deref())
}
