//! What a plan says, as data.

use forebay_plan::{
    Budget, Catalogue, Choice, Combination, Front as Points, Hierarchy, HitCounts, Judge, Judged,
    ParetoPoint, Plan, PlanError, PlanOptions, Profile, Space, Units, budget_range, full_usd,
    judge_finalists, pareto_front, plan, plan_with,
};
use serde::Serialize;

use super::{Args, Evaluate, Method, Policy};
use crate::context::Context;
use crate::error::CliError;
use crate::rows::Rows;

/// Choices that are judged by something slower unless the user says otherwise.
const FINALISTS: u64 = 3;
/// Budgets of a sweep unless the user says otherwise.
const SWEEP: usize = 24;

/// The plans and what they were made from.
pub struct Answer<'a> {
    pub args: &'a Args,
    pub profile: &'a Profile,
    pub catalogue: Catalogue,
    pub combinations: Vec<Combination>,
    pub options: PlanOptions,
    /// What DRAM for all data would cost.
    pub full_usd: f64,
    /// One per budget asked for.
    pub plans: Vec<Plan>,
    /// One per budget of the sweep, ascending.
    pub sweep: Vec<Plan>,
    /// Purchases that were simulated or replayed.
    pub judgements: u64,
    /// One per backing store, with the hierarchies that its points index.
    pub pareto: Vec<Front>,
}

/// The Pareto front in front of one backing store.
pub struct Front {
    pub backing: String,
    pub hierarchies: Vec<Hierarchy>,
    pub points: Vec<ParetoPoint>,
    /// Whether all sizes were looked at.
    pub is_exact: bool,
}

impl<'a> Answer<'a> {
    pub fn new(
        args: &'a Args,
        ctx: &Context,
        profile: &'a Profile,
        catalogue: Catalogue,
        combinations: Vec<Combination>,
        options: PlanOptions,
    ) -> Result<Self, CliError> {
        let mut answer = Self::unplanned(args, profile, catalogue, combinations, options);
        for budget in &args.budget {
            ctx.check()?;
            let usd = budget.usd(profile, &answer.catalogue, &answer.options.cost);
            answer.plans.push(answer.plan(usd).map_err(|error| refused(error, *budget))?);
        }
        let pictures = args.output.html.is_some() || args.output.parquet.is_some();
        if let Some(count) = args.sweep.or(pictures.then_some(SWEEP)) {
            for usd in answer.sweep_budgets(count)? {
                ctx.check()?;
                answer.sweep.push(answer.plan(usd)?);
            }
        }
        if args.pareto || args.output.html.is_some() {
            answer.pareto = answer.fronts()?;
        }
        Ok(answer)
    }

    /// What plans are made from, without any.
    pub fn unplanned(
        args: &'a Args,
        profile: &'a Profile,
        catalogue: Catalogue,
        combinations: Vec<Combination>,
        options: PlanOptions,
    ) -> Self {
        let full_usd = full_usd(profile, &catalogue, &options.cost);
        Self {
            args,
            profile,
            catalogue,
            combinations,
            options,
            full_usd,
            plans: Vec::new(),
            sweep: Vec::new(),
            judgements: 0,
            pareto: Vec::new(),
        }
    }

    /// Has the budgets asked for judged by something slower than formulas: after an exhaustive
    /// search its finalists, and of Cydonia every evaluation.
    pub fn judge(&mut self, judge: &mut Judge<'_>) -> Result<(), CliError> {
        let by = evaluate_name(self.args.evaluate);
        let mut known: Vec<(Hierarchy, Vec<Units>, Option<Judged>)> = Vec::new();
        let mut once = |hierarchy: &Hierarchy, sizes: &[Units]| {
            let seen = known.iter().find(|(h, s, _)| h == hierarchy && s == sizes);
            if let Some((.., judged)) = seen {
                return Ok(judged.clone());
            }
            let judged = judge(hierarchy, sizes)?;
            known.push((hierarchy.clone(), sizes.to_vec(), judged.clone()));
            Ok(judged)
        };
        let mut plans = std::mem::take(&mut self.plans);
        for plan in &mut plans {
            let finalists = match self.args.method {
                Method::Exhaustive => {
                    usize::try_from(self.args.finalists.unwrap_or(FINALISTS)).unwrap_or(usize::MAX)
                }
                Method::Cydonia => {
                    let mut evaluator = |hierarchy: &Hierarchy, sizes: &[Units]| {
                        let (hierarchy, sizes) = bought(hierarchy, sizes);
                        // What there is no such cache for is not to be found.
                        Ok(once(&hierarchy, &sizes)?.map_or(f64::INFINITY, |j| j.mean_latency_us))
                    };
                    *plan = plan_with(
                        self.profile,
                        &self.catalogue,
                        &self.combinations,
                        plan.budget_usd,
                        &self.options,
                        &mut evaluator,
                    )?;
                    usize::MAX
                }
            };
            judge_finalists(plan, &self.catalogue, &self.options, (finalists, by), &mut once)?;
        }
        self.plans = plans;
        self.judgements = known.iter().filter(|(.., judged)| judged.is_some()).count() as u64;
        Ok(())
    }

