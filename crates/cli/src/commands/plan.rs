//! `forebay plan`: chooses the cache tiers to buy.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use forebay_analysis::AnalysisError;
use forebay_analysis::plan as analysis;
use forebay_analysis::plan::growth::Question as GrowthQuestion;
use forebay_analysis::plan::study::Question as StudyQuestion;
use forebay_block::BlockSize;
use forebay_config::{Config, Size};
use forebay_plan::{
    Budget, Catalogue, Combination, CostModel, CydoniaOptions, Device, JudgedBy, Metadata,
    MetadataError, PlanError, PlanOptions, WritePolicy,
};
use forebay_render::format::counted;
use forebay_render::plan::{Choices, Growths, Studies};

use crate::args::{TraceArgs, block_size, files_of, judged_by, load_config, rate};
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;
use crate::write_files::write_stdout;

/// Maximum number of points to evaluate per combination of more than two tiers.
const POINTS_MAX: u64 = 1 << 20;
/// Default number of budgets in a sweep.
const SWEEP: usize = 24;

/// The write policy to plan for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Writes go to the cache and to the backing store
    WriteThrough,
    /// Writes go to the cache first, and to the backing store later
    WriteBack,
}

impl From<Policy> for WritePolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::WriteThrough => Self::WriteThrough,
            Policy::WriteBack => Self::WriteBack,
        }
    }
}

/// How sizes are searched.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Try a few sizes, chosen by hit-to-miss ratios
    Cydonia,
    /// Try every size
    Exhaustive,
}

/// How to evaluate one choice.
const EVALUATE: [(JudgedBy, &str); 3] = [
    (JudgedBy::Analytic, "Use the miss-ratio curves and the latencies of the devices"),
    (JudgedBy::Simulate, "Simulate the cache"),
    (JudgedBy::Replay, "Replay the trace on real files and devices"),
];

/// Arguments of `forebay plan`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The plan assumes the hit ratio of one ideal LRU list that covers all tiers. A \
flash tier with the slots layout (the default) gets nearly as many hits; with the log layout, it \
gets fewer (docs/simulation.md has a table). To simulate the best choices, pass your \
configuration file with --config; the results then show the figures of the simulated cache.

