//! `forebay consolidate`: do workloads fit together in one cache?

mod answer;
pub mod document;
mod pictures;
mod text;
mod workloads;

use forebay_block::BlockSize;
use forebay_config::{Size, TimeSpan};
use forebay_locality::{PhaseOptions, SharedRecorder};
use forebay_trace::{Align, OpenOptions};

use crate::args::{TraceArgs, block_size};
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;
use crate::reading::{options, read_described};
use answer::Answer;
use workloads::{By, Group, Workloads, check_names};

/// Arguments of `forebay consolidate`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf:blocks=10k,requests=60k,seed=1' -o web.parquet
  $ forebay trace synth 'sequential:blocks=90k,requests=60k' -o backup.parquet
  $ forebay consolidate web.parquet backup.parquet --size 64MiB")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// The cache that they are to share
    #[arg(long, value_name = "SIZE")]
    pub size: Size,
    /// What a workload is: each file, or each volume (files if there are several)
    #[arg(long, value_enum)]
    pub by: Option<By>,
    /// Each volume is a workload: the same as --by volume
    #[arg(long, conflicts_with_all = ["by", "group"])]
    pub per_volume: bool,
    /// These volumes are one workload; may be repeated. Volumes in no group are by themselves
    #[arg(long, value_name = "NAME=VOLUME,...", conflicts_with = "by")]
    pub group: Vec<Group>,
    /// All files start together, though they tell their dates
    #[arg(long)]
    pub start_together: bool,
    /// Size of a block
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_size)]
    pub block_size: BlockSize,
    /// Blocks move into the cache only every T, instead of when they are accessed
    #[arg(long, value_name = "T", help_heading = "Model")]
    pub migration_period: Option<TimeSpan>,
    /// Block accesses of a window, in which misses are counted to find phases [default: a
    /// thousandth of the workload]
    #[arg(long, value_name = "N", help_heading = "Model",
          value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    pub window: Option<u64>,
    /// The longest transition between two phases, in windows
    #[arg(long, value_name = "WINDOWS", default_value_t = 4, help_heading = "Model")]
    pub transition: u16,
    /// Phases of less than this share of their workload's accesses get no cache
    #[arg(long, value_name = "FRACTION", default_value_t = 0.1, help_heading = "Model",
          value_parser = fraction)]
    pub duration_min: f64,
    /// A phase needs the fewest blocks with this ratio of misses to hits [default: those that
    /// doubling gains little over]
    #[arg(long, value_name = "RATIO", help_heading = "Model", value_parser = ratio)]
    pub miss_hit_ratio: Option<f64>,
    /// Count only what phases need beyond phases nested in them, where a faster cache holds those
    #[arg(long, help_heading = "Model")]
    pub marginal: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl Args {
    fn check(&self) -> Result<(), CliError> {
        let usage = |what: &str| Err(CliError::usage(what).kept("nothing was read"));
        if self.size.bytes() < self.block_size.bytes() {
            let (size, block) = (self.size, self.block_size);
            return usage(&format!("--size {size} is not one block of {block}"));
        }
        if self.migration_period.is_some_and(|period| period.nanos().0 == 0) {
            return usage("--migration-period must be longer than 0");
        }
        check_names(&self.group)?;
        self.output.check(&self.traces.traces)
    }

    fn by(&self) -> By {
        let by_volume = self.per_volume || !self.group.is_empty();
        let several = self.traces.traces.len() > 1 && !by_volume;
        self.by.unwrap_or(if several { By::File } else { By::Volume })
    }

    /// How phases are looked for.
    fn phases(&self) -> PhaseOptions {
        PhaseOptions {
            window: self.window,
            transition_windows: usize::from(self.transition),
            miss_hit_ratio: self.miss_hit_ratio,
            duration_min: self.duration_min,
        }
    }

    fn size_blocks(&self) -> u64 {
        self.size.bytes() >> self.block_size.shift()
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err(format!("`{text}` is no fraction: write a number from 0 to 1")),
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err(format!("`{text}` is no ratio: write a number of 0 or more, such as 0.5")),
    }
}

/// Reads the traces, once, and answers.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    args.check()?;
    let mut workloads = Workloads::new(&args.traces, args.by(), &args.group);
    let period = args.migration_period.map(TimeSpan::nanos);
    let mut recorder = SharedRecorder::new(workloads.names().len(), args.block_size, period)?;
    let options = OpenOptions {
        align: if args.start_together { Align::Start } else { Align::Auto },
        apart: args.by() == By::File,
        ..options(&args.traces)
    };
    let traces = read_described(&args.traces, &options, ctx, |batch, metadata| {
        for request in batch.requests() {
            let workload = workloads.of(request.volume, metadata);
            while recorder.workloads() <= workload {
                recorder.add_workload()?;
            }
            recorder.add(workload, &request)?;
        }
        Ok(())
    })?;
    workloads.check_groups(&traces.metadata)?;
    ctx.check()?;
    let answer = Answer::new(&args, &workloads, traces.requests, recorder.finish()?, ctx)?;
    answer.notes().iter().for_each(|note| ctx.note(note));
    if let Some(path) = &args.output.parquet {
        answer.rows().write(path)?;
    }
    if let Some(path) = &args.output.html {
        answer.report().write_html(path)?;
    }
    args.output.emit(&answer.document(), |out| answer.print(out))
}
