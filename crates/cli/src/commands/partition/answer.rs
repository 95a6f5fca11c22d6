//! What a division says, as data.

use std::collections::BTreeMap;

use forebay_block::{Nanos, Volume};
use forebay_config::TimeSpan;
use forebay_plan::partition::{
    Convergence, Costs, Goal, Iterated, LoadPoint, Measured, Outcome, PartitionProfile, Problem,
    Sizes, Solution, iterate, solve,
};
use forebay_plan::{BoxError, PlanError};
use serde::Serialize;

use super::simulated::Simulator;
use super::source::Source;
use super::{Args, Evaluate, Search};
use crate::context::Context;
use crate::error::CliError;
use crate::format::percent;
use crate::progress::{Progress, Unit};
use crate::rows::Rows;

/// The volumes among which a cache is divided.
pub struct Known {
    pub volumes: Vec<KnownVolume>,
    by_number: BTreeMap<Volume, usize>,
}

/// One of them.
pub struct KnownVolume {
    pub name: String,
    /// How far its requests reach, in whole blocks; or its size, if the trace tells.
    pub bytes: u64,
}

impl Known {
    pub fn new(source: &Source<'_>, profile: &PartitionProfile) -> Result<Self, CliError> {
        let infos = &source.traces.metadata.volumes;
        let block = profile.options.block_size.bytes();
        let volume = |&number: &Volume| {
            let told = infos.get(number.0 as usize).and_then(|v| v.bytes).unwrap_or(0);
            let reached = source.ends.get(number.0 as usize).copied().unwrap_or(0);
            KnownVolume {
                name: source.traces.volume_name(number),
                bytes: told.max(reached).div_ceil(block).max(1).saturating_mul(block),
            }
        };
        let volumes: Vec<KnownVolume> = profile.volumes.keys().map(volume).collect();
        match volumes.as_slice() {
            [] => Err(CliError::failed("there is not one read or write to divide a cache for")
                .kept("nothing was written")),
            [only] => Err(CliError::usage(format_args!(
                "only one volume reads or writes, `{}`, and it gets everything: there is nothing \
                 to divide",
                only.name
            ))
            .next(match source.files() {
                1 => "give the traces of several volumes, or see forebay mrc --request-level",
                _ => "traces that name their volumes share those of the same name: all of these do",
            })),
            _ => {
                let by_number =
                    profile.volumes.keys().enumerate().map(|(at, &number)| (number, at));
                Ok(Self { by_number: by_number.collect(), volumes })
            }
        }
    }

    /// Its place among the volumes that read or write.
    pub fn index(&self, number: Volume) -> Option<usize> {
        self.by_number.get(&number).copied()
    }

    /// The volumes that targets are for, with microseconds.
    pub fn targets(&self, targets: &[(String, TimeSpan)]) -> Result<Vec<(usize, f64)>, CliError> {
        let mut found: Vec<(usize, f64)> = Vec::new();
        for (name, time) in targets {
            let at = self.volumes.iter().position(|v| v.name == *name).ok_or_else(|| {
                let similar = |v: &&KnownVolume| strsim::jaro_winkler(&v.name, name);
                let nearest = self.volumes.iter().max_by(|a, b| similar(a).total_cmp(&similar(b)));
                let nearest = nearest.map_or("", |v| v.name.as_str());
                CliError::usage(format_args!("--target: no volume `{name}` reads or writes"))
                    .next(format_args!("did you mean `{nearest}`? forebay trace info lists all"))
            })?;
            if found.iter().any(|&(other, _)| other == at) {
                return Err(CliError::usage(format_args!("--target: `{name}` is given twice")));
            }
            let Nanos(ns) = time.nanos();
            found.push((at, ns as f64 / 1e3));
        }
        Ok(found)
    }
}

/// One way to divide the cache, or not to.
pub struct Division {
    pub name: &'static str,
    /// None where the cache is shared.
    pub sizes: Option<Vec<Sizes>>,
    pub predicted: Option<Vec<Outcome>>,
    pub simulated: Option<Vec<Outcome>>,
}

