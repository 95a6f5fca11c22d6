//! Which tiers to buy for a workload and a budget?
//!
//! ```
//! use forebay_analysis::{Unobserved, plan};
//! use forebay_plan::Catalogue;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let trace = dir.path().join("trace.csv");
//! # let start = 128_166_372_000_000_000;
//! # let line = |n: u64| format!("{},host,0,Read,{},4096,10\n", start + n * 10_000, n % 300 * 4096);
//! # let text: String = (0..2000).map(line).collect();
//! # std::fs::write(&trace, text)?;
//! let catalogue = Catalogue::default();
//! let combinations = plan::combinations(&catalogue, &[], &["SlowHDD".into()])?;
//! let half = "50%".parse()?; // of what DRAM for all data would cost
//! let question = plan::Question::new(trace.as_path().into(), catalogue, combinations, vec![half]);
//! let answer = question.ask(&Unobserved::default())?;
//! let best = &answer.plans[0].choices[0].purchase;
//! assert!(best.mean_latency_us > 0.0 && best.cost_usd <= answer.plans[0].budget_usd);
//! # Ok(())
//! # }
//! ```

mod answer;
mod cache;
mod document;
pub mod growth;
mod replayed;
mod simulated;
pub mod study;

use std::sync::Arc;

use forebay_block::Op;
use forebay_config::Config;
use forebay_plan::{
    Budget, Catalogue, Combination, DeviceKind, Hierarchy, HitCounts, JudgedBy, Method, PlanError,
    PlanOptions, Profile, ProfileBuilder, ProfileOptions, Purchase, WritePolicy, budget_range,
    check_budget, full_usd, pareto_front, plan,
};
use forebay_replay::{Survey, VolumeSurvey};
use forebay_simulate::TracedVolume;

use crate::note::tell_not_sampled;
use crate::{AnalysisError, Described, Observer, Traces};
pub use answer::{Answer, Basis, Chosen, Front, Row};
pub use document::{Document, ParetoRow, ParetoTier};
pub use replayed::Replay;
use replayed::Replayer;
use simulated::Simulator;

/// Number of choices that simulation or replay judges by default.
pub const SHORTLIST: usize = 3;

/// How the best choices are judged.
#[derive(Clone, Debug, Default)]
pub enum Evaluate {
    /// From the curves and the devices' latencies.
    #[default]
    Analytic,
    /// By simulating the cache.
    Simulate {
        /// How many choices of each budget are simulated after an exhaustive search; Cydonia has every
        /// evaluation simulated.
        shortlist: usize,
        /// What the cache is, but for its sizes, its write policy and its devices, which are the plan's:
        /// policies, admission, the relation of the tiers, the layout of flash. The default cache, if none.
        cache: Option<Box<Config>>,
    },
    /// By replaying the traces on real files and devices.
    Replay {
        /// How many choices of each budget are replayed after an exhaustive search; Cydonia has every
        /// evaluation replayed.
        shortlist: usize,
        /// What the traces are replayed against.
        replay: Box<Replay>,
    },
}