Example:
  $ forebay trace synth 'zipf' -o zipf.parquet
  $ forebay plan zipf.parquet --budget 50% --backing SlowHDD"
)]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// Budget for the tiers, in dollars or as a percentage of the price of enough DRAM for all data;
    /// Forebay makes one plan per budget
    #[arg(long, value_name = "USD,...", value_delimiter = ',')]
    #[arg(required_unless_present = "study")]
    pub budget: Vec<Budget>,
    /// Size of your existing tier 1. Forebay then compares two ways to spend --budget: on a larger
    /// tier 1, or on a second tier
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["method", "evaluate", "sweep", "pareto"])]
    pub have: Option<Size>,
    /// Device catalogue (TOML); --print-devices prints the built-in one
    #[arg(long, value_name = "FILE")]
    pub devices: Option<PathBuf>,
    /// Plan only for these backing stores, by their names in the catalogue
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',')]
    pub backing: Vec<String>,
    /// Plan only with these tiers, fastest first, instead of the catalogue's combinations
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',')]
    pub tiers: Vec<String>,
    /// The write policy
    #[arg(long, value_enum, default_value = "write-through")]
    pub policy: Policy,
    /// How to search for sizes
    #[arg(long, value_enum, default_value = "exhaustive")]
    pub method: Method,
    /// Number of sizes that Cydonia tries for each combination of devices [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub evaluations: Option<u64>,
    /// How to evaluate a choice [default: analytic, or simulate with --config]
    #[arg(long, value_parser = judged_by(EVALUATE))]
    pub evaluate: Option<JudgedBy>,
    /// After an exhaustive search, simulate or replay the N best choices for each budget; Cydonia
    /// simulates or replays every size that it tries [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(alias = "finalists")]
    pub shortlist: Option<u64>,
    /// Bytes of metadata per cached block: one number for all tiers, or one number per tier. The
    /// metadata is stored in tier 1, at the price of tier 1. For Forebay's own cache, use
    /// `--metadata 69,49` with the log layout (69 bytes for memory, 49 for flash), or `--metadata
    /// 94,66` with the slots layout
    #[arg(long, value_name = "BYTES,...", default_value = "31", value_parser = metadata)]
    pub metadata: MetadataByTier,
    /// Configuration file of the cache to simulate. The file sets the policies, the relation
    /// between the tiers, and the flash layout; the plan sets the sizes and the write policy.
    /// --evaluate replay also uses the file's devices, which must be the devices of --tiers and
    /// --backing
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Allow replays to destroy the data on existing devices and files that --config names
    #[arg(long, requires = "config", help_heading = "Replaying")]
    pub write: bool,
    /// Number of requests in flight during a replay
    #[arg(long, value_name = "N", default_value = "1", requires = "config")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Replaying")]
    pub queue_depth: u32,
    /// Do not buy flash if the workload would use more than this multiple of the flash's rated
    /// endurance; `none` sets no limit
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = wear_max)]
    #[arg(conflicts_with_all = ["have", "study"])]
    pub wear_max: WearMax,
    /// Sample this fraction of the blocks, such as 0.05 or 5%
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub sample: Option<f64>,
    /// Block size
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_size)]
    pub block_size: BlockSize,
    /// Also plan for N budgets, from a small one to one that buys space for all data; --html and
    /// --parquet imply --sweep
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "24")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub sweep: Option<usize>,
    /// Also list the Pareto-optimal plans by cost, mean latency, 99th percentile and drive writes
    /// per day
    #[arg(long)]
    pub pareto: bool,
    /// Instead of planning, study each trace separately under N budgets, up to the price of enough
    /// DRAM for all its data. The study shows which cache shape wins, how much it gains, and how
    /// close Cydonia's plan is to the best one
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "50", value_parser = clap::value_parser!(u64).range(1..=1000))]
    #[arg(conflicts_with_all = ["budget", "have", "policy", "method", "evaluate", "sweep", "pareto"])]
    pub study: Option<u64>,
    /// With --study: save the result of each finished trace to FILE, and resume from FILE if it
    /// exists
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Print the built-in device catalogue as TOML that you can edit, and exit
    #[arg(long, exclusive = true)]
    pub print_devices: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How much of its rated endurance flash may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WearMax(pub Option<f64>);

/// Bytes of metadata for each tier.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MetadataByTier {
    bytes: Metadata,
    /// How many numbers `--metadata` gave.
    numbers: usize,
}

fn metadata(text: &str) -> Result<MetadataByTier, MetadataError> {
    Ok(MetadataByTier { bytes: text.parse()?, numbers: text.split(',').count() })
}

fn wear_max(text: &str) -> Result<WearMax, String> {
    match (text, text.parse::<f64>()) {
        ("none", _) => Ok(WearMax(None)),
        (_, Ok(times)) if times > 0.0 && times.is_finite() => Ok(WearMax(Some(times))),
        _ => Err("use a number above 0, such as 1 for the rated endurance, or none".to_owned()),
    }
}

impl Args {
    fn options(&self) -> PlanOptions {
        PlanOptions {
            policy: self.policy.into(),
            method: match self.method {
                Method::Exhaustive => forebay_plan::Method::Exhaustive { points_max: POINTS_MAX },
                Method::Cydonia => forebay_plan::Method::Cydonia(self.cydonia()),
            },
            cost: self.cost(),
            wear_max: self.wear_max.0.filter(|_| self.have.is_none() && self.study.is_none()),
            ..PlanOptions::default()
        }
    }

    fn cost(&self) -> CostModel {
        CostModel { metadata: self.metadata.bytes, ..CostModel::with_block_size(self.block_size) }
    }

    /// How to search with Cydonia.
    fn cydonia(&self) -> CydoniaOptions {
        let usual = CydoniaOptions::default();
        let evaluations_max = self.evaluations.unwrap_or(usual.evaluations_max);
        CydoniaOptions { evaluations_max, ..usual }
    }

    /// How to evaluate one choice. With `--config`, the default is to simulate: the formulas do not
    /// model the configured cache.
    fn judge(&self) -> JudgedBy {
        let searches = self.study.is_none() && self.have.is_none();
        let usual = match self.config.is_some() && searches {
            true => JudgedBy::Simulate,
            false => JudgedBy::Analytic,
        };
        self.evaluate.unwrap_or(usual)
    }