    fn plan(&self, usd: f64) -> Result<Plan, PlanError> {
        plan(self.profile, &self.catalogue, &self.combinations, usd, &self.options)
    }

    /// From what buys a few units of the dearest first tier to what buys enough for all data.
    fn sweep_budgets(&self, count: usize) -> Result<Vec<f64>, CliError> {
        let mut entry_usd = 0.0_f64;
        for combination in &self.combinations {
            let tier1 = self.catalogue.device(&combination.tiers[0])?;
            entry_usd = entry_usd.max(self.options.cost.unit_usd(0, tier1, tier1));
        }
        let highest = self.full_usd.max(entry_usd);
        let lowest = entry_usd.max(highest / 200.0).min(highest);
        // A hair more, so that rounding does not cost the smallest budget its only unit.
        Ok(budget_range(lowest * (1.0 + 1e-9), highest * (1.0 + 1e-9), count))
    }

    /// Backing stores in the order in which combinations name them.
    pub fn backings(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for combination in &self.combinations {
            if !names.contains(&combination.backing.as_str()) {
                names.push(&combination.backing);
            }
        }
        names
    }

    fn fronts(&self) -> Result<Vec<Front>, CliError> {
        let mut fronts = Vec::new();
        for backing in self.backings() {
            let combinations = self.combinations.iter().filter(|c| c.backing == backing);
            let hierarchies: Vec<Hierarchy> = combinations
                .map(|c| Hierarchy::new(&self.catalogue, c, self.options.policy))
                .collect::<Result<_, _>>()?;
            let budgets: Vec<f64> =
                self.plans.iter().chain(&self.sweep).map(|p| p.budget_usd).collect();
            let dearest = self.plans.iter().map(|p| p.budget_usd).fold(0.0, f64::max);
            let Points { points, is_exact, .. } =
                pareto_front(self.profile, &hierarchies, &self.options, dearest, &budgets)?;
            fronts.push(Front { backing: backing.to_string(), hierarchies, points, is_exact });
        }
        Ok(fronts)
    }

    /// The hierarchy of a choice and what its plan's budget buys of it.
    pub fn with_space<T>(
        &self,
        choice: &Choice,
        budget_usd: f64,
        work: impl FnOnce(&Space<'_>) -> T,
    ) -> Result<T, PlanError> {
        let combination = Combination {
            tiers: choice.purchase.tiers.iter().map(|t| t.device.clone()).collect(),
            backing: choice.purchase.backing.clone(),
        };
        let hierarchy = Hierarchy::new(&self.catalogue, &combination, self.options.policy)?;
        let space = Space::new(self.profile, &hierarchy, &self.options.cost, budget_usd)?;
        Ok(work(&space))
    }

    fn judged_by(&self, evaluate: Evaluate) -> u64 {
        if self.args.evaluate == evaluate { self.judgements } else { 0 }
    }

    pub fn document(&self) -> Document<'_> {
        let profile = self.profile;
        let block = self.options.cost.block_size.bytes();
        Document {
            policy: policy_name(self.args.policy),
            method: method_name(self.args.method),
            evaluate: evaluate_name(self.args.evaluate),
            simulations: self.judged_by(Evaluate::Simulate),
            replays: self.judged_by(Evaluate::Replay),
            block_size: block,
            metadata_bytes_per_block: self.metadata_bytes(),
            requests: profile.requests(),
            accesses: profile.reads() + profile.writes(),
            writes: profile.writes(),
            footprint_bytes: profile.footprint_blocks() * block,
            duration_s: profile.duration().as_secs_f64(),
            sampled_rate: profile.options().sample_rate,
            full_cost_usd: self.full_usd,
            plan: &self.plans[0],
            plans: if self.plans.len() > 1 { &self.plans } else { &[] },
            sweep: &self.sweep,
            wear_max: self.options.wear_max,
            pareto_is_exact: self.args.pareto.then(|| self.pareto.iter().all(|f| f.is_exact)),
            pareto: if self.args.pareto { self.pareto_rows() } else { Vec::new() },
        }
    }

