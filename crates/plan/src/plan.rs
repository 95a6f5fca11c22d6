//! Plans: the best purchase for a budget, over every combination of a catalogue.

use forebay_block::Nanos;
use forebay_locality::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::breakeven::BreakEven;
use crate::catalogue::{Catalogue, Combination};
use crate::cost::{CostModel, Units};
use crate::counts::HitCounts;
use crate::error::PlanError;
use crate::evaluate::{Analytic, Evaluator};
use crate::hierarchy::{Hierarchy, WritePolicy};
use crate::judged_by::JudgedBy;
use crate::ratio::{HitMiss, Tradeoff};
use crate::search::{CydoniaOptions, Found, cydonia, evaluate, exhaustive};
use crate::space::Space;
use crate::wear::{Enduring, SECONDS_PER_DAY, Wear, WearLimit};

/// How sizes are searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Every size. Of more than two tiers so many that about `points_max` points are tried.
    Exhaustive {
        /// Points per combination; two tiers are always searched in full.
        points_max: u64,
    },
    /// A few evaluations guided by hit-miss ratios; for two tiers.
    Cydonia(CydoniaOptions),
}

impl Method {
    /// As it is written in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exhaustive { .. } => "exhaustive",
            Self::Cydonia(_) => "cydonia",
        }
    }
}

/// What to plan for, apart from the workload.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanOptions {
    /// The write policy.
    pub policy: WritePolicy,
    /// How sizes are searched.
    pub method: Method,
    /// How sizes become dollars.
    pub cost: CostModel,
    /// How long the workload took: turns bytes written into bytes per day. Zero: not known.
    pub duration: Nanos,
    /// Flash that would use more of its rated endurance than this is not bought: 1 is what lasts as
    /// long as the maker says. None: whatever it uses. Without a duration nobody knows.
    pub wear_max: Option<f64>,
    /// What the cache writes to flash below tier 1, as a share of what the formulas count: 1 where every
    /// block enters, without headers and without rewriting. It changes what is said of wear, and no latency.
    pub flash_writes: f64,
}

impl PlanOptions {
    /// How fast flash may wear out, where that can be told.
    pub fn wear_limit(&self) -> Option<WearLimit> {
        let PlanOptions { duration, flash_writes, .. } = *self;
        let limit = |used_max| WearLimit { used_max, duration, flash_writes };
        self.wear_max.filter(|_| self.duration > Nanos(0)).map(limit)
    }
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            policy: WritePolicy::default(),
            method: Method::Exhaustive { points_max: 1 << 20 },
            cost: CostModel::default(),
            duration: Nanos(0),
            wear_max: None,
            flash_writes: 1.0,
        }
    }
}

/// The best purchases for one budget.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Plan {
    /// The budget, in US dollars.
    pub budget_usd: f64,
    /// The best sizes of each combination of devices, fastest first; `choices[0]` is the fastest of all,
    /// regardless of the backing store.
    pub choices: Vec<Choice>,
    /// The single tier of the same cost with which the first choice is compared.
    pub baseline: Purchase,
    /// Number of evaluated sizes, not counting single tiers.
    pub evaluations: u64,
    /// Names of the combinations for which the budget does not buy one unit of tier 1.
    pub unaffordable: Vec<String>,
    /// Names of the combinations for which everything that the budget can buy exceeds the wear limit
    /// (`wear_max`).
    pub wears_out: Vec<String>,
}

/// The best that one combination of devices gives for the budget.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Choice {
    /// The tiers to buy.
    #[serde(flatten)]
    pub purchase: Purchase,
    /// The single tier of the same cost and the same tier-1 device (tables call it "one tier, same cost").
    pub baseline: Purchase,
    /// The single tier that the whole budget buys, of the same tier-1 device. Where the formulas and a judge
    /// differ, it may turn out to be faster than the choice. If it is only one unit larger than the baseline,
    /// the baseline stands for it, so that nobody judges both.
    #[serde(skip)]
    pub whole_budget: Purchase,
    /// Latency that the choice saves, as a fraction of the baseline's latency.
    pub latency_reduction: f64,
    /// [Hit-miss ratio](docs/planning-reference.md#when-does-a-second-tier-help) of adding this tier 2 to
    /// this tier 1; null without a second tier, or if it is infinite.
    pub hit_miss_ratio: Option<f64>,
    /// [Overhead-gain ratio](docs/planning-reference.md#when-does-a-second-tier-help) of the devices; null
    /// without a second tier, or if hits in tier 2 save no time.
    pub overhead_gain_ratio: Option<f64>,
    /// Comparison of the cost with that of growing tier 1 instead; null if no single tier is as fast,
    /// or if tier 1 alone already is.
    pub break_even: Option<BreakEven>,
    /// A purchase that is faster according to the formulas but exceeds the wear limit (`wear_max`); null if
    /// there is none.
    pub wears_out: Option<Purchase>,
    /// Number of evaluated sizes of this combination, not counting the single tier.
    pub evaluations: u64,
}