impl Division {
    /// The objective as predicted and as simulated, where it has a meaning.
    pub fn objectives(&self, problem: &Problem<'_>) -> [Option<f64>; 2] {
        let sizes = match (&self.sizes, problem.options().goal) {
            (Some(sizes), _) => sizes.clone(),
            // A part of a shared cache has no size to divide by.
            (None, Goal::Ppc) => return [None; 2],
            (None, _) => vec![Sizes::default(); problem.volumes()],
        };
        [&self.predicted, &self.simulated]
            .map(|o| o.as_ref().map(|outcomes| problem.objective(outcomes, &sizes)))
    }
}

/// The division found, and what it is compared with.
pub struct Answer<'a> {
    pub args: &'a Args,
    pub profile: &'a PartitionProfile,
    pub known: &'a Known,
    pub problem: Problem<'a>,
    pub solution: Solution,
    pub iterated: Option<Iterated>,
    /// The one found, equal shares, and one cache for all.
    pub divisions: Vec<Division>,
    /// What could not be simulated, and why.
    pub not_simulated: Option<String>,
}

impl<'a> Answer<'a> {
    pub fn new(
        args: &'a Args,
        profile: &'a PartitionProfile,
        known: &'a Known,
        problem: Problem<'a>,
    ) -> Self {
        let nothing =
            Solution { shares: vec![], cost: Default::default(), bound: None, evaluations: 0 };
        Self {
            args,
            profile,
            known,
            problem,
            solution: nothing,
            iterated: None,
            divisions: Vec::new(),
            not_simulated: None,
        }
    }

    /// Divides by the curves and the devices' latencies.
    pub fn plan(&mut self, ctx: &Context) -> Result<(), CliError> {
        let mut waiting = Waiting { ctx, shown: None };
        let mut watch = |done, total| waiting.see(done, total);
        self.solution = solve(&self.problem, self.args.search(), &mut watch).map_err(refused)?;
        self.compare(self.sizes());
        Ok(())
    }

    /// Divides, simulates, and divides again until both agree.
    pub fn iterate(
        &mut self,
        convergence: Convergence,
        simulator: &Simulator<'_>,
    ) -> Result<(), CliError> {
        let outcomes = |measured: &[Measured]| -> Vec<Outcome> {
            measured.iter().map(|m| m.outcome).collect()
        };
        // Wanted for comparison anyway, and the first plan is the better for it.
        let equal = self.equal(self.known.volumes.len());
        let first = simulator.apart("simulating equal shares", &equal).map_err(CliError::failed)?;
        let mut round = 0;
        let mut measure = |sizes: &[Sizes]| {
            round += 1;
            simulator.apart(&format!("simulating plan {round}"), sizes)
        };
        let search = self.args.search();
        let known = Some((&equal[..], &first[..]));
        let mut waiting = Waiting { ctx: simulator.ctx, shown: None };
        let mut watch = |done, total| waiting.see(done, total);
        let problem = &mut self.problem;
        let iterated = iterate(problem, search, convergence, known, &mut watch, &mut measure)
            .map_err(refused)?;
        let chosen = &iterated.rounds[iterated.chosen];
        self.solution = chosen.solution.clone();
        self.compare(chosen.sizes.clone());
        self.divisions[0].simulated = Some(chosen.measured.clone());
        self.divisions[1].simulated = Some(outcomes(&first));
        self.iterated = Some(iterated);
        if self.args.queue_depth().is_some() {
            // A cache that is handed the volumes' requests in turn makes fast ones wait for slow.
            return Ok(());
        }
        match simulator.shared("simulating one shared cache") {
            Ok(measured) => self.divisions[2].simulated = Some(outcomes(&measured)),
            Err(error) if simulator.ctx.interrupted() => return Err(CliError::failed(error)),
            Err(error) => {
                self.not_simulated = Some(format!("one shared cache was not simulated: {error}"));
            }
        }
        Ok(())
    }

