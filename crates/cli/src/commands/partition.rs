//! `forebay partition`: divides a cache among volumes.

use clap::ValueEnum;
use forebay_analysis::AnalysisError;
use forebay_analysis::partition::{self as analysis, Devices};
use forebay_block::BlockSize;
use forebay_config::{Size, TimeSpan};
use forebay_plan::JudgedBy;
use forebay_plan::partition::{AnnealOptions, Convergence, IopsGoal, Sizes};
use forebay_render::partition::Division;

use super::plan::Policy;
use crate::args::{TraceArgs, block_size, judged_by, positive, rate};
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;

/// What the division is to be best at.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// The lowest mean latency
    Latency,
    /// The most requests per second
    Iops,
    /// The most hits per byte (performance per cost, as in the ETICA paper)
    Ppc,
    /// The most hits
    Hits,
}

/// How shares are searched.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    /// Dynamic programming: finds the best division into whole units
    Exact,
    /// Simulated annealing: allows finer units, but may miss the optimum
    Anneal,
}

/// What counts alike.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weigh {
    /// Every volume
    Volumes,
    /// Every request
    Requests,
}

/// What "most requests per second" means for several volumes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Iops {
    /// The largest sum of requests per second
    Sum,
    /// The smallest sum of the volumes' times per request, which favours the slowest volume
    Inverse,
}

/// How to evaluate a division.
const EVALUATE: [(JudgedBy, &str); 2] = [
    (JudgedBy::Analytic, "Use the miss-ratio curves and the latencies of idle devices"),
    (JudgedBy::Simulate, "Simulate the caches, then plan again with the simulated latencies"),
];

/// Arguments of `forebay partition`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ forebay trace synth 'zipf:volume=db + sequential:volume=scan' -o vms.parquet
  $ forebay partition vms.parquet --flash 64MiB --goal latency")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    /// Amount of flash to divide, counting only the space for data
    #[arg(long, value_name = "SIZE")]
    pub flash: Size,
    /// Amount of memory to divide; by default the caches use only flash
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub dram: Size,
    /// What to optimise
    #[arg(long, value_enum, default_value = "latency")]
    pub goal: Goal,
    /// Maximum mean latency of a volume; takes precedence over the goal (repeatable)
    #[arg(long, value_name = "VOLUME=TIME", value_parser = target)]
    pub target: Vec<(String, TimeSpan)>,
    /// What to give equal weight [default: volumes, or requests with --goal hits]
    #[arg(long, value_enum)]
    pub weigh: Option<Weigh>,
    /// For --goal iops: how to combine the requests per second of several volumes [default: sum]
    #[arg(long, value_enum)]
    pub iops: Option<Iops>,
    /// Give every volume at least this much flash, unless it cannot use that much
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub floor: Size,
    /// Give every volume at least this much memory, unless it cannot use that much
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub dram_floor: Size,
    /// The write policy
    #[arg(long, value_enum, default_value = "write-through")]
    pub policy: Policy,
    /// Block size
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = block_size)]
    pub block_size: BlockSize,
    /// Move accessed blocks into the cache once every T, instead of at each access
    #[arg(long, value_name = "T")]
    pub migration_period: Option<TimeSpan>,
    #[command(flatten)]
    pub searching: SearchArgs,
    #[command(flatten)]
    pub evaluating: EvaluateArgs,
    /// The memory device; `none` adds no latency
    #[arg(long, value_name = "DEVICE", default_value = "FastDRAM", help_heading = "Devices")]
    pub memory: String,
    /// The flash device that all volumes share
    #[arg(long, value_name = "DEVICE", default_value = "nvme", help_heading = "Devices")]
    pub flash_device: String,
    /// The device of every volume's backing store
    #[arg(long, value_name = "DEVICE", default_value = "hdd-7200", help_heading = "Devices")]
    pub backing_device: String,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// How shares are searched.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Search")]
pub struct SearchArgs {
    /// How to search for the shares
    #[arg(long, value_enum, default_value = "exact")]
    pub search: Search,
    /// Divide flash among the volumes in units of this size, which must be a whole number of
    /// blocks [default: the smallest unit that is quick to search]
    #[arg(long, value_name = "SIZE")]
    pub unit: Option<Size>,
    /// Divide memory among the volumes in units of this size, which must be a whole number of
    /// blocks
    #[arg(long, value_name = "SIZE")]
    pub dram_unit: Option<Size>,
    /// Seed for annealing and for the devices' random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of moves that annealing tries [default: 400000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
}

/// How divisions are judged.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Judging")]
pub struct EvaluateArgs {
    /// How to evaluate a division
    #[arg(long, default_value = "analytic", value_parser = judged_by(EVALUATE))]
    pub evaluate: JudgedBy,
    /// With --evaluate simulate: stop replanning once prediction and simulation differ by at most
    /// this fraction, such as 0.1 or 10% [default: 0.05]
    #[arg(long, value_name = "FRACTION", value_parser = rate)]
    pub tolerance: Option<f64>,
    /// With --evaluate simulate: maximum number of plans to simulate [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Keep N requests of each volume in flight and ignore the trace's timestamps [default: 32
    /// with --goal iops]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub queue_depth: Option<u32>,
    /// With --evaluate simulate: run at N times the recorded speed
    #[arg(long, value_name = "N", conflicts_with = "queue_depth", value_parser = positive)]
    pub rate: Option<f64>,
}