    /// Refuses options that would have no effect, before traces are read.
    fn check(&self) -> Result<(), CliError> {
        let studies = self.study.is_some();
        let cydonia = self.method == Method::Cydonia;
        let runs = self.judge() != JudgedBy::Analytic;
        let shortlist = runs && !cydonia;
        let replays = self.judge() == JudgedBy::Replay;
        for (name, is_given, is_useful, needs) in [
            // Checked here because clap does not enforce `requires` for options that conflict with
            // --budget.
            ("--resume", self.resume.is_some(), studies, "--study"),
            (
                "--evaluations",
                self.evaluations.is_some(),
                studies || cydonia,
                "--method cydonia or --study",
            ),
            (
                "--shortlist",
                self.shortlist.is_some(),
                shortlist,
                "--evaluate simulate or replay, and --method exhaustive",
            ),
            (
                "--config",
                self.config.is_some(),
                runs,
                "--evaluate simulate or replay, and cannot be combined with --have or --study",
            ),
            ("--write", self.write, replays, "--evaluate replay"),
        ] {
            if is_given && !is_useful {
                return Err(
                    CliError::usage(format_args!("{name} needs {needs}")).kept("nothing was read")
                );
            }
        }
        Ok(())
    }

    /// Refuses tiers in the wrong order, and metadata for more tiers than any combination has.
    fn check_tiers(
        &self,
        catalogue: &Catalogue,
        combinations: &[Combination],
    ) -> Result<(), CliError> {
        let devices: Vec<&Device> =
            self.tiers.iter().map(|name| catalogue.device(name)).collect::<Result<_, _>>()?;
        for pair in devices.windows(2) {
            let [above, below] = [pair[0], pair[1]];
            if above.read_latency_us > below.read_latency_us
                && above.write_latency_us >= below.write_latency_us
            {
                let what = format_args!(
                    "--tiers lists {} before {}, but {} is slower: list the fastest tier first",
                    above.name, below.name, above.name
                );
                return Err(CliError::usage(what).kept("nothing was read"));
            }
        }
        let tiers = combinations.iter().map(|c| c.tiers.len()).max().unwrap_or(0);
        let numbers = self.metadata.numbers;
        if numbers > tiers.max(1) {
            let what = format_args!(
                "--metadata gives {} for at most {}",
                counted(numbers as u64, "number"),
                counted(tiers as u64, "tier")
            );
            return Err(CliError::usage(what).kept("nothing was read"));
        }
        Ok(())
    }

    fn question(
        &self,
        catalogue: Catalogue,
        combinations: Vec<Combination>,
        config: Option<Config>,
    ) -> Result<analysis::Question, CliError> {
        let pictures = self.output.html.is_some() || self.output.parquet.is_some();
        Ok(analysis::Question {
            options: self.options(),
            evaluate: self.evaluate(config)?,
            traces: self.traces.source(),
            catalogue,
            combinations,
            budgets: self.budget.clone(),
            sample_rate: self.sample.unwrap_or(1.0),
            sweep: self.sweep.or(pictures.then_some(SWEEP)),
            pareto: self.pareto || self.output.html.is_some(),
        })
    }

    /// How to evaluate the best choices, with the cache of `--config`.
    fn evaluate(&self, config: Option<Config>) -> Result<analysis::Evaluate, CliError> {
        let shortlist = self.shortlist.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let shortlist = shortlist.unwrap_or(analysis::SHORTLIST);
        Ok(match self.judge() {
            JudgedBy::Analytic => analysis::Evaluate::Analytic,
            JudgedBy::Simulate => {
                analysis::Evaluate::Simulate { shortlist, cache: config.map(Box::new) }
            }
            JudgedBy::Replay => {
                let Some(config) = config else {
                    let what = "--evaluate replay needs --config FILE, which names the files or \
                                devices of the flash tier and of the volumes";
                    let next = "see `[flash]` and `[[volume]]` in docs/configuration.md";
                    return Err(CliError::usage(what).next(next));
                };
                let (queue_depth, overwrite) = (self.queue_depth, self.write);
                let replay = analysis::Replay { config, queue_depth, overwrite };
                analysis::Evaluate::Replay { shortlist, replay: Box::new(replay) }
            }
        })
    }
}

