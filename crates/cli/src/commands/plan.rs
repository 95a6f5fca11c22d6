//! `forebay plan`: which tiers to buy.

mod answer;
pub mod growth;
mod pictures;
mod replayed;
mod simulated;
pub mod study;
mod text;
mod tiers;

use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use forebay_block::BlockSize;
use forebay_plan::{
    Budget, Catalogue, Combination, CostModel, CydoniaOptions, DeviceKind, Metadata, PlanError,
    PlanOptions, ProfileBuilder, ProfileOptions, WritePolicy, check_budget,
};

use crate::args::{TraceArgs, block_size, rate};
use crate::context::Context;
use crate::error::CliError;
use crate::output::{OutputArgs, write_stdout};
use crate::reading::read_traces;
use answer::Answer;
use forebay_config::Size;
use forebay_replay::{Survey, VolumeSurvey};
use forebay_simulate::TracedVolume;
use growth::Growths;
use replayed::Replayer;
use simulated::Simulator;
use study::Study;
pub use text::{SINGLE, times};

/// Points per combination of more than two tiers.
const POINTS_MAX: u64 = 1 << 20;

/// The write policy to plan for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Writes go to the cache and to the backing store
    WriteThrough,
    /// Writes go to the backing store later
    WriteBack,
}

/// How sizes are searched.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// A few evaluations guided by hit-to-miss ratios
    Cydonia,
    /// Every size
    Exhaustive,
}

/// How one choice is judged.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evaluate {
    /// From the curves and the devices' latencies
    Analytic,
    /// By simulating the cache
    Simulate,
    /// By replaying the trace on real files and devices
    Replay,
}

/// Arguments of `forebay plan`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Hits are those of an ideal LRU list over all tiers. A flash log keeps fewer of \
them (docs/simulation.md has a table); --evaluate simulate counts what the cache keeps.

Example:
  $ forebay trace synth 'zipf' -o zipf.parquet
  $ forebay plan zipf.parquet --budget 50% --backing SlowHDD"
)]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// What may be spent on tiers: dollars, or a percentage of what DRAM for all data would cost;
    /// several give a plan each
    #[arg(long, value_name = "USD,...", value_delimiter = ',')]
    #[arg(required_unless_present = "study", allow_negative_numbers = true)]
    pub budget: Vec<Budget>,
    /// So much of tier 1 is there already: says whether --budget is better spent on more of it or
    /// on a second tier
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["method", "evaluate", "sweep", "pareto"])]
    pub have: Option<Size>,
    /// The catalogue of devices, TOML; --print-devices shows the built-in one
    #[arg(long, value_name = "FILE")]
    pub devices: Option<PathBuf>,
    /// Only in front of these backing stores, by their names in the catalogue
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',')]
    pub backing: Vec<String>,
    /// Only these tiers, fastest first, instead of the catalogue's combinations
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',')]
    pub tiers: Vec<String>,
    /// The write policy
    #[arg(long, value_enum, default_value = "write-through")]
    pub policy: Policy,
    /// How sizes are searched
    #[arg(long, value_enum, default_value = "exhaustive")]
    pub method: Method,
    /// How many sizes per combination Cydonia tries [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub evaluations: Option<u64>,
    /// How one choice is judged
    #[arg(long, value_enum, default_value = "analytic")]
    pub evaluate: Evaluate,
    /// How many of the best choices of each budget are simulated or replayed after an exhaustive
    /// search; Cydonia has every evaluation simulated or replayed [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub finalists: Option<u64>,
    /// Metadata of each block that a tier holds, paid at tier 1's price: bytes, or one figure for
    /// each tier; Forebay's own cache takes 68,48 with a flash log and 68,66 with slots
    #[arg(long, value_name = "BYTES,...", default_value = "31", value_parser = Metadata::from_str)]
    pub metadata: Metadata,
    /// The configuration of the cache to replay against under --evaluate replay: its devices are
    /// those of --tiers and --backing, its sizes and write policy are the plan's
    #[arg(long, value_name = "FILE", help_heading = "Replaying")]
    pub config: Option<PathBuf>,
    /// Allow replays to destroy what is on devices and files of --config that are there already
    #[arg(long, requires = "config", help_heading = "Replaying")]
    pub write: bool,
    /// Requests on their way in a replay
    #[arg(long, value_name = "N", default_value = "1", requires = "config")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Replaying")]
    pub queue_depth: u32,
    /// Buy no flash that uses more of its rated endurance than this; 1 lasts as long as its maker
    /// says, none is no limit
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = wear_max)]
    #[arg(conflicts_with_all = ["have", "study"])]
    pub wear_max: WearMax,
    /// Look at this fraction of the blocks only
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub sample: Option<f64>,
    /// Size of a block
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_size)]
    pub block_size: BlockSize,
    /// Also plan for N budgets, from what buys little to what buys enough for all data; --html
    /// and --parquet do so anyway
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "24")]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub sweep: Option<usize>,
    /// Also give the plans that no other beats in one of cost, mean latency, 99th percentile and
    /// drive writes per day without losing in another
    #[arg(long)]
    pub pareto: bool,
    /// Study each trace by itself instead, under N budgets up to what all data in DRAM would cost:
    /// which shape of cache wins, what it gains, and how near Cydonia comes
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "50", value_parser = clap::value_parser!(u64).range(1..=1000))]
    #[arg(conflicts_with_all = ["budget", "have", "policy", "method", "evaluate", "sweep", "pareto"])]
    pub study: Option<u64>,
    /// Keep the traces that --study has finished in FILE, and go on from there
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Print the built-in catalogue of devices, to be edited, and do nothing else
    #[arg(long, exclusive = true)]
    pub print_devices: bool,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How much of its rated endurance flash may use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WearMax(pub Option<f64>);