    /// By tier.
    pub fn metadata_bytes(&self) -> Vec<u64> {
        let tiers = self.combinations.iter().map(|c| c.tiers.len()).max().unwrap_or(1);
        (0..tiers).map(|tier| self.options.cost.metadata.of(tier)).collect()
    }

    pub fn pareto_rows(&self) -> Vec<ParetoRow<'_>> {
        let rows = |front| self.rows_of(front, |points| points.iter().collect());
        self.pareto.iter().flat_map(rows).collect()
    }

    /// Of one front, the points that are chosen.
    pub fn rows_of<'b>(
        &self,
        front: &'b Front,
        chosen: impl FnOnce(&'b [ParetoPoint]) -> Vec<&'b ParetoPoint>,
    ) -> Vec<ParetoRow<'b>> {
        let row = |p: &'b ParetoPoint| {
            let tiers = &front.hierarchies[p.hierarchy].tiers;
            let tiers = tiers.iter().zip(&p.tier_bytes);
            ParetoRow {
                backing: &front.backing,
                tiers: tiers.map(|(d, &bytes)| ParetoTier { device: &d.name, bytes }).collect(),
                cost_usd: p.cost_usd,
                mean_latency_us: p.mean_latency_us,
                p99_latency_us: p.p99_latency_us,
                drive_writes_per_day: self.per_day(p.drive_writes),
                flash_bytes_written_per_day: self.per_day(p.flash_bytes_written as f64),
            }
        };
        chosen(&front.points).into_iter().map(row).collect()
    }

    pub fn per_day(&self, amount: f64) -> Option<f64> {
        let days = self.profile.duration().as_secs_f64() / 86_400.0;
        (days > 0.0).then(|| amount / days)
    }

    /// One row per budget and combination, of the budgets asked for and of the sweep.
    pub fn rows(&self) -> Rows {
        let rows: Vec<(&Plan, &Choice)> = self
            .plans
            .iter()
            .chain(&self.sweep)
            .flat_map(|plan| plan.choices.iter().map(move |choice| (plan, choice)))
            .collect();
        let names: Vec<String> = rows
            .iter()
            .map(|(_, c)| {
                let names = c.purchase.tiers.iter().map(|t| t.device.as_str());
                names.collect::<Vec<_>>().join("+")
            })
            .collect();
        let bytes = |tier: usize| {
            rows.iter().map(move |(_, c)| c.purchase.tiers.get(tier).map_or(0, |t| t.bytes))
        };
        let real = |f: fn(&Plan, &Choice) -> f64| rows.iter().map(move |(p, c)| f(p, c));
        Rows::default()
            .reals("budget_usd", real(|p, _| p.budget_usd))
            .texts("tiers", names.iter().map(String::as_str))
            .texts("backing", rows.iter().map(|(_, c)| c.purchase.backing.as_str()))
            .integers("tier1_bytes", bytes(0))
            .integers("tier2_bytes", bytes(1))
            .integers("tier3_bytes", bytes(2))
            .integers("tier4_bytes", bytes(3))
            .reals("cost_usd", real(|_, c| c.purchase.cost_usd))
            .reals("mean_latency_us", real(|_, c| c.purchase.mean_latency_us))
            .reals("baseline_latency_us", real(|_, c| c.baseline.mean_latency_us))
            .texts("judged_by", rows.iter().map(|(_, c)| &*c.purchase.judged_by))
            .reals("analytic_latency_us", real(|_, c| c.purchase.analytic_latency_us))
            .texts("class", rows.iter().map(|(_, c)| c.purchase.class.name()))
            .reals("tier1_hit_ratio", real(|_, c| c.purchase.hit_ratio[0]))
            .reals("hit_ratio", real(|_, c| c.purchase.hit_ratio.iter().sum()))
            .reals(
                "flash_bytes_written_per_day",
                real(|_, c| c.purchase.flash_bytes_written_per_day.unwrap_or(f64::NAN)),
            )
            .optional_reals(
                "drive_writes_per_day",
                rows.iter().map(|(_, c)| c.purchase.drive_writes_per_day),
            )
            .reals("p99_latency_us", real(|_, c| c.purchase.p99_latency_us))
            .reals("p999_latency_us", real(|_, c| c.purchase.p999_latency_us))
            .integers("evaluations", rows.iter().map(|(_, c)| c.evaluations))
    }
}