/// Tiers of given sizes, what they cost and what they do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Purchase {
    /// The tiers, tier 1 first; a tier of 0 bytes is not bought.
    pub tiers: Vec<Tier>,
    /// The device of the backing store.
    pub backing: String,
    /// Cost of the tiers with their metadata, in US dollars.
    pub cost_usd: f64,
    /// Mean latency of a block access, by the method that `judged_by` names.
    pub mean_latency_us: f64,
    /// Mean latency according to the formulas, regardless of `judged_by`.
    pub analytic_latency_us: f64,
    /// How the purchase was last evaluated.
    pub judged_by: JudgedBy,
    /// With `--sample`, a confidence interval of about 95 % for the mean latency according to the formulas;
    /// otherwise null.
    pub mean_latency_us_bounds: Option<Interval>,
    /// 99th percentile of the latency ([Tail](docs/planning-reference.md#tail)): of block accesses in the
    /// formulas, of requests in a simulation or replay.
    pub p99_latency_us: f64,
    /// 99.9th percentile of the latency of the same accesses or requests.
    pub p999_latency_us: f64,
    /// Mean latency of reads according to the formulas, without write-backs.
    pub read_latency_us: f64,
    /// Mean latency of writes according to the formulas, without write-backs.
    pub write_latency_us: f64,
    /// The shape of the hierarchy.
    pub class: Class,
    /// For each tier, the share of all block accesses that hit there.
    pub hit_ratio: Vec<f64>,
    /// For each tier, the share of reads that hit there.
    pub read_hit_ratio: Vec<f64>,
    /// For each tier, the share of writes that hit there.
    pub write_hit_ratio: Vec<f64>,
    /// Bytes written to flash tiers per day ([Wear](docs/planning-reference.md#wear)); null if the duration
    /// is unknown.
    pub flash_bytes_written_per_day: Option<f64>,
    /// Drive writes per day of the most written flash tier; 0 without flash, null if the duration is
    /// unknown.
    pub drive_writes_per_day: Option<f64>,
    /// Write rate of the flash tier that wears fastest, as a fraction of its rated write rate; above 1, the
    /// tier wears out before its rated lifetime ends. Null if the duration or the rating is unknown.
    pub endurance_used: Option<f64>,
}

/// One tier of a purchase.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Tier {
    /// The device's name in the catalogue.
    pub device: String,
    /// The tier's size in bytes.
    pub bytes: u64,
}

/// The shape of a hierarchy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// One tier only.
    Single,
    /// Each lower tier is larger than the one above it.
    Pyramidal,
    /// Some lower tier is not larger than the one above it.
    NonPyramidal,
}

impl Class {
    /// The class of tiers of these sizes, in any unit; tiers of size 0 do not count.
    ///
    /// ```
    /// use forebay_plan::Class;
    /// assert_eq!(Class::from_sizes(&[5, 0]), Class::Single);
    /// assert_eq!(Class::from_sizes(&[5, 6]), Class::Pyramidal);
    /// assert_eq!(Class::from_sizes(&[5, 5]), Class::NonPyramidal);
    /// ```
    pub fn from_sizes(sizes: &[u64]) -> Self {
        let there: Vec<u64> = sizes.iter().copied().filter(|&s| s > 0).collect();
        match there.len() {
            0 | 1 => Self::Single,
            _ if there.windows(2).all(|w| w[1] > w[0]) => Self::Pyramidal,
            _ => Self::NonPyramidal,
        }
    }

    /// As written in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Pyramidal => "pyramidal",
            Self::NonPyramidal => "non-pyramidal",
        }
    }
}

