//! The best sizes of one combination of devices.

use schemars::JsonSchema;
use serde::Serialize;

use crate::best::Found;
use crate::breakeven::BreakEven;
use crate::cost::Units;
use crate::counts::HitCounts;
use crate::error::PlanError;
use crate::evaluate::{Analytic, Enduring, Evaluator, evaluate};
use crate::plan::{Method, PlanOptions};
use crate::purchase::{Purchase, purchase};
use crate::ratio::{HitMiss, Tradeoff};
use crate::search::{cydonia, exhaustive};
use crate::space::Space;

/// The best purchase that one combination of devices allows within the budget.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Choice {
    /// The tiers to buy.
    #[serde(flatten)]
    pub purchase: Purchase,
    /// The single tier of the same cost and the same tier-1 device (tables call it "tier 1 alone, at
    /// most this cost").
    pub baseline: Purchase,
    /// The single tier, of the same tier-1 device, that the whole budget buys. It may turn out to
    /// be faster than the choice where a judge disagrees with the formulas. If it is only one unit
    /// larger than the baseline, this is a copy of the baseline, so that the judge need not
    /// evaluate both.
    #[serde(skip)]
    pub whole_budget: Purchase,
    /// Latency that the choice saves, as a fraction of the baseline's latency.
    pub latency_reduction: f64,
    /// [Hit-miss ratio](docs/planning-reference.md#when-does-a-second-tier-help) of adding this tier 2 to
    /// this tier 1; null if there is no second tier, or if the ratio is infinite.
    pub hit_miss_ratio: Option<f64>,
    /// [Overhead-gain ratio](docs/planning-reference.md#when-does-a-second-tier-help) of the devices; null if
    /// there is no second tier, or if hits in tier 2 save no time.
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

/// Finds the best sizes of one combination; `None` if all of them wear out too fast.
pub(crate) fn choose<H: HitCounts + ?Sized>(
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
    if !single_us.is_finite() {
        // The single tier is for comparison, not for purchase: it may be flash that wears out.
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
    let finite = |ratio: f64| ratio.is_finite().then_some(ratio);
    let hit_miss = match *sizes.as_slice() {
        [tier1, tier2, ..] if tier2.0 > 0 => {
            Some(HitMiss::measure(counts, hierarchy, cost, (tier1, tier2)))
        }
        _ => None,
    };
    let tradeoff = Tradeoff::from_hierarchy(hierarchy);
    let reduction = 1.0 - mean_latency_us / baseline_us;
    let purchase = |sizes: &[Units], us| purchase(counts, hierarchy, options, sizes, us);
    Ok(Some(Choice {
        purchase: purchase(&sizes, mean_latency_us),
        baseline: purchase(&same_cost[..1], baseline_us),
        whole_budget: purchase(&whole[..1], whole_us),
        latency_reduction: if reduction.is_finite() { reduction } else { 0.0 },
        hit_miss_ratio: hit_miss.and_then(|hit_miss| finite(hit_miss.ratio())),
        overhead_gain_ratio: tradeoff.and_then(|tradeoff| finite(tradeoff.overhead_gain_ratio())),
        break_even: BreakEven::find(counts, hierarchy, cost, &sizes),
        wears_out,
        evaluations,
    }))
}