fn wear_max(text: &str) -> Result<WearMax, String> {
    match (text, text.parse::<f64>()) {
        ("none", _) => Ok(WearMax(None)),
        (_, Ok(times)) if times > 0.0 && times.is_finite() => Ok(WearMax(Some(times))),
        _ => Err("write a number above 0, such as 1 for the rated endurance, or none".to_owned()),
    }
}

impl Args {
    fn options(&self) -> PlanOptions {
        PlanOptions {
            policy: match self.policy {
                Policy::WriteThrough => WritePolicy::WriteThrough,
                Policy::WriteBack => WritePolicy::WriteBack,
            },
            method: match self.method {
                Method::Exhaustive => forebay_plan::Method::Exhaustive { points_max: POINTS_MAX },
                Method::Cydonia => forebay_plan::Method::Cydonia(self.cydonia()),
            },
            cost: CostModel {
                metadata: self.metadata,
                ..CostModel::with_block_size(self.block_size)
            },
            wear_max: self.wear_max.0.filter(|_| self.have.is_none() && self.study.is_none()),
            ..PlanOptions::default()
        }
    }

    /// How Cydonia searches.
    fn cydonia(&self) -> CydoniaOptions {
        let usual = CydoniaOptions::default();
        let evaluations_max = self.evaluations.unwrap_or(usual.evaluations_max);
        CydoniaOptions { evaluations_max, ..usual }
    }

    /// Refuses what would be of no effect, before traces are read.
    fn check(&self) -> Result<(), CliError> {
        let studies = self.study.is_some();
        let cydonia = self.method == Method::Cydonia;
        let finalists = self.evaluate != Evaluate::Analytic && !cydonia;
        let replays = self.evaluate == Evaluate::Replay;
        for (name, is_given, is_of_use, needs) in [
            // Not by `requires`: clap does not ask for what conflicts with --budget.
            ("--resume", self.resume.is_some(), studies, "--study"),
            (
                "--evaluations",
                self.evaluations.is_some(),
                studies || cydonia,
                "--method cydonia or --study",
            ),
            (
                "--finalists",
                self.finalists.is_some(),
                finalists,
                "--evaluate simulate or replay, and --method exhaustive",
            ),
            ("--config", self.config.is_some(), replays, "--evaluate replay"),
        ] {
            if is_given && !is_of_use {
                return Err(
                    CliError::usage(format_args!("{name} needs {needs}")).kept("nothing was read")
                );
            }
        }
        Ok(())
    }

    fn catalogue(&self) -> Result<Catalogue, CliError> {
        match &self.devices {
            None => Ok(Catalogue::default()),
            Some(path) => Catalogue::read(path).map_err(|error| match error {
                PlanError::ReadCatalogue { .. } => CliError::from(error),
                error => CliError::usage(format_args!("{}: {error}", path.display())),
            }),
        }
    }

    /// The combinations to choose from.
    fn combinations(&self, catalogue: &Catalogue) -> Result<Vec<Combination>, CliError> {
        for name in self.tiers.iter().chain(&self.backing) {
            catalogue.device(name).map_err(CliError::usage)?;
        }
        let wanted =
            |backing: &str| self.backing.is_empty() || self.backing.iter().any(|b| b == backing);
        if self.backing.is_empty() && (!self.tiers.is_empty() || !catalogue.names_combinations()) {
            let what = "no backing store was asked for: which device is there already, for a cache to \
                        stand in front of?";
            return Err(CliError::usage(what)
                .kept("nothing was read")
                .next("name it with --backing, or in a [[combination]] of the catalogue"));
        }
        let combinations: Vec<Combination> = if self.tiers.is_empty() {
            let all = catalogue.combinations().iter();
            all.filter(|c| wanted(&c.backing)).cloned().collect()
        } else {
            let durable = catalogue.devices().iter().filter(|d| d.kind != DeviceKind::Dram);
            let backing = durable.filter(|d| wanted(&d.name) && !self.tiers.contains(&d.name));
            let of = |backing: String| Combination { tiers: self.tiers.clone(), backing };
            backing.map(|d| of(d.name.clone())).collect()
        };
        match combinations.is_empty() {
            true => {
                Err(CliError::usage("no combination of devices has these tiers and backing stores")
                    .next("name them with both --tiers and --backing"))
            }
            false => Ok(combinations),
        }
    }
}