/// Plans for each of `combinations` and puts the fastest first, judging sizes by the formulas.
///
/// # Errors
/// If the workload has no accesses, the budget buys nothing of any combination, or a
/// combination names a device that the catalogue has not.
pub fn plan<H: HitCounts + ?Sized>(
    counts: &H,
    catalogue: &Catalogue,
    combinations: &[Combination],
    budget_usd: f64,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    let mut analytic = Analytic::new(counts, &options.cost);
    plan_with(counts, catalogue, combinations, budget_usd, options, &mut analytic)
}

/// Plans as [`plan`] does, with an evaluator of the caller's.
///
/// # Errors
/// As [`plan`], and as soon as an evaluation fails.
pub fn plan_with<H: HitCounts + ?Sized>(
    counts: &H,
    catalogue: &Catalogue,
    combinations: &[Combination],
    budget_usd: f64,
    options: &PlanOptions,
    evaluator: &mut dyn Evaluator,
) -> Result<Plan, PlanError> {
    if counts.reads() + counts.writes() == 0 {
        return Err(PlanError::NoAccesses);
    }
    let (mut choices, mut unaffordable, mut refused) = (Vec::new(), Vec::new(), None);
    let mut wears_out = Vec::new();
    for combination in combinations {
        let hierarchy = Hierarchy::new(catalogue, combination, options.policy)?;
        match Space::new(counts, &hierarchy, &options.cost, budget_usd) {
            Ok(space) => match choose(counts, &space, options, evaluator)? {
                Some(choice) => choices.push(choice),
                None => wears_out.push(hierarchy.label()),
            },
            Err(error @ PlanError::BuysNothing { .. }) => {
                unaffordable.push(hierarchy.label());
                refused = Some(cheaper(refused, error));
            }
            Err(error) => return Err(error),
        }
    }
    choices.sort_by(|a, b| {
        let us = a.purchase.mean_latency_us.total_cmp(&b.purchase.mean_latency_us);
        us.then(a.purchase.cost_usd.total_cmp(&b.purchase.cost_usd))
    });
    let Some(first) = choices.first() else {
        if !wears_out.is_empty() {
            let used_max = options.wear_max.unwrap_or(f64::INFINITY);
            return Err(PlanError::WearsOut { budget_usd, used_max });
        }
        let none = || PlanError::NoCombination("none was given".into());
        return Err(refused.unwrap_or_else(none));
    };
    Ok(Plan {
        budget_usd,
        baseline: first.baseline.clone(),
        evaluations: choices.iter().map(|c| c.evaluations).sum(),
        choices,
        unaffordable,
        wears_out,
    })
}

/// Refuses a budget that does not buy one unit of any combination's tier 1. Needs no workload,
/// so that a caller can ask before measuring one.
///
/// # Errors
/// If the budget is no positive amount or buys nothing, or a combination names a device that the
/// catalogue has not.
pub fn check_budget(
    catalogue: &Catalogue,
    combinations: &[Combination],
    budget_usd: f64,
    cost: &CostModel,
) -> Result<(), PlanError> {
    let mut refused = None;
    for combination in combinations {
        let hierarchy = Hierarchy::new(catalogue, combination, WritePolicy::default())?;
        match Space::for_blocks(1, &hierarchy, cost, budget_usd) {
            Ok(_) => return Ok(()),
            Err(error @ PlanError::BuysNothing { .. }) => refused = Some(cheaper(refused, error)),
            Err(error) => return Err(error),
        }
    }
    Err(refused.unwrap_or_else(|| PlanError::NoCombination("none was given".into())))
}

/// The refusal that names the lower price.
fn cheaper(before: Option<PlanError>, error: PlanError) -> PlanError {
    let usd = |e: &PlanError| match e {
        PlanError::BuysNothing { needed_usd, .. } => *needed_usd,
        _ => f64::INFINITY,
    };
    before.filter(|b| usd(b) <= usd(&error)).unwrap_or(error)
}