impl Evaluate {
    /// What it is that judges.
    pub const fn judged_by(&self) -> JudgedBy {
        match self {
            Self::Analytic => JudgedBy::Analytic,
            Self::Simulate { .. } => JudgedBy::Simulate,
            Self::Replay { .. } => JudgedBy::Replay,
        }
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The workload.
    pub traces: Traces,
    /// The devices that there are to buy.
    pub catalogue: Catalogue,
    /// What may be combined; [`combinations`] chooses by name.
    pub combinations: Vec<Combination>,
    /// What may be spent: one plan each, at least one.
    pub budgets: Vec<Budget>,
    /// Write policy, search, costs and the limit to wear; the duration is that of the traces.
    pub options: PlanOptions,
    /// The share of the blocks that is looked at.
    pub sample_rate: f64,
    /// How the best choices are judged.
    pub evaluate: Evaluate,
    /// Number of further budgets, from one that buys little to one that buys enough for all data. Those that
    /// buy nothing, or only what wears out, have no plan.
    pub sweep: Option<usize>,
    /// Whether to look for the plans that no other beats in one of cost, mean latency, 99th
    /// percentile and drive writes without losing in another.
    pub pareto: bool,
}

/// A workload that was measured, once for any number of plans.
#[derive(Debug)]
pub struct Workload {
    /// Hits by size, shared by all plans made of it.
    pub profile: Arc<Profile>,
    /// What was read.
    pub described: Described,
    /// Extents of the volumes; empty if nothing is simulated or replayed.
    survey: Survey,
}

/// The combinations of these tiers, fastest first, in front of these backing stores, by the names
/// in the catalogue. No tiers: all that the catalogue combines.
///
/// # Errors
/// If the catalogue has no such device or combination, or no backing store is named where the
/// catalogue combines none with these tiers.
pub fn combinations(
    catalogue: &Catalogue,
    tiers: &[String],
    backing: &[String],
) -> Result<Vec<Combination>, AnalysisError> {
    for name in tiers.iter().chain(backing) {
        catalogue.device(name)?;
    }
    if backing.is_empty() && (!tiers.is_empty() || !catalogue.names_combinations()) {
        return Err(AnalysisError::NoBacking);
    }
    let wanted = |name: &String| backing.is_empty() || backing.contains(name);
    let found: Vec<Combination> = if tiers.is_empty() {
        catalogue.combinations().iter().filter(|c| wanted(&c.backing)).cloned().collect()
    } else {
        let durable = catalogue.devices().iter().filter(|d| d.kind != DeviceKind::Dram);
        let stores = durable.filter(|d| wanted(&d.name) && !tiers.contains(&d.name));
        let of = |backing: String| Combination { tiers: tiers.to_vec(), backing };
        stores.map(|d| of(d.name.clone())).collect()
    };
    if found.is_empty() { Err(AnalysisError::NoCombination) } else { Ok(found) }
}

impl Question {
    /// Formulas, write-through, and only the plans.
    pub fn new(
        traces: Traces,
        catalogue: Catalogue,
        combinations: Vec<Combination>,
        budgets: Vec<Budget>,
    ) -> Self {
        Self {
            traces,
            catalogue,
            combinations,
            budgets,
            options: PlanOptions::default(),
            sample_rate: 1.0,
            evaluate: Evaluate::default(),
            sweep: None,
            pareto: false,
        }
    }

    /// Refuses what cannot be planned for, before traces are read.
    ///
    /// # Errors
    /// If there is no budget, the search cannot be, a budget buys nothing, or a replay is not on the
    /// devices of the one combination or may not be.
    pub fn check(&self) -> Result<(), AnalysisError> {
        self.check_search()?;
        for budget in &self.budgets {
            if let Budget::Usd(usd) = budget {
                check_budget(&self.catalogue, &self.combinations, *usd, &self.options.cost)
                    .map_err(|error| AnalysisError::Refused { error, budget: *budget })?;
            }
        }
        Ok(())
    }

    /// [`check`](Self::check), but for the budgets.
    pub(super) fn check_search(&self) -> Result<(), AnalysisError> {
        if self.budgets.is_empty() {
            return Err(AnalysisError::NoBudget);
        }
        let more = self.combinations.iter().find(|c| c.tiers.len() > 2);
        if let (Method::Cydonia(_), Some(more)) = (self.options.method, more) {
            return Err(PlanError::CydoniaTiers(more.tiers.len()).into());
        }
        match &self.evaluate {
            Evaluate::Replay { replay, .. } => replay.check(&self.catalogue, &self.combinations),
            Evaluate::Analytic | Evaluate::Simulate { .. } => Ok(()),
        }
    }

    /// Measures, plans and judges: all of the others in their order.
    ///
    /// # Errors
    /// As [`check`](Self::check), [`measure`](Self::measure), [`plan`](Self::plan) and
    /// [`judge`](Self::judge).
    pub fn ask(&self, observer: &dyn Observer) -> Result<Answer, AnalysisError> {
        self.check()?;
        let workload = self.measure(observer)?;
        let mut answer = self.plan(&workload, observer)?;
        self.judge(&workload, &mut answer, observer)?;
        Ok(answer)
    }