/// Plans and prints the choices.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    if args.print_devices {
        return write_stdout(Catalogue::DEFAULT_TOML.as_bytes());
    }
    args.check()?;
    let config = args.config.as_ref().map(|file| load_config(file)).transpose()?;
    let named = config.as_ref().map(files_of).unwrap_or_default();
    let read = args.traces.traces.iter().chain(&args.devices).chain(&args.config).chain(&named);
    // The --resume file is both read and written.
    args.output.check(read.chain(&args.resume))?;
    if args.judge() != JudgedBy::Analytic {
        args.traces.check_rereadable(", but each simulation or replay reads it again")?;
    }
    if args.study.is_some() {
        args.traces.check_rereadable(
            ", and has no file name, so a resumed study could not recognise it",
        )?;
    }
    let catalogue = match &args.devices {
        None => Catalogue::default(),
        Some(path) => Catalogue::read(path).map_err(|error| match error {
            PlanError::ReadCatalogue { .. } => CliError::from(error),
            error => CliError::usage(format_args!("{}: {error}", path.display())),
        })?,
    };
    let combinations =
        catalogue.combine(&args.tiers, &args.backing).map_err(AnalysisError::from)?;
    args.check_tiers(&catalogue, &combinations)?;
    match (args.study, args.have) {
        (Some(budgets), _) => study(&args, budgets, catalogue, combinations, ctx),
        (_, Some(have)) => grow(&args, have, catalogue, combinations, ctx),
        _ => choose(&args, catalogue, combinations, config, ctx),
    }
}

fn study(
    args: &Args,
    budgets: u64,
    catalogue: Catalogue,
    combinations: Vec<Combination>,
    ctx: &Context,
) -> Result<(), CliError> {
    let question = StudyQuestion {
        traces: args.traces.source(),
        catalogue,
        combinations,
        budgets,
        cost: args.cost(),
        cydonia: args.cydonia(),
        sample_rate: args.sample,
        resume: args.resume.clone(),
    };
    let answer = question.ask(ctx).map_err(|error| {
        not_two_tiers(
            error,
            "a study compares combinations of two tiers, but no combination has two tiers",
        )
    })?;
    args.output.give(&Studies::new(&answer))
}

fn grow(
    args: &Args,
    have: Size,
    catalogue: Catalogue,
    combinations: Vec<Combination>,
    ctx: &Context,
) -> Result<(), CliError> {
    let plan = args.question(catalogue, combinations, None)?;
    let answer = GrowthQuestion { plan, have_bytes: have.bytes() }.ask(ctx).map_err(|error| {
        let what = "--have compares growing tier 1 with adding a second tier, but no combination \
                    has two tiers";
        not_two_tiers(error, what)
    })?;
    args.output.give(&Growths { answer: &answer, files: args.traces.names() })
}

fn not_two_tiers(error: AnalysisError, what: &str) -> CliError {
    match error {
        AnalysisError::NotTwoTiers => CliError::usage(what).next("list two devices with --tiers"),
        error => error.into(),
    }
}

fn choose(
    args: &Args,
    catalogue: Catalogue,
    combinations: Vec<Combination>,
    config: Option<Config>,
    ctx: &Context,
) -> Result<(), CliError> {
    let question = args.question(catalogue, combinations, config)?;
    let answer = question.ask(ctx).map_err(|error| match (error, &args.config) {
        (AnalysisError::NoFlash, Some(file)) => CliError::usage(format_args!(
            "{} has no [flash] section for the second tier",
            file.display()
        )),
        (error, _) => error.into(),
    })?;
    if args.backing.is_empty() && answer.basis.backings().len() > 1 {
        let stores = answer.basis.backings().join(", ");
        ctx.note(format_args!(
            "the catalogue has combinations for {stores}; only choices for the same backing store \
             can be compared, so select yours with --backing"
        ));
    }
    args.output.give(&Choices {
        answer: &answer,
        files: args.traces.names(),
        with_sweep: args.sweep.is_some(),
        with_pareto: args.pareto,
    })
}