/// The best sizes of one combination; none if all wear out too fast.
fn choose<H: HitCounts + ?Sized>(
    counts: &H,
    space: &Space<'_>,
    options: &PlanOptions,
    evaluator: &mut dyn Evaluator,
) -> Result<Option<Choice>, PlanError> {
    let limit = options.wear_limit();
    let (cost, hierarchy) = (space.cost(), space.hierarchy());
    let last_max = limit.map_or(Units(0), |l| l.last_tier_max(counts, hierarchy, cost));
    let single_max = limit.map_or(Units(0), |l| l.single_tier_needed(counts, hierarchy, cost));
    let enduring = space.clone().with_last_tier_up_to(last_max).with_single_tier_up_to(single_max);
    let step = |points_max| if hierarchy.tiers.len() <= 2 { 1 } else { space.step_for(points_max) };
    let found = {
        let mut evaluator = Enduring { counts, cost, limit, inner: &mut *evaluator };
        match options.method {
            Method::Exhaustive { points_max } => {
                exhaustive(&enduring, step(points_max), &mut evaluator)?
            }
            Method::Cydonia(how) => cydonia(counts, &enduring, how, &mut evaluator)?,
        }
    };
    let Found { sizes, mean_latency_us, baseline_us: mut single_us, evaluations } = found;
    if !mean_latency_us.is_finite()
        && limit.is_some_and(|l| !l.allows(counts, hierarchy, cost, &sizes))
    {
        return Ok(None);
    }
    let mut analytic = Analytic::new(counts, cost);
    let wears_out = match limit {
        None => None,
        Some(limit) => {
            let points_max = match options.method {
                Method::Exhaustive { points_max } => points_max,
                Method::Cydonia(_) => u64::MAX,
            };
            let free = exhaustive(space, step(points_max), &mut analytic)?;
            let worn = !limit.allows(counts, hierarchy, cost, &free.sizes);
            worn.then(|| purchase(counts, hierarchy, options, &free.sizes, free.mean_latency_us))
        }
    };
    let single = enduring.single_tier();
    let finite = |ratio: f64| ratio.is_finite().then_some(ratio);
    let measured = match sizes.as_slice() {
        [tier1, tier2, ..] if tier2.0 > 0 => {
            let sizes = (*tier1, *tier2);
            Some(HitMiss::measure(counts, space.hierarchy(), space.cost(), sizes))
        }
        _ => None,
    };
    if !single_us.is_finite() {
        // It is compared with, not bought: flash that wears out, too.
        let judged = analytic.mean_latency_us(hierarchy, &single);
        single_us = judged.unwrap_or(f64::INFINITY);
    }
    let same_cost = enduring.single_tier_for(cost.usd(&hierarchy.tiers, &sizes));
    let baseline_us = match &same_cost {
        same_cost if *same_cost == single => single_us,
        same_cost if *same_cost == sizes => mean_latency_us,
        same_cost => evaluate(space, evaluator, same_cost)?,
    };
    let (whole, whole_us) = match single[0].0 <= same_cost[0].0 + 1 {
        true => (&same_cost, baseline_us),
        false => (&single, single_us),
    };
    let reduction = 1.0 - mean_latency_us / baseline_us;
    let purchase = |sizes: &[Units], us| purchase(counts, hierarchy, options, sizes, us);
    Ok(Some(Choice {
        purchase: purchase(&sizes, mean_latency_us),
        baseline: purchase(&same_cost[..1], baseline_us),
        whole_budget: purchase(&whole[..1], whole_us),
        latency_reduction: if reduction.is_finite() { reduction } else { 0.0 },
        hit_miss_ratio: measured.and_then(|m| finite(m.ratio())),
        overhead_gain_ratio: Tradeoff::from_hierarchy(space.hierarchy())
            .and_then(|t| finite(t.overhead_gain_ratio())),
        break_even: BreakEven::find(counts, space.hierarchy(), space.cost(), &sizes),
        wears_out,
        evaluations,
    }))
}