/// The tiers that have a size.
fn bought(hierarchy: &Hierarchy, sizes: &[Units]) -> (Hierarchy, Vec<Units>) {
    let there = |tier: &usize| sizes.get(*tier).is_some_and(|size| size.0 > 0);
    let kept: Vec<usize> = (0..hierarchy.tiers.len()).filter(there).collect();
    let tiers = kept.iter().map(|&tier| hierarchy.tiers[tier].clone()).collect();
    let sizes = kept.iter().map(|&tier| sizes[tier]).collect();
    (Hierarchy { tiers, ..hierarchy.clone() }, sizes)
}

/// A budget that was given as a percentage is refused only once its amount is known.
pub fn refused(error: PlanError, budget: Budget) -> CliError {
    match error {
        PlanError::BuysNothing { .. } | PlanError::NotABudget(_) => {
            let error = CliError::usage(error);
            match budget {
                Budget::Fraction(_) => error.next("raise the percentage, or give dollars"),
                _ => error,
            }
        }
        error @ PlanError::CydoniaTiers(_) => CliError::usage(error),
        error => CliError::from(error),
    }
}

pub fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::WriteThrough => "write-through",
        Policy::WriteBack => "write-back",
    }
}

pub fn evaluate_name(evaluate: Evaluate) -> &'static str {
    match evaluate {
        Evaluate::Analytic => "analytic",
        Evaluate::Simulate => "simulate",
        Evaluate::Replay => "replay",
    }
}

pub fn method_name(method: Method) -> &'static str {
    match method {
        Method::Cydonia => "cydonia",
        Method::Exhaustive => "exhaustive",
    }
}

/// The JSON document. The first budget's plan stands at the top; with several budgets, all of
/// them are in `plans`.
#[derive(Serialize)]
pub struct Document<'a> {
    policy: &'static str,
    method: &'static str,
    evaluate: &'static str,
    /// Purchases that were simulated, single tiers among them.
    simulations: u64,
    /// Purchases that were replayed, single tiers among them.
    replays: u64,
    block_size: u64,
    /// By tier, as far as combinations have tiers.
    metadata_bytes_per_block: Vec<u64>,
    requests: u64,
    accesses: u64,
    writes: u64,
    footprint_bytes: u64,
    duration_s: f64,
    sampled_rate: f64,
    full_cost_usd: f64,
    #[serde(flatten)]
    plan: &'a Plan,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    plans: &'a [Plan],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    sweep: &'a [Plan],
    /// The limit to wear.
    wear_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pareto_is_exact: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pareto: Vec<ParetoRow<'a>>,
}

#[derive(Serialize)]
pub struct ParetoRow<'a> {
    tiers: Vec<ParetoTier<'a>>,
    pub backing: &'a str,
    pub cost_usd: f64,
    pub mean_latency_us: f64,
    pub p99_latency_us: f64,
    pub drive_writes_per_day: Option<f64>,
    pub flash_bytes_written_per_day: Option<f64>,
}

impl ParetoRow<'_> {
    /// What is bought.
    pub fn buy(&self) -> String {
        super::text::tier_names(self.tiers.iter().map(|t| (t.device, t.bytes)))
    }
}

#[derive(Serialize)]
struct ParetoTier<'a> {
    device: &'a str,
    bytes: u64,
}