    fn sizes(&self) -> Vec<Sizes> {
        self.solution.shares.iter().map(|&share| self.problem.sizes(share)).collect()
    }

    /// As much for every volume, in whole blocks.
    fn equal(&self, volumes: usize) -> Vec<Sizes> {
        let part = |bytes: u64| {
            let block = self.args.block_size.bytes();
            bytes / volumes as u64 / block * block
        };
        let all = self.problem.options().sizes;
        let each = Sizes { dram_bytes: part(all.dram_bytes), flash_bytes: part(all.flash_bytes) };
        vec![each; volumes]
    }

    /// Sets beside the division found what needs no search.
    fn compare(&mut self, found: Vec<Sizes>) {
        let problem = &self.problem;
        let predict = |sizes: &[Sizes]| -> Vec<Outcome> {
            sizes.iter().enumerate().map(|(v, &s)| problem.predict(v, s)).collect()
        };
        let equal = self.equal(found.len());
        let division = |name, sizes: Vec<Sizes>| Division {
            name,
            predicted: Some(predict(&sizes)),
            sizes: Some(sizes),
            simulated: None,
        };
        let shared = Division {
            name: "shared",
            sizes: None,
            predicted: (0..found.len()).map(|v| problem.predict_shared(v)).collect(),
            simulated: None,
        };
        self.divisions = vec![division("found", found), division("equal", equal), shared];
    }

    /// The division found.
    pub fn found(&self) -> (&[Sizes], &[Outcome], Option<&[Outcome]>) {
        let division = &self.divisions[0];
        (
            division.sizes.as_deref().unwrap_or_default(),
            division.predicted.as_deref().unwrap_or_default(),
            division.simulated.as_deref(),
        )
    }

    /// What nobody got, because it would have brought nothing.
    pub fn left(&self) -> Sizes {
        let all = self.problem.options().sizes;
        self.found().0.iter().fold(all, |left, s| Sizes {
            dram_bytes: left.dram_bytes - s.dram_bytes,
            flash_bytes: left.flash_bytes - s.flash_bytes,
        })
    }

    /// The latency that counts: simulated, if it was.
    pub fn latency_us(&self, volume: usize) -> f64 {
        let (_, predicted, simulated) = self.found();
        simulated.unwrap_or(predicted)[volume].latency_us
    }

    /// Whether a volume has the latency that it was to have; none without a target.
    pub fn target_met(&self, volume: usize) -> Option<bool> {
        Some(self.latency_us(volume) <= self.problem.target_us(volume)?)
    }

    /// The objective of the division found, and the bound on it in the same terms.
    pub fn bound(&self) -> Option<f64> {
        let value = self.solution.bound?.value;
        Some(match self.problem.options().goal {
            Goal::Hits => match self.problem.options().weigh {
                forebay_plan::partition::Weigh::Requests => 1.0 - value,
                forebay_plan::partition::Weigh::Volumes => self.known.volumes.len() as f64 - value,
            },
            _ if self.problem.is_maximised() => -value,
            _ => value,
        })
    }

    /// Tells what the reader of a document might overlook.
    pub fn warn(&self, ctx: &Context) {
        for what in self.warnings() {
            ctx.note(what);
        }
    }

    /// What is not as it was wished.
    pub fn warnings(&self) -> Vec<String> {
        let mut said = Vec::new();
        if let Some(iterated) = self.iterated.as_ref().filter(|i| !i.converged) {
            let round = &iterated.rounds[iterated.chosen];
            said.push(format!(
                "prediction and simulation did not agree within {} in {} plans; this is the one \
                 that simulated best, {} apart",
                percent(self.args.convergence().tolerance),
                iterated.rounds.len(),
                percent(round.deviation)
            ));
        }
        let better = |a: f64, b: f64| if self.problem.is_maximised() { a > b } else { a < b };
        if let Some([_, Some(found)]) = self.divisions.first().map(|d| d.objectives(&self.problem))
        {
            for division in &self.divisions[1..] {
                let [_, simulated] = division.objectives(&self.problem);
                if let Some(other) = simulated.filter(|&other| better(other, found)) {
                    said.push(format!(
                        "{} simulated better than these shares: {} against {}",
                        super::text::label(division.name),
                        self.show(other),
                        self.show(found)
                    ));
                }
            }
        }
        let missed: Vec<&str> = (0..self.known.volumes.len())
            .filter(|&v| self.target_met(v) == Some(false))
            .map(|v| self.known.volumes[v].name.as_str())
            .collect();
        if !missed.is_empty() {
            said.push(format!("the target is not met for {}", missed.join(", ")));
        }
        said.extend(self.not_simulated.clone());
        said
    }