/// Plans and prints the choices.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    if args.print_devices {
        return write_stdout(Catalogue::DEFAULT_TOML.as_bytes());
    }
    args.check()?;
    args.output.check(args.traces.traces.iter().chain(&args.devices))?;
    let formulas = args.evaluate == Evaluate::Analytic;
    if !formulas {
        args.traces.check_rereadable(", and each simulation or replay reads it again")?;
    }
    if args.study.is_some() {
        args.traces.check_rereadable(", and a study names and resumes its traces")?;
    }
    let catalogue = args.catalogue()?;
    let combinations = args.combinations(&catalogue)?;
    if args.study.is_some() {
        let study = Study::new(&args, &catalogue, combinations, ctx)?;
        if let Some(path) = &args.output.parquet {
            study.rows().write(path)?;
        }
        if let Some(path) = &args.output.html {
            study.document().report().write_html(path)?;
        }
        let document = study.document();
        return args.output.emit(&document, |out| document.print(out));
    }
    let mut options = args.options();
    if let (Method::Cydonia, Some(more)) =
        (args.method, combinations.iter().find(|c| c.tiers.len() > 2))
    {
        return Err(CliError::usage(PlanError::CydoniaTiers(more.tiers.len()))
            .next("--method exhaustive searches any number of tiers"));
    }
    let devices = match args.evaluate {
        Evaluate::Replay => Some(replayed::configuration(&args, &catalogue, &combinations)?),
        _ => None,
    };
    for budget in args.budget.iter().filter(|_| args.have.is_none()) {
        if let Budget::Usd(usd) = budget {
            check_budget(&catalogue, &combinations, *usd, &options.cost)
                .map_err(CliError::usage)?;
        }
    }
    let mut profile = ProfileBuilder::new(ProfileOptions {
        block_size: args.block_size,
        sample_rate: args.sample.unwrap_or(1.0),
        write_back: options.policy == WritePolicy::WriteBack,
    })?;
    let mut survey = Survey::default();
    let traces = read_traces(&args.traces, ctx, |request| {
        if !formulas {
            survey.add(request);
        }
        Ok(profile.add(request)?)
    })?;
    let profile = profile.finish()?;
    options.duration = profile.duration();
    let cost = options.cost;
    if let Some(have) = args.have {
        let answer = Answer::unplanned(&args, &profile, catalogue, combinations, options);
        let growths = Growths::new(&answer, have.bytes())?;
        if let Some(path) = &args.output.parquet {
            growths.rows().write(path)?;
        }
        if let Some(path) = &args.output.html {
            growths.report().write_html(path)?;
        }
        return args.output.emit(growths.document(), |out| growths.print(out));
    }
    let mut answer = Answer::new(&args, ctx, &profile, catalogue, combinations, options)?;
    let duration = profile.duration();
    if args.backing.is_empty() && answer.backings().len() > 1 {
        let stores = answer.backings().join(", ");
        ctx.note(format_args!(
            "choices stand in front of {stores}, as the catalogue combines them; compare those in \
             front of one, and say which you have with --backing"
        ));
    }
    if args.evaluate == Evaluate::Simulate {
        let number = |at: usize| forebay_block::Volume(at as u32);
        let volume = |(at, volume): (usize, &VolumeSurvey)| TracedVolume {
            name: traces.volume_name(number(at)),
            bytes: volume.end_bytes.next_multiple_of(cost.block_size.bytes()),
        };
        let volumes = survey.volumes.iter().enumerate().map(volume).collect();
        let requests = traces.requests;
        let simulator = Simulator { traces: &args.traces, ctx, cost, volumes, requests, duration };
        answer.judge(&mut |hierarchy, sizes| simulator.judge(hierarchy, sizes))?;
    }
    if let Some(base) = devices {
        survey.name_volumes(traces.metadata.volumes.iter().map(|v| v.name.as_str()));
        let (traces, queue_depth) = (&args.traces, args.queue_depth);
        let replayer = Replayer { traces, ctx, cost, base, survey, queue_depth, duration };
        let replayer = replayer.with_sizes();
        answer.judge(&mut |hierarchy, sizes| replayer.judge(hierarchy, sizes))?;
    }
    if let Some(path) = &args.output.parquet {
        answer.rows().write(path)?;
    }
    if let Some(path) = &args.output.html {
        answer.report().write_html(path)?;
    }
    args.output.emit(&answer.document(), |out| answer.print(out))
}