/// Tiers of `sizes`, judged to take `mean_latency_us`.
pub(crate) fn purchase<H: HitCounts + ?Sized>(
    counts: &H,
    hierarchy: &Hierarchy,
    options: &PlanOptions,
    sizes: &[Units],
    mean_latency_us: f64,
) -> Purchase {
    let cost = &options.cost;
    let units: Vec<u64> = sizes.iter().map(|s| s.0).collect();
    let blocks: Vec<u64> = units.iter().map(|u| u * cost.unit_blocks()).collect();
    let evaluation = hierarchy.evaluate(counts, &blocks);
    let (reads, writes) = (counts.reads(), counts.writes());
    let ratio = |hits: u64, of: u64| if of == 0 { 0.0 } else { hits as f64 / of as f64 };
    let (r, w) = (&evaluation.read_hits[..units.len()], &evaluation.write_hits[..units.len()]);
    let tiers = hierarchy.tiers.iter().zip(&units);
    let days = options.duration.as_secs_f64() / SECONDS_PER_DAY;
    let per_day = |bytes: f64| (days > 0.0).then(|| bytes / days);
    let bytes = |blocks: f64| blocks * cost.block_size.bytes() as f64;
    let written = evaluation.written_with(options.flash_writes);
    let written: Option<Vec<f64>> =
        written.into_iter().map(|blocks| per_day(bytes(blocks))).collect();
    let wear = written.map(|bytes| Wear::from_writes(hierarchy, sizes, cost, &bytes));
    Purchase {
        tiers: tiers
            .clone()
            .map(|(d, u)| Tier { device: d.name.clone(), bytes: u * cost.unit_bytes })
            .collect(),
        backing: hierarchy.backing.name.clone(),
        cost_usd: cost.usd(&hierarchy.tiers, sizes),
        mean_latency_us,
        analytic_latency_us: evaluation.mean_latency_us,
        judged_by: JudgedBy::Analytic,
        mean_latency_us_bounds: hierarchy.mean_latency_us_bounds(counts, &blocks),
        p99_latency_us: evaluation.p99_latency_us,
        p999_latency_us: evaluation.p999_latency_us,
        read_latency_us: evaluation.read_latency_us,
        write_latency_us: evaluation.write_latency_us,
        class: Class::from_sizes(&units),
        hit_ratio: r.iter().zip(w).map(|(r, w)| ratio(r + w, reads + writes)).collect(),
        read_hit_ratio: r.iter().map(|&r| ratio(r, reads)).collect(),
        write_hit_ratio: w.iter().map(|&w| ratio(w, writes)).collect(),
        flash_bytes_written_per_day: wear.map(|w| w.flash_bytes_written_per_day),
        drive_writes_per_day: wear.map(|w| w.drive_writes_per_day),
        endurance_used: wear.and_then(|w| w.endurance_used),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Steps;

    fn counts() -> Steps {
        let at = vec![(10 * 256, 3000, 500), (100 * 256, 6000, 1200), (400 * 256, 9000, 1900)];
        Steps { reads: 10_000, writes: 2_000, at, footprint: 500 * 256 }
    }

    fn options() -> PlanOptions {
        PlanOptions { duration: Nanos(3_600_000_000_000), ..PlanOptions::default() }
    }

    #[test]
    fn all_seventeen_combinations_are_answered_fastest_first() {
        let c = Catalogue::default();
        let plan = plan(&counts(), &c, c.combinations(), 1.0, &options()).unwrap();
        assert_eq!(plan.choices.len(), 17);
        let us: Vec<f64> = plan.choices.iter().map(|c| c.purchase.mean_latency_us).collect();
        assert!(us.is_sorted());
        for choice in &plan.choices {
            assert!(choice.purchase.cost_usd <= 1.0 && choice.baseline.cost_usd <= 1.0);
            assert!(choice.latency_reduction >= 0.0);
            assert_eq!(choice.purchase.class == Class::Single, choice.purchase.tiers[1].bytes == 0);
            assert_eq!(choice.baseline.tiers.len(), 1);
        }
        assert_eq!(plan.baseline, plan.choices[0].baseline);
    }

    #[test]
    fn the_baseline_costs_no_more_than_the_choice_and_one_unit_more_would() {
        let (c, cost) = (Catalogue::default(), CostModel::default());
        // A loop of 10 MiB: two tiers that hold it cost a seventh of what the budget allows.
        let counts =
            Steps { reads: 3000, writes: 0, at: vec![(10 * 256, 2000, 0)], footprint: 10 * 256 };
        let tiers = ["FastDRAM", "SlowSSD"].map(String::from).to_vec();
        let of = [Combination { tiers, backing: "SlowHDD".into() }];
        for budget_usd in [0.02, 0.07] {
            let choice = &plan(&counts, &c, &of, budget_usd, &options()).unwrap().choices[0];
            let unit_usd =
                cost.unit_usd(0, c.device("FastDRAM").unwrap(), c.device("FastDRAM").unwrap());
            let [bought, single] = [&choice.purchase, &choice.baseline].map(|p| p.cost_usd);
            assert!(single <= bought && bought < single + unit_usd, "{bought} {single}");
            let whole = choice.whole_budget.cost_usd;
            assert!(whole <= budget_usd && budget_usd < whole + 2.0 * unit_usd);
            let reduction = 1.0 - choice.purchase.mean_latency_us / choice.baseline.mean_latency_us;
            assert!((choice.latency_reduction - reduction).abs() < 1e-9 && reduction > 0.0);
        }
    }

    #[test]
    fn flash_writes_and_wear_are_per_day() {
        let c = Catalogue::default();
        let of = |tiers: [&str; 2]| Combination {
            tiers: tiers.map(String::from).to_vec(),
            backing: "SlowHDD".into(),
        };
        let flash = plan(&counts(), &c, &[of(["FastDRAM", "SlowSSD"])], 0.5, &options()).unwrap();
        let bought = &flash.choices[0].purchase;
        let missed_tier1 = 12_000.0 * (1.0 - bought.hit_ratio[0]);
        let daily = bought.flash_bytes_written_per_day.unwrap();
        assert!((daily - missed_tier1 * 4096.0 * 24.0).abs() < 1e-3, "{daily}");
        let rated = bought.tiers[1].bytes as f64;
        assert!((bought.endurance_used.unwrap() - daily / rated).abs() < 1e-9);
        // It is rated for one a day.
        assert_eq!(bought.drive_writes_per_day, bought.endurance_used);
        let dram = plan(&counts(), &c, &[of(["FastDRAM", "SlowDRAM"])], 0.5, &options()).unwrap();
        assert_eq!(dram.choices[0].purchase.flash_bytes_written_per_day, Some(0.0));
        assert_eq!(dram.choices[0].purchase.endurance_used, None);
    }

    #[test]
    fn flash_that_wears_out_early_is_not_bought_and_what_it_would_do_is_said() {
        let c = Catalogue::default();
        let all = c.combinations();
        // A tier of an hour that everything is written to many times a day.
        let free = plan(&counts(), &c, all, 0.5, &options()).unwrap();
        let used = |p: &Purchase| p.endurance_used.unwrap_or(0.0);
        assert!(free.choices.iter().any(|c| used(&c.purchase) > 1.0));
        for used_max in [0.25, 1.0, 5.0] {
            let limited = PlanOptions { wear_max: Some(used_max), ..options() };
            let plan = plan(&counts(), &c, all, 0.5, &limited).unwrap();
            assert_eq!(plan.choices.len() + plan.wears_out.len(), 17);
            for choice in &plan.choices {
                assert!(used(&choice.purchase) <= used_max * 1.000_001, "{choice:?}");
                if let Some(worn) = &choice.wears_out {
                    assert!(used(worn) > used_max);
                    assert!(worn.mean_latency_us <= choice.purchase.mean_latency_us);
                }
            }
            assert_eq!(used_max <= 1.0, plan.choices.iter().any(|c| c.wears_out.is_some()));
        }
        // Nobody knows how long it took, so nobody knows how long flash lasts.
        let unknown =
            PlanOptions { wear_max: Some(1.0), duration: Nanos(0), ..PlanOptions::default() };
        let unknown = plan(&counts(), &c, all, 0.5, &unknown).unwrap();
        assert_eq!(unknown.choices.len(), 17);
    }

    #[test]
    fn a_cache_that_writes_half_as_much_wears_half_as_fast() {
        let c = Catalogue::default();
        let all = c.combinations();
        let of = |flash_writes, wear_max: Option<f64>| {
            let options = PlanOptions { flash_writes, wear_max, ..options() };
            plan(&counts(), &c, all, 0.5, &options).unwrap().choices
        };
        let in_memory = |choice: &Choice| {
            let first = c.device(&choice.purchase.tiers[0].device).unwrap();
            first.kind == crate::DeviceKind::Dram
        };
        let (whole, half) = (of(1.0, None), of(0.5, None));
        let mut compared = 0;
        for (a, b) in whole.iter().zip(&half) {
            assert_eq!(a.purchase.tiers, b.purchase.tiers, "wear changes no latency");
            let used = a.purchase.endurance_used.zip(b.purchase.endurance_used);
            // (What is written to a first tier of flash stays as it is.)
            if let Some((a, b)) = used.filter(|_| in_memory(a)) {
                assert!((b - a / 2.0).abs() < 1e-9, "{a} {b}");
                compared += usize::from(a > 0.0);
            }
        }
        assert!(compared > 3, "{compared}");
        // With half of the writes and half of the limit the same is bought.
        let bought = |choices: Vec<Choice>| -> Vec<Vec<Tier>> {
            choices.into_iter().filter(in_memory).map(|c| c.purchase.tiers).collect()
        };
        assert_eq!(bought(of(1.0, Some(1.0))), bought(of(0.5, Some(0.5))));
        assert_ne!(bought(of(1.0, Some(1.0))), bought(of(0.5, Some(1.0))));
    }

    #[test]
    fn flash_is_bought_larger_than_of_use_where_that_makes_it_endure() {
        let c = Catalogue::default();
        let of = Combination {
            tiers: ["FastDRAM", "SlowSSD"].map(String::from).to_vec(),
            backing: "SlowHDD".into(),
        };
        let at = vec![(256, 10, 0), (30 * 256, 9000, 0)];
        let counts = Steps { reads: 10_000, writes: 0, at, footprint: 30 * 256 };
        // Ten thousand blocks in five hours are 187 MiB a day, of a flash for one drive write a day.
        let options = PlanOptions {
            wear_max: Some(1.0),
            duration: Nanos(18_000_000_000_000),
            ..PlanOptions::default()
        };
        let plan = plan(&counts, &c, &[of], 0.1, &options).unwrap();
        let bought = &plan.choices[0].purchase;
        assert_eq!(bought.tiers[0].bytes, 1 << 20);
        let mib = bought.tiers[1].bytes >> 20;
        assert!((187..=188).contains(&mib), "{mib} MiB of which 29 are useful");
        assert!(bought.endurance_used.is_some_and(|used| used > 0.99 && used <= 1.0));
    }

    #[test]
    fn three_tiers_are_never_worse_than_two_of_them() {
        let c = Catalogue::default();
        let of = |tiers: &[&str]| Combination {
            tiers: tiers.iter().map(|t| t.to_string()).collect(),
            backing: "SlowHDD".into(),
        };
        let best = |combination| {
            plan(&counts(), &c, &[combination], 1.5, &options()).unwrap().choices[0].clone()
        };
        let three = best(of(&["FastDRAM", "SlowDRAM", "SlowSSD"]));
        for two in [&["FastDRAM", "SlowDRAM"], &["FastDRAM", "SlowSSD"]] {
            let two = best(of(two));
            assert!(three.purchase.mean_latency_us <= two.purchase.mean_latency_us * (1.0 + 1e-9));
        }
    }

    #[test]
    fn a_plan_reads_as_documented() {
        let c = Catalogue::default();
        let method = Method::Cydonia(CydoniaOptions::default());
        let options = PlanOptions { method, ..PlanOptions::default() };
        let plan = plan(&counts(), &c, c.combinations(), 0.5, &options).unwrap();
        assert!(plan.evaluations <= 170);
        let json = serde_json::to_value(&plan).unwrap();
        let choice = &json["choices"][0];
        for key in ["tiers", "cost_usd", "mean_latency_us", "class", "hit_ratio"] {
            assert!(!choice[key].is_null() && !json["baseline"][key].is_null(), "{key}");
        }
        assert!(choice["tiers"][0]["device"].is_string() && choice["tiers"][0]["bytes"].is_u64());
        // Without a duration there is no "per day".
        assert!(choice["flash_bytes_written_per_day"].is_null());
        assert!(choice.as_object().unwrap().contains_key("flash_bytes_written_per_day"));
    }

    #[test]
    fn impossible_requests_are_refused() {
        let c = Catalogue::default();
        let none = Steps { reads: 0, writes: 0, at: vec![], footprint: 0 };
        let message = |counts: &Steps, combinations: &[Combination], usd| {
            plan(counts, &c, combinations, usd, &options()).unwrap_err().to_string()
        };
        assert!(message(&none, c.combinations(), 1.0).contains("no block"));
        assert!(message(&counts(), &[], 1.0).contains("none was given"));
        let early = check_budget(&c, c.combinations(), 0.001, &CostModel::default());
        assert!(early.unwrap_err().to_string().contains("SlowDRAM"));
        assert!(check_budget(&c, c.combinations(), 0.0045, &CostModel::default()).is_ok());
        // The cheapest way in is named.
        let error = message(&counts(), c.combinations(), 0.001);
        assert!(error.contains("SlowDRAM") && error.contains("0.00449"), "{error}");
    }
}