    /// What was taken for granted, a sentence each.
    pub fn assumed(&self) -> Vec<String> {
        let mut said = vec![
            format!("the flash device is a {}, which all volumes share", self.args.flash_device),
            format!(
                "every volume has a {} as a backing store of its own",
                self.args.backing_device
            ),
            match self.args.memory.as_str() {
                "none" => "memory takes no time".to_string(),
                name => format!("memory is {name}"),
            },
        ];
        said.push(match (self.args.evaluating.evaluate, self.args.queue_depth()) {
            (Evaluate::Analytic, None) => "nothing waits for anything else".into(),
            (Evaluate::Analytic, Some(depth)) => {
                format!("latencies are without waiting, requests per second with {depth} in flight")
            }
            (Evaluate::Simulate, Some(depth)) => {
                format!("each volume is simulated alone with its share, {depth} requests in flight")
            }
            (Evaluate::Simulate, None) => {
                let rate = self.args.evaluating.rate.unwrap_or(1.0);
                let pace =
                    if rate == 1.0 { String::new() } else { format!(" {rate} times as fast") };
                format!(
                    "each volume is simulated with a cache of its own as large as its share, side \
                     by side at the trace's times{pace}"
                )
            }
        });
        said
    }

    pub fn document(&self) -> Document {
        let (sizes, predicted, simulated) = self.found();
        let options = *self.problem.options();
        let objectives = self.divisions[0].objectives(&self.problem);
        let volumes = (0..sizes.len()).zip(self.curves()).map(|(v, curves)| {
            let simulated = simulated.map(|s| &s[v]);
            let curve = self.problem.curve(v);
            VolumeRow {
                volume: self.known.volumes[v].name.clone(),
                dram_bytes: sizes[v].dram_bytes,
                flash_bytes: sizes[v].flash_bytes,
                predicted_latency_us: predicted[v].latency_us,
                hit_ratio: predicted[v].hit_ratio(),
                dram_hit_ratio: predicted[v].dram_hit_ratio(),
                flash_hit_ratio: predicted[v].flash_hit_ratio(),
                predicted_iops: predicted[v].iops,
                simulated_latency_us: simulated.map(|o| o.latency_us),
                simulated_hit_ratio: simulated.map(Outcome::hit_ratio),
                simulated_iops: simulated.map(|o| o.iops),
                target_us: self.problem.target_us(v),
                target_met: self.target_met(v),
                requests: curve.requests(),
                reads: curve.own.read.accesses(),
                writes: curve.own.write.accesses(),
                distinct_bytes: curve.own.distinct_blocks << options.block_size.shift(),
                useful_bytes: curve.useful_blocks() << options.block_size.shift(),
                model: self.problem.latencies(v, sizes[v], &predicted[v]),
                miss_ratios: curves.miss_ratios,
                latencies: curves.latencies,
            }
        });
        Document {
            goal: name_of(&self.args.goal),
            objective: objectives[0],
            objective_name: self.problem.objective_name(),
            objective_bound: self.bound(),
            simulated_objective: objectives[1],
            search: name_of(&self.args.searching.search),
            evaluations: self.solution.evaluations,
            weigh: name_of(&self.args.weigh()),
            policy: name_of(&self.args.policy),
            evaluate: name_of(&self.args.evaluating.evaluate),
            converged: self.iterated.as_ref().map(|i| i.converged),
            rounds: self.iterated.iter().flat_map(|i| &i.rounds).map(RoundRow::new).collect(),
            targets_met: (0..sizes.len()).filter_map(|v| self.target_met(v)).reduce(|a, b| a && b),
            dram_bytes: options.sizes.dram_bytes,
            flash_bytes: options.sizes.flash_bytes,
            units: options.units,
            unallocated: self.left(),
            block_size: options.block_size.bytes(),
            requests: self.profile.requests,
            duration_s: self.profile.duration.as_secs_f64(),
            volumes: volumes.collect(),
            baselines: self.divisions[1..].iter().map(|d| self.baseline(d)).collect(),
            assumed: self.assumed(),
        }
    }