    /// Reads the traces, once.
    ///
    /// # Errors
    /// If they cannot be read or measured, or the observer stops it.
    pub fn measure(&self, observer: &dyn Observer) -> Result<Workload, AnalysisError> {
        let mut profile = ProfileBuilder::new(ProfileOptions {
            block_size: self.options.cost.block_size,
            sample_rate: self.sample_rate,
            write_back: self.options.policy == WritePolicy::WriteBack,
        })?;
        let mut survey = Survey::default();
        let surveys = !matches!(self.evaluate, Evaluate::Analytic);
        let described = self.traces.read(observer, |request| -> Result<(), AnalysisError> {
            if surveys {
                survey.add(request);
            }
            Ok(profile.add(request)?)
        })?;
        survey.name_volumes(described.metadata.volumes.iter().map(|v| v.name.as_str()));
        let profile = profile.finish()?;
        for (op, accesses) in [(Op::Read, profile.reads()), (Op::Write, profile.writes())] {
            tell_not_sampled(op, accesses, profile.is_unsampled(op), observer);
        }
        Ok(Workload { profile: Arc::new(profile), described, survey })
    }

    /// Plans by formulas for each budget, and for the sweep and the fronts that are asked for.
    ///
    /// # Errors
    /// If there is no budget, one buys nothing, no plan can be made, or the observer stops it.
    pub fn plan(
        &self,
        workload: &Workload,
        observer: &dyn Observer,
    ) -> Result<Answer, AnalysisError> {
        if self.budgets.is_empty() {
            return Err(AnalysisError::NoBudget);
        }
        let mut basis = self.basis(&workload.profile);
        basis.options.flash_writes = self.flash_writes(&basis, workload, observer)?;
        let plan =
            |usd| plan(&*basis.profile, &basis.catalogue, &basis.combinations, usd, &basis.options);
        let mut plans = Vec::new();
        for &budget in &self.budgets {
            observer.check()?;
            let usd = budget.usd(&*basis.profile, &basis.catalogue, &basis.options.cost);
            plans.push(plan(usd).map_err(|error| AnalysisError::Refused { error, budget })?);
        }
        let mut sweep = Vec::new();
        if let Some(count) = self.sweep {
            for usd in sweep_budgets(&basis, count)? {
                observer.check()?;
                match plan(usd) {
                    // Nobody gave this budget: it has no plan to show.
                    Err(PlanError::WearsOut { .. } | PlanError::BuysNothing { .. }) => {}
                    found => sweep.push(found?),
                }
            }
        }
        let budgets: Vec<f64> = plans.iter().chain(&sweep).map(|p| p.budget_usd).collect();
        let dearest = plans.iter().map(|p| p.budget_usd).fold(0.0, f64::max);
        let pareto = if self.pareto { fronts(&basis, dearest, &budgets)? } else { Vec::new() };
        let judged_by = self.evaluate.judged_by();
        Ok(Answer { basis, judged_by, plans, sweep, judgements: 0, pareto })
    }

    /// Has the plans judged by simulations or replays, where that is asked for.
    ///
    /// # Errors
    /// If a simulation or a replay fails, or the observer stops it.
    pub fn judge(
        &self,
        workload: &Workload,
        answer: &mut Answer,
        observer: &dyn Observer,
    ) -> Result<(), AnalysisError> {
        let (traces, cost) = (&self.traces, self.options.cost);
        let duration = workload.profile.duration();
        match &self.evaluate {
            Evaluate::Simulate { shortlist, cache } => {
                let cache = simulated_cache(cache.as_deref())?;
                let simulator = self.simulator(&cache, workload, observer);
                answer.judge(*shortlist, &mut |h, sizes| simulator.judge(h, sizes))
            }
            Evaluate::Replay { shortlist, replay } => {
                let (survey, queue_depth) = (workload.survey.clone(), replay.queue_depth);
                let base = replay.config_of(&self.combinations[0]);
                let replayer =
                    Replayer { traces, observer, cost, base, survey, queue_depth, duration };
                let replayer = replayer.with_sizes().map_err(AnalysisError::Judging)?;
                answer.judge(*shortlist, &mut |h, sizes| replayer.judge(h, sizes))
            }
            Evaluate::Analytic => Ok(()),
        }
    }

