//! `forebay consolidate`: checks whether workloads fit together in one cache.

use clap::ValueEnum;
use forebay_analysis::consolidate::{self as analysis, Answer, Group, Question};
use forebay_block::BlockSize;
use forebay_config::{Size, TimeSpan};
use forebay_locality::PhaseOptions;
use forebay_render::consolidate::Consolidation;

use crate::args::{TraceArgs, block_size, fraction, ratio};
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;

/// What a workload is.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Each file, with all its volumes
    File,
    /// Each volume, across all files
    Volume,
}

/// Arguments of `forebay consolidate`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf:blocks=10k,requests=60k,seed=1' -o web.parquet
  $ forebay trace synth 'sequential:blocks=90k,requests=60k' -o backup.parquet
  $ forebay consolidate web.parquet backup.parquet --size 64MiB")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// Size of the cache that the workloads share
    #[arg(long, value_name = "SIZE")]
    pub size: Size,
    /// What to treat as one workload [default: file if there are several files, otherwise volume]
    #[arg(long, value_enum)]
    pub by: Option<By>,
    /// Treat each volume as a workload: the same as --by volume
    #[arg(long, conflicts_with_all = ["by", "group"])]
    pub per_volume: bool,
    /// Treat these volumes as one workload (repeatable). VOLUME is a name or, if no volume has this
    /// name, a number. Each volume that is in no group is a separate workload
    #[arg(long, value_name = "NAME=VOLUME,...", conflicts_with = "by")]
    pub group: Vec<Group>,
    /// Block size
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_size)]
    pub block_size: BlockSize,
    /// Move accessed blocks into the cache once every T, instead of at each access
    #[arg(long, value_name = "T", help_heading = "Model")]
    pub migration_period: Option<TimeSpan>,
    /// Number of block accesses per window; Forebay finds phases from the misses in each window
    /// [default: a thousandth of the workload's accesses]
    #[arg(long, value_name = "N", help_heading = "Model",
          value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    pub window: Option<u64>,
    /// Maximum length of a transition between two phases, in windows
    #[arg(long, value_name = "WINDOWS", default_value_t = 4, help_heading = "Model")]
    pub transition: u16,
    /// Give no cache space to phases with less than this fraction of their workload's accesses,
    /// such as 0.05 or 5%
    #[arg(long, value_name = "FRACTION", default_value_t = 0.1, help_heading = "Model",
          value_parser = fraction)]
    pub duration_min: f64,
    /// Give a phase the smallest cache whose ratio of misses to hits is at most this [default: the
    /// smallest size such that doubling it or any larger size lowers the ratio by less than 0.1]
    #[arg(long, value_name = "RATIO", help_heading = "Model", value_parser = ratio)]
    pub miss_hit_ratio: Option<f64>,
    /// Count only the blocks that a phase needs in addition to those of its nested phases, as if a
    /// faster cache served the nested phases
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
            return usage(&format!("--size {size} is smaller than one block ({block})"));
        }
        if self.migration_period.is_some_and(|period| period.nanos().0 == 0) {
            return usage("--migration-period must be greater than 0");
        }
        Ok(())
    }

    fn by(&self) -> By {
        let by_volume = self.per_volume || !self.group.is_empty();
        let several = self.traces.traces.len() > 1 && !by_volume;
        self.by.unwrap_or(if several { By::File } else { By::Volume })
    }

    /// How to find phases.
    fn phases(&self) -> PhaseOptions {
        PhaseOptions {
            window: self.window,
            transition_windows: usize::from(self.transition),
            miss_hit_ratio: self.miss_hit_ratio,
            duration_min: self.duration_min,
        }
    }

    fn question(&self) -> Question {
        Question {
            traces: self.traces.source(),
            size_blocks: self.size.bytes() >> self.block_size.shift(),
            block_size: self.block_size,
            by: match self.by() {
                By::File => analysis::By::File,
                By::Volume => analysis::By::Volume,
            },
            groups: self.group.clone(),
            migration_period: self.migration_period.map(TimeSpan::nanos),
            phases: self.phases(),
            marginal: self.marginal,
        }
    }
}

/// Reads the traces once, and prints the answer.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    args.check()?;
    let question = args.question();
    question.check()?;
    args.output.check(&args.traces.traces)?;
    let answer = question.ask(ctx)?;
    notes(&answer).iter().for_each(|note| ctx.note(note));
    args.output.give(&Consolidation::new(&answer, args.traces.names()))
}

/// Notes about the assumptions behind the answer.
fn notes(answer: &Answer) -> Vec<String> {
    let mut notes = Vec::new();
    if let [only] = &answer.workloads[..] {
        notes.push(format!(
            "{} is the only workload, so nothing shares the cache with it; the result describes \
             only its phases",
            only.name
        ));
    }
    let empty = answer.workloads.iter().filter(|w| w.accesses == 0).map(|w| w.name.as_str());
    let empty: Vec<&str> = empty.collect();
    if !empty.is_empty() {
        notes.push(format!("these workloads have no reads or writes: {}", empty.join(", ")));
    }
    if answer.is_untimed() {
        let each = "the traces have no timestamps, so each trace starts when the previous one ends";
        notes.push(each.to_string());
    } else if let Some(lonely) = answer.lonely() {
        notes.push(format!(
            "{} never runs at the same time as another workload, so sharing the cache does not \
             affect it; to make the workloads overlap, use --start-together",
            lonely.name
        ));
    }
    notes
}