impl Args {
    fn goal(&self) -> forebay_plan::partition::Goal {
        use forebay_plan::partition::Goal as Of;
        match (self.goal, self.iops.unwrap_or(Iops::Sum)) {
            (Goal::Latency, _) => Of::Latency,
            (Goal::Ppc, _) => Of::Ppc,
            (Goal::Hits, _) => Of::Hits,
            (Goal::Iops, Iops::Sum) => Of::Iops(IopsGoal::Sum),
            (Goal::Iops, Iops::Inverse) => Of::Iops(IopsGoal::Inverse),
        }
    }

    fn weigh(&self) -> Weigh {
        let usual = if self.goal == Goal::Hits { Weigh::Requests } else { Weigh::Volumes };
        self.weigh.unwrap_or(usual)
    }

    fn question(&self) -> analysis::Question {
        let both = |dram: Size, flash: Size| Sizes {
            dram_bytes: dram.bytes(),
            flash_bytes: flash.bytes(),
        };
        let unit = |unit: Option<Size>| unit.unwrap_or(Size(0));
        analysis::Question {
            traces: self.traces.source(),
            sizes: both(self.dram, self.flash),
            floor: both(self.dram_floor, self.floor),
            units: both(unit(self.searching.dram_unit), unit(self.searching.unit)),
            goal: self.goal(),
            weigh: match self.weigh() {
                Weigh::Volumes => forebay_plan::partition::Weigh::Volumes,
                Weigh::Requests => forebay_plan::partition::Weigh::Requests,
            },
            targets: self.target.iter().map(|(name, time)| (name.clone(), time.nanos())).collect(),
            policy: self.policy.into(),
            block_size: self.block_size,
            migration_period: self.migration_period.map(TimeSpan::nanos),
            search: self.search(),
            seed: self.searching.seed,
            evaluate: match self.simulates() {
                false => analysis::Evaluate::Analytic,
                true => analysis::Evaluate::Simulate {
                    convergence: self.convergence(),
                    rate: self.evaluating.rate.unwrap_or(1.0),
                },
            },
            queue_depth: self.queue_depth(),
            devices: Devices {
                memory: Some(self.memory.clone()).filter(|name| name != "none"),
                flash: self.flash_device.clone(),
                backing: self.backing_device.clone(),
            },
        }
    }

    fn search(&self) -> forebay_plan::partition::Search {
        match self.searching.search {
            Search::Exact => forebay_plan::partition::Search::Exact,
            Search::Anneal => {
                let usual = AnnealOptions::default();
                forebay_plan::partition::Search::Anneal(AnnealOptions {
                    seed: self.searching.seed,
                    steps: self.searching.steps.unwrap_or(usual.steps),
                    ..usual
                })
            }
        }
    }

    fn simulates(&self) -> bool {
        self.evaluating.evaluate == JudgedBy::Simulate
    }

    /// When to stop replanning because prediction and simulation agree.
    fn convergence(&self) -> Convergence {
        let usual = Convergence::default();
        Convergence {
            tolerance: self.evaluating.tolerance.unwrap_or(usual.tolerance),
            rounds_max: self.evaluating.rounds.unwrap_or(usual.rounds_max),
        }
    }

    /// Number of requests in flight; `None` if requests keep the trace's timestamps.
    fn queue_depth(&self) -> Option<u32> {
        let closed = self.goal == Goal::Iops && self.evaluating.rate.is_none();
        self.evaluating.queue_depth.or(closed.then_some(analysis::QUEUE_DEPTH))
    }

    /// Checks the arguments before the traces are read.
    fn check(&self) -> Result<(), CliError> {
        self.output.check(&self.traces.traces)?;
        self.check_sizes()?;
        self.check_goal()?;
        self.check_simulation()
    }

    fn check_sizes(&self) -> Result<(), CliError> {
        let block = self.block_size.bytes();
        let refuse = |what: String| Err(CliError::usage(what));
        if self.flash.bytes() < block && self.dram.bytes() < block {
            return refuse(format!(
                "there is nothing to divide: --flash {} and --dram {} are both smaller than one block ({})",
                self.flash, self.dram, self.block_size
            ));
        }
        for (name, size, of, total) in [
            ("--unit", self.searching.unit, "--flash", self.flash),
            ("--dram-unit", self.searching.dram_unit, "--dram", self.dram),
        ] {
            let Some(size) = size else { continue };
            if size.bytes() == 0 || size.bytes() % block != 0 {
                return refuse(format!(
                    "{name} {size} is not a whole number of {block}-byte blocks"
                ));
            }
            if size.bytes() > total.bytes() {
                return refuse(format!(
                    "{name} {size} is more than {of} {total}, so there is nothing to divide"
                ));
            }
        }
        for (name, floor, of, total) in [
            ("--floor", self.floor, "--flash", self.flash),
            ("--dram-floor", self.dram_floor, "--dram", self.dram),
        ] {
            if floor > total {
                return refuse(format!("{name} {floor} is more than {of} {total}"));
            }
        }
        Ok(())
    }