    fn baseline(&self, division: &Division) -> Baseline {
        let [objective, simulated_objective] = division.objectives(&self.problem);
        let at = |o: &Option<Vec<Outcome>>, v: usize| o.as_ref().map(|o| o[v]);
        let volumes = self.known.volumes.iter().enumerate().map(|(v, known)| {
            let (predicted, simulated) = (at(&division.predicted, v), at(&division.simulated, v));
            let sizes = division.sizes.as_ref().map(|s| s[v]);
            BaselineRow {
                volume: known.name.clone(),
                dram_bytes: sizes.map(|s| s.dram_bytes),
                flash_bytes: sizes.map(|s| s.flash_bytes),
                predicted_latency_us: predicted.map(|o| o.latency_us),
                hit_ratio: predicted.as_ref().map(Outcome::hit_ratio),
                predicted_iops: predicted.map(|o| o.iops),
                simulated_latency_us: simulated.map(|o| o.latency_us),
                simulated_hit_ratio: simulated.as_ref().map(Outcome::hit_ratio),
                simulated_iops: simulated.map(|o| o.iops),
            }
        });
        Baseline { name: division.name, objective, simulated_objective, volumes: volumes.collect() }
    }

    /// One row per division and volume.
    pub fn rows(&self) -> Rows {
        let baselines: Vec<Baseline> = self.divisions.iter().map(|d| self.baseline(d)).collect();
        let rows: Vec<(&Baseline, usize)> =
            baselines.iter().flat_map(|b| (0..b.volumes.len()).map(move |v| (b, v))).collect();
        let real =
            |f: fn(&BaselineRow) -> Option<f64>| rows.iter().map(move |(b, v)| f(&b.volumes[*v]));
        Rows::default()
            .texts("division", rows.iter().map(|(b, _)| b.name))
            .texts("volume", rows.iter().map(|(b, v)| b.volumes[*v].volume.as_str()))
            .integers("requests", rows.iter().map(|&(_, v)| self.problem.curve(v).requests()))
            .optional_reals("dram_bytes", real(|r| r.dram_bytes.map(|b| b as f64)))
            .optional_reals("flash_bytes", real(|r| r.flash_bytes.map(|b| b as f64)))
            .optional_reals("hit_ratio", real(|r| r.hit_ratio))
            .optional_reals("predicted_latency_us", real(|r| r.predicted_latency_us))
            .optional_reals("predicted_iops", real(|r| r.predicted_iops))
            .optional_reals("simulated_hit_ratio", real(|r| r.simulated_hit_ratio))
            .optional_reals("simulated_latency_us", real(|r| r.simulated_latency_us))
            .optional_reals("simulated_iops", real(|r| r.simulated_iops))
            .optional_reals("target_us", rows.iter().map(|&(_, v)| self.problem.target_us(v)))
    }
}

/// Who waits for a search: sees how far it is, and may end it.
struct Waiting<'a> {
    ctx: &'a Context,
    /// A part of the search, by how many steps it has.
    shown: Option<(u64, Progress)>,
}