    /// What the configured cache writes to flash, as a share of what the formulas count: by one simulation, of
    /// the fastest two tiers that the largest budget buys, whatever they wear. 1 where nothing is configured, or
    /// no limit asks for it.
    fn flash_writes(
        &self,
        basis: &Basis,
        workload: &Workload,
        observer: &dyn Observer,
    ) -> Result<f64, AnalysisError> {
        let Evaluate::Simulate { cache: Some(cache), .. } = &self.evaluate else { return Ok(1.0) };
        if basis.options.wear_limit().is_none() {
            return Ok(1.0);
        }
        let free = PlanOptions { wear_max: None, ..basis.options.clone() };
        let budgets = self.budgets.iter();
        let usd = budgets.map(|b| b.usd(&*basis.profile, &basis.catalogue, &free.cost));
        let largest = usd.fold(0.0, f64::max);
        let plan = plan(&*basis.profile, &basis.catalogue, &basis.combinations, largest, &free)?;
        let has_flash = |purchase: &Purchase| match purchase.tiers.as_slice() {
            [_, second] => purchase.flash_bytes_written_per_day > Some(0.0) && second.bytes > 0,
            _ => false,
        };
        let Some(choice) = plan.choices.iter().find(|choice| has_flash(&choice.purchase)) else {
            return Ok(1.0);
        };
        let cache = simulated_cache(Some(cache))?;
        let simulator = self.simulator(&cache, workload, observer);
        let (hierarchy, sizes) = choice.purchase.bought(&basis.catalogue, &free)?;
        let judged = simulator.judge(&hierarchy, &sizes).map_err(|source| {
            AnalysisError::from(PlanError::Evaluation { what: hierarchy.label(), source })
        })?;
        let blocks: Vec<u64> = sizes.iter().map(|s| s.0 * free.cost.unit_blocks()).collect();
        let by_formulas = hierarchy.evaluate(&*basis.profile, &blocks).blocks_written[1];
        let bytes = by_formulas as f64 * free.cost.block_size.bytes() as f64;
        let days = basis.options.duration.as_secs_f64() / 86_400.0;
        let written = judged.and_then(|judged| judged.bytes_written_per_day);
        Ok(written.map_or(1.0, |written| written[1] * days / bytes))
    }

    fn simulator<'a>(
        &'a self,
        cache: &'a Config,
        workload: &Workload,
        observer: &'a dyn Observer,
    ) -> Simulator<'a> {
        Simulator {
            traces: &self.traces,
            observer,
            cost: self.options.cost,
            cache,
            volumes: self.volumes(workload),
            requests: workload.described.requests,
            duration: workload.profile.duration(),
        }
    }

    /// The volumes as a simulation has them, in whole blocks.
    fn volumes(&self, workload: &Workload) -> Vec<TracedVolume> {
        let block = self.options.cost.block_size.bytes();
        let number = |at: usize| forebay_block::Volume(at as u32);
        let volume = |(at, volume): (usize, &VolumeSurvey)| TracedVolume {
            name: workload.described.volume_name(number(at)),
            bytes: volume.end_bytes.next_multiple_of(block),
        };
        workload.survey.volumes.iter().enumerate().map(volume).collect()
    }

    pub(super) fn basis(&self, profile: &Arc<Profile>) -> Basis {
        Basis {
            profile: Arc::clone(profile),
            catalogue: self.catalogue.clone(),
            combinations: self.combinations.clone(),
            options: PlanOptions { duration: profile.duration(), ..self.options.clone() },
            full_usd: full_usd(&**profile, &self.catalogue, &self.options.cost),
        }
    }
}

/// The cache that is simulated.
fn simulated_cache(configured: Option<&Config>) -> Result<Config, AnalysisError> {
    let usual = Config::from_toml("[flash]\npath = 'simulated'\n")?;
    let Some(mut config) = configured.cloned() else { return Ok(usual) };
    config.flash = config.flash.or(usual.flash);
    Ok(config)
}