    fn check_goal(&self) -> Result<(), CliError> {
        let refuse = |what: &str| Err(CliError::usage(what));
        if self.goal == Goal::Iops && self.weigh == Some(Weigh::Requests) {
            let error = CliError::usage("--weigh requests cannot be combined with --goal iops");
            return Err(error.next("choose --iops sum or --iops inverse"));
        }
        if self.migration_period.is_some_and(|t| t.nanos().0 == 0) {
            return refuse("--migration-period must be greater than 0");
        }
        if self.iops.is_some() && self.goal != Goal::Iops {
            return refuse("--iops needs --goal iops");
        }
        if self.searching.steps.is_some() && self.searching.search != Search::Anneal {
            return refuse("--steps needs --search anneal");
        }
        Ok(())
    }

    fn check_simulation(&self) -> Result<(), CliError> {
        if self.simulates() && self.migration_period.is_some() {
            let what = "the simulated cache admits blocks when they are accessed, so \
                        --migration-period cannot be combined with --evaluate simulate";
            return Err(CliError::usage(what).next("use --evaluate analytic"));
        }
        let simulates = self.simulates();
        for (name, is_given) in [
            ("--rate", self.evaluating.rate.is_some()),
            ("--tolerance", self.evaluating.tolerance.is_some()),
            ("--rounds", self.evaluating.rounds.is_some()),
        ] {
            if is_given && !simulates {
                return Err(CliError::usage(format_args!("{name} needs --evaluate simulate")));
            }
        }
        let most = Size(analysis::BLOCKS_MAX.saturating_mul(self.block_size.bytes()));
        let all = self.flash.bytes().saturating_add(self.dram.bytes());
        if simulates && all > most.bytes() {
            let (name, size) = match self.flash >= self.dram {
                true => ("--flash", self.flash),
                false => ("--dram", self.dram),
            };
            let what = format!(
                "{name} {size} is too large to simulate: with blocks of {}, both tiers together \
                 can hold at most {most}",
                self.block_size
            );
            return Err(CliError::usage(what).next("use --evaluate analytic, or larger blocks"));
        }
        Ok(())
    }
}

/// Divides the cache and prints the shares.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    args.check()?;
    let question = args.question();
    let workload = question.measure(ctx).map_err(|error| match error {
        error @ AnalysisError::OneVolume(_) => {
            CliError::usage(error).next(match args.traces.traces.len() {
                1 => "use traces of several volumes, or use `forebay mrc --request-level`",
                _ => {
                    "use traces whose volumes have different names; volumes with the same name \
                     count as one"
                }
            })
        }
        error => error.into(),
    })?;
    let (traces, volumes) = (args.traces.traces.len(), workload.known.volumes.len());
    if traces > volumes {
        ctx.note(format_args!(
            "{traces} traces have {volumes} volumes with reads or writes: volumes with the same \
             name count as one (`forebay trace info` shows the names)"
        ));
    }
    let answer = question.divide(&workload, ctx)?;
    let shown = Division { answer: &answer };
    shown.warnings().iter().for_each(|what| ctx.note(what));
    if let Some(overload) = shown.overload() {
        let slower = overload.rate.map_or_else(String::new, |rate| {
            format!("--rate {rate}, which simulates fewer requests per second, or ")
        });
        ctx.note(format_args!(
            "to measure the devices instead of the queue, use {slower}--queue-depth 8, which \
             keeps a fixed number of requests in flight"
        ));
    }
    args.output.give(&shown)
}

/// Parses `VOLUME=TIME`.
fn target(text: &str) -> Result<(String, TimeSpan), String> {
    let wrong = || format!("`{text}` is not a target: write VOLUME=TIME, such as vm1=2ms");
    let (volume, time) = text.rsplit_once('=').ok_or_else(wrong)?;
    let time: TimeSpan = time.parse().map_err(|e| format!("{}: {e}", wrong()))?;
    match volume.is_empty() || time.nanos().0 == 0 {
        true => Err(wrong()),
        false => Ok((volume.to_string(), time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_volume_and_a_time_longer_than_nothing() {
        let (volume, time) = target("a=b=2ms").unwrap();
        assert_eq!((volume.as_str(), time.nanos().0), ("a=b", 2_000_000));
        for text in ["vm1", "vm1=", "=2ms", "vm1=0s", "vm1=fast"] {
            assert!(target(text).unwrap_err().contains("VOLUME=TIME"), "{text}");
        }
    }
}