impl Waiting<'_> {
    fn see(&mut self, done: u64, total: u64) -> Result<(), BoxError> {
        self.ctx.go_on()?;
        if done >= total {
            self.shown = None;
            return Ok(());
        }
        if self.shown.as_ref().is_none_or(|(of, _)| *of != total) {
            self.shown = None;
            let progress = self.ctx.progress("searching", Unit::Count, Some(total));
            self.shown = Some((total, progress));
        }
        if let Some((_, progress)) = &self.shown {
            progress.set(done);
        }
        Ok(())
    }
}

fn refused(error: PlanError) -> CliError {
    match error {
        PlanError::Floors => CliError::usage(error).next("lower --floor or --dram-floor"),
        PlanError::TooManySteps { .. } | PlanError::TooManyBudgets { .. } => {
            CliError::usage(error).next("give a larger --unit and --dram-unit, or --search anneal")
        }
        error => CliError::from(error),
    }
}

/// A value of a command-line option as it is typed.
pub fn name_of(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |v| v.get_name().to_string())
}

/// How the search is called in text.
pub fn search_name(search: Search) -> &'static str {
    match search {
        Search::Exact => "exact (dynamic programming)",
        Search::Anneal => "simulated annealing",
    }
}

/// The JSON document.
#[derive(Serialize)]
pub struct Document {
    goal: String,
    objective: Option<f64>,
    /// What the objective is, with its unit.
    objective_name: &'static str,
    /// No division in finer units has a better one; null where that is not known.
    objective_bound: Option<f64>,
    simulated_objective: Option<f64>,
    search: String,
    evaluations: u64,
    weigh: String,
    policy: String,
    evaluate: String,
    converged: Option<bool>,
    rounds: Vec<RoundRow>,
    targets_met: Option<bool>,
    dram_bytes: u64,
    flash_bytes: u64,
    units: Sizes,
    unallocated: Sizes,
    block_size: u64,
    requests: u64,
    duration_s: f64,
    volumes: Vec<VolumeRow>,
    baselines: Vec<Baseline>,
    assumed: Vec<String>,
}

#[derive(Serialize)]
struct VolumeRow {
    volume: String,
    dram_bytes: u64,
    flash_bytes: u64,
    predicted_latency_us: f64,
    hit_ratio: f64,
    dram_hit_ratio: f64,
    flash_hit_ratio: f64,
    predicted_iops: f64,
    simulated_latency_us: Option<f64>,
    simulated_hit_ratio: Option<f64>,
    simulated_iops: Option<f64>,
    target_us: Option<f64>,
    target_met: Option<bool>,
    requests: u64,
    reads: u64,
    writes: u64,
    distinct_bytes: u64,
    /// More than this brings nothing.
    useful_bytes: u64,
    /// What requests take by where they find their blocks, by which it was predicted.
    model: LoadPoint,
    /// Bytes of memory and flash with the miss ratio, by request.
    miss_ratios: Vec<(u64, f64)>,
    /// Bytes of flash with the mean latency in microseconds, the memory being as it is; of memory
    /// without flash.
    latencies: Vec<(u64, f64)>,
}

#[derive(Serialize)]
struct RoundRow {
    predicted_objective: f64,
    simulated_objective: f64,
    deviation: f64,
    sizes: Vec<Sizes>,
}

impl RoundRow {
    fn new(round: &forebay_plan::partition::Round) -> Self {
        let [predicted_objective, simulated_objective] = round.objective;
        let (deviation, sizes) = (round.deviation, round.sizes.clone());
        Self { predicted_objective, simulated_objective, deviation, sizes }
    }
}

#[derive(Serialize)]
struct Baseline {
    name: &'static str,
    objective: Option<f64>,
    simulated_objective: Option<f64>,
    volumes: Vec<BaselineRow>,
}

#[derive(Serialize)]
struct BaselineRow {
    volume: String,
    dram_bytes: Option<u64>,
    flash_bytes: Option<u64>,
    predicted_latency_us: Option<f64>,
    hit_ratio: Option<f64>,
    predicted_iops: Option<f64>,
    simulated_latency_us: Option<f64>,
    simulated_hit_ratio: Option<f64>,
    simulated_iops: Option<f64>,
}