/// From what buys a few units of the dearest first tier to what buys enough for all data.
fn sweep_budgets(basis: &Basis, count: usize) -> Result<Vec<f64>, AnalysisError> {
    let mut entry_usd = 0.0_f64;
    for combination in &basis.combinations {
        let tier1 = basis.catalogue.device(&combination.tiers[0])?;
        entry_usd = entry_usd.max(basis.options.cost.unit_usd(0, tier1, tier1));
    }
    let highest = basis.full_usd.max(entry_usd);
    let lowest = entry_usd.max(highest / 200.0).min(highest);
    // A hair more, so that rounding does not cost the smallest budget its only unit.
    Ok(budget_range(lowest * (1.0 + 1e-9), highest * (1.0 + 1e-9), count))
}

/// One for each backing store.
fn fronts(basis: &Basis, dearest: f64, budgets: &[f64]) -> Result<Vec<Front>, AnalysisError> {
    let mut fronts = Vec::new();
    for backing in basis.backings() {
        let combinations = basis.combinations.iter().filter(|c| c.backing == backing);
        let hierarchies: Vec<Hierarchy> = combinations
            .map(|c| Hierarchy::new(&basis.catalogue, c, basis.options.policy))
            .collect::<Result<_, _>>()?;
        let found = pareto_front(&*basis.profile, &hierarchies, &basis.options, dearest, budgets)?;
        let (points, is_exact) = (found.points, found.is_exact);
        fronts.push(Front { backing: backing.to_string(), hierarchies, points, is_exact });
    }
    Ok(fronts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unobserved;

    #[test]
    fn a_question_without_a_budget_is_refused_before_and_after_reading() {
        let trace = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(trace.path(), "time_ns,volume,op,offset,length\n0,a,read,0,4096\n").unwrap();
        let catalogue = Catalogue::default();
        let combinations = combinations(&catalogue, &[], &["SlowHDD".to_owned()]).unwrap();
        let question = Question::new(trace.path().into(), catalogue, combinations, Vec::new());
        let observer = Unobserved::default();
        assert!(matches!(question.check(), Err(AnalysisError::NoBudget)));
        let workload = question.measure(&observer).unwrap();
        let answer = question.plan(&workload, &observer);
        assert!(matches!(answer, Err(AnalysisError::NoBudget)));
        let growth = growth::Question { plan: question, have_bytes: 1 << 30 };
        assert!(matches!(growth.ask(&observer), Err(AnalysisError::NoBudget)));
    }

    #[test]
    fn budgets_of_a_sweep_that_buy_only_what_wears_out_are_left_out() {
        let device = |name: &str, kind: &str, price_usd, capacity_gb, us, more: &str| {
            format!(
                "[[device]]\nname = '{name}'\nkind = '{kind}'\nprice_usd = {price_usd}\n\
                 capacity_gb = {capacity_gb}\nread_latency_us = {us}\nwrite_latency_us = {us}\n{more}\n"
            )
        };
        let text = device("D", "dram", 120, 16, 0.06, "")
            + &device("F", "flash", 100, 400, 10.0, "drive_writes_per_day = 1")
            + &device("H", "hdd", 300, 8000, 2000.0, "")
            + "[[combination]]\ntiers = ['F']\nbacking = ['H']\n";
        let catalogue = Catalogue::parse(&text).unwrap();
        // 2,000 blocks are read twice in an hour: 190 MB of flash endure that, of which 8 MB are useful.
        let trace = tempfile::NamedTempFile::with_suffix(".csv").unwrap();
        let line = |n: u64| format!("{},a,read,{},4096\n", n * 900_000_000, n % 2000 * 4096);
        let lines: String = (0..4000).map(line).collect();
        std::fs::write(trace.path(), format!("time_ns,volume,op,offset,length\n{lines}")).unwrap();
        let combinations = combinations(&catalogue, &[], &[]).unwrap();
        let budgets = vec![Budget::Usd(1000.0)];
        let mut question = Question::new(trace.path().into(), catalogue, combinations, budgets);
        question.options.wear_max = Some(1.0);
        question.sweep = Some(8);
        let answer = question.ask(&Unobserved::default()).unwrap();
        assert_eq!(answer.plans.len(), 1);
        assert!((1..8).contains(&answer.sweep.len()), "{}", answer.sweep.len());
    }
}
