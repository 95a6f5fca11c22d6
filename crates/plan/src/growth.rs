//! Money to spend on an existing cache: grow tier 1, or add a tier 2?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cost::{CostModel, Units};
use crate::counts::HitCounts;
use crate::error::PlanError;
use crate::hierarchy::Hierarchy;
use crate::plan::PlanOptions;
use crate::purchase::{Purchase, purchase};

/// Latencies whose relative difference is at most this differ only by rounding.
const SAME: f64 = 1e-9;

/// The effect of a budget on an existing single tier (Bhandari 2024, section 4.3.6).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// Budget in addition to the existing cache, in US dollars.
    pub budget_usd: f64,
    /// The existing cache: tier 1 alone.
    pub now: Purchase,
    /// The cache if the whole budget is spent on enlarging tier 1. Here and below, costs include
    /// the existing cache.
    pub grow: Purchase,
    /// The cache if the whole budget is spent on adding a tier 2.
    pub add: Purchase,
    /// The cache if the budget is divided optimally between enlarging tier 1 and adding a tier 2.
    pub divide: Purchase,
    /// Whether it is better to grow tier 1 or to add a tier 2.
    pub better: Way,
    /// Latency that the better option saves, as a fraction of the other option's latency.
    pub latency_reduction: f64,
    /// The smallest tier 2 that would make the cache [as fast as growing
    /// does](docs/planning.md#grow-tier-1-or-add-tier-2), in bytes; null if no tier 2 would.
    pub tier2_bytes_needed: Option<u64>,
    /// The price ratio (tier 1's price per byte, divided by tier 2's) at which growing and adding are equally
    /// good: `tier2_bytes_needed` divided by the growth of tier 1. Null if `tier2_bytes_needed` is null, or
    /// if the budget does not buy one unit of tier 1.
    pub price_ratio_needed: Option<f64>,
    /// The actual price ratio, including metadata.
    pub price_ratio: f64,
}

/// How to spend the money.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Grow tier 1.
    Grow,
    /// Add tier 2.
    Add,
    /// Neither makes the cache faster.
    Neither,
}

impl Way {
    /// The name as written in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grow => "grow",
            Self::Add => "add",
            Self::Neither => "neither",
        }
    }
}

impl Growth {
    /// Compares the options for a tier 1 of size `have` in a hierarchy of two tiers. Nothing is
    /// bought beyond the size at which the workload has every possible hit.
    ///
    /// # Errors
    /// If the workload has no accesses, the hierarchy does not have two tiers, or the budget is not
    /// a positive amount or buys neither tier.
    pub fn compare<H: HitCounts + ?Sized>(
        counts: &H,
        hierarchy: &Hierarchy,
        have: Units,
        budget_usd: f64,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        if counts.reads() + counts.writes() == 0 {
            return Err(PlanError::NoAccesses);
        }
        let cost = &options.cost;
        let usd = prices(hierarchy, cost, budget_usd)?;
        let blocks = |units: Units| units.0 * cost.unit_blocks();
        let us = |sizes: [Units; 2]| hierarchy.mean_latency_us(counts, &sizes.map(blocks));
        // A larger addition to the existing cache gains nothing.
        let useful = cost.units_for(counts.useful_blocks()).0.saturating_sub(have.0);
        let buys =
            |usd: f64, unit_usd: f64, useful: u64| CostModel::affordable(usd, unit_usd).min(useful);
        let grown = buys(budget_usd, usd[0], useful);
        let now = [have, Units(0)];
        let grow = [Units(have.0 + grown), Units(0)];
        let add = [have, Units(buys(budget_usd, usd[1], useful))];
        let divided = (0..=grown).map(|more| {
            let rest = CostModel::left(budget_usd, more as f64 * usd[0]);
            [Units(have.0 + more), Units(buys(rest, usd[1], useful - more))]
        });
        let (now_us, grow_us, add_us) = (us(now), us(grow), us(add));
        let mut divide = (grow_us, grow);
        for sizes in divided {
            let found = us(sizes);
            if faster(found, divide.0) {
                divide = (found, sizes);
            }
        }
        let spent = |sizes: &[Units]| cost.usd(&hierarchy.tiers, sizes);
        let better = if !faster(grow_us, now_us) && !faster(add_us, now_us) {
            Way::Neither
        } else if faster(grow_us, add_us) {
            Way::Grow
        } else if faster(add_us, grow_us) || spent(&add) < spent(&grow) {
            Way::Add
        } else {
            Way::Grow
        };
        let needed = smallest(useful, |tier2| !faster(grow_us, us([have, Units(tier2)])));
        let bought = |sizes: [Units; 2]| purchase(counts, hierarchy, options, &sizes, us(sizes));
        Ok(Self {
            budget_usd,
            now: bought(now),
            grow: bought(grow),
            add: bought(add),
            divide: bought(divide.1),
            better,
            latency_reduction: match better {
                Way::Neither => 0.0,
                Way::Grow => 1.0 - grow_us / add_us,
                Way::Add => 1.0 - add_us / grow_us,
            },
            tier2_bytes_needed: needed.map(|units| units * cost.unit_bytes),
            price_ratio_needed: needed
                .filter(|_| grown > 0)
                .map(|units| units as f64 / grown as f64),
            price_ratio: usd[0] / usd[1],
        })
    }
}

/// The price of a unit of each of the two tiers, including the metadata that tier 2 needs in tier
/// 1.
fn prices(hierarchy: &Hierarchy, cost: &CostModel, budget_usd: f64) -> Result<[f64; 2], PlanError> {
    let [first, second] = hierarchy.tiers.as_slice() else {
        return Err(PlanError::GrowthTiers(hierarchy.tiers.len()));
    };
    if !(budget_usd.is_finite() && budget_usd > 0.0) {
        return Err(PlanError::NotABudget(budget_usd));
    }
    let usd = [cost.unit_usd(0, first, first), cost.unit_usd(1, second, first)];
    if budget_usd < usd[0].min(usd[1]) * (1.0 - SAME) {
        let cheaper = usize::from(usd[1] < usd[0]);
        return Err(PlanError::BuysNothing {
            budget_usd,
            needed_usd: usd[cheaper],
            device: hierarchy.tiers[cheaper].name.clone(),
            unit_bytes: cost.unit_bytes,
        });
    }
    Ok(usd)
}

/// Whether latency `a` is lower than `b` by more than rounding.
fn faster(a: f64, b: f64) -> bool {
    a < b * (1.0 - SAME)
}

/// The smallest number from 1 to `most` that is good, if every number above a good one is good.
fn smallest(most: u64, good: impl Fn(u64) -> bool) -> Option<u64> {
    if most == 0 || !good(most) {
        return None;
    }
    let (mut low, mut high) = (0, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if good(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WritePolicy;
    use crate::testing::{Steps, any_hierarchy, hierarchy, steps};
    use proptest::prelude::*;

    fn options() -> PlanOptions {
        PlanOptions::default()
    }

    #[test]
    fn the_price_ratio_is_that_of_the_sizes_that_are_equally_fast() {
        // The dissertation's example in units: tier 1 has 5 units, and 5 more are as good as a tier
        // 2 of 20, so tier 1 may cost 4 times as much.
        let at = vec![(5 * 256, 500, 0), (10 * 256, 800, 0), (25 * 256, 801, 0)];
        let counts = Steps { reads: 1000, writes: 0, at, footprint: 60 * 256 };
        let h = hierarchy(["FastDRAM", "FastSSD"], "FastHDD", WritePolicy::WriteThrough);
        let (dram, ssd) = (0.007_923_84, 0.003_191_267_6);
        let g = Growth::compare(&counts, &h, Units(5), 5.0 * dram, &options()).unwrap();
        assert_eq!(g.grow.tiers[0].bytes, 10 << 20);
        assert_eq!((g.add.tiers[0].bytes, g.add.tiers[1].bytes), (5 << 20, 12 << 20));
        assert_eq!((g.tier2_bytes_needed, g.price_ratio_needed), (None, None));
        assert_eq!(g.better, Way::Grow);
        assert!((g.price_ratio - dram / ssd).abs() < 1e-6);
        // With more hits in tier 2, 20 units of it are enough.
        let at = vec![(5 * 256, 500, 0), (10 * 256, 800, 0), (25 * 256, 900, 0)];
        let counts = Steps { reads: 1000, writes: 0, at, footprint: 60 * 256 };
        let g = Growth::compare(&counts, &h, Units(5), 5.0 * dram, &options()).unwrap();
        assert_eq!((g.tier2_bytes_needed, g.price_ratio_needed), (Some(20 << 20), Some(4.0)));
        assert_eq!(g.better, Way::Grow, "{} is below 4", g.price_ratio);
        // A second tier at a quarter of the price reverses the result.
        let mut cheap = h.clone();
        cheap.tiers[1].price_usd /= 4.0;
        let g = Growth::compare(&counts, &cheap, Units(5), 5.0 * dram, &options()).unwrap();
        assert_eq!((g.better, g.price_ratio_needed), (Way::Add, Some(4.0)));
        assert!(g.price_ratio > 4.0, "{}", g.price_ratio);
    }

    #[test]
    fn what_has_every_hit_needs_nothing() {
        let counts = Steps { reads: 10, writes: 0, at: vec![(256, 5, 0)], footprint: 256 };
        let h = hierarchy(["FastDRAM", "FastSSD"], "FastHDD", WritePolicy::WriteBack);
        let g = Growth::compare(&counts, &h, Units(2), 1.0, &options()).unwrap();
        assert_eq!((g.better, g.latency_reduction), (Way::Neither, 0.0));
        assert_eq!((&g.grow, &g.add, &g.divide), (&g.now, &g.now, &g.now));
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let counts = Steps { reads: 10, writes: 0, at: vec![(256, 5, 0)], footprint: 256 };
        let of = |h: &Hierarchy, usd| {
            Growth::compare(&counts, h, Units(1), usd, &options()).unwrap_err().to_string()
        };
        let two = hierarchy(["FastDRAM", "FastSSD"], "FastHDD", WritePolicy::WriteBack);
        let three =
            hierarchy(["FastDRAM", "FastSSD", "SlowSSD"], "FastHDD", WritePolicy::WriteBack);
        assert!(of(&three, 1.0).contains("one combination has 3"));
        assert!(of(&two, 0.001).contains("FastSSD"));
        assert!(of(&two, -1.0).contains("not a budget"));
    }

    proptest! {
        /// Checks the dissertation's rule for the price ratio against the latencies themselves;
        /// dividing the budget is no worse than either option.
        #[test]
        fn adding_is_better_iff_the_price_ratio_is_above_the_needed_one(
            counts in steps(60), h in any_hierarchy(), have in 1u64..40, budget in 0.01..0.4f64,
        ) {
            let g = Growth::compare(&counts, &h, Units(have), budget, &options()).unwrap();
            let us = |p: &Purchase| p.mean_latency_us;
            prop_assert!(us(&g.divide) <= us(&g.grow).min(us(&g.add)) * (1.0 + 1e-8));
            let most = g.now.cost_usd + budget * (1.0 + 1e-9);
            for p in [&g.grow, &g.add, &g.divide] {
                prop_assert!(p.cost_usd <= most);
            }
            prop_assert!(us(&g.grow) <= us(&g.now) * (1.0 + 1e-8));
            let added = g.add.tiers[1].bytes;
            let enough = g.tier2_bytes_needed.is_some_and(|needed| added >= needed);
            prop_assert_eq!(enough, us(&g.add) <= us(&g.grow) * (1.0 + 1e-9), "{:?}", g);
            if g.better == Way::Grow {
                prop_assert!(us(&g.grow) <= us(&g.add) * (1.0 + 1e-9));
            }
            // Where no size is limited by what is useful, the prices decide, except for rounding to
            // units.
            let grown = g.grow.tiers[0].bytes - g.now.tiers[0].bytes;
            let cut = |bytes: u64| (bytes >> 20) + have >= 60;
            if let Some(needed) = g.price_ratio_needed
                && !cut(g.grow.tiers[0].bytes) && !cut(added)
            {
                let slack = 1.0 + 2.0 / (grown >> 20) as f64 + 2.0 / ((added >> 20).max(1)) as f64;
                prop_assert!(g.better != Way::Add || g.price_ratio * slack >= needed, "{:?}", g);
                prop_assert!(g.better != Way::Grow || g.price_ratio <= needed * slack, "{:?}", g);
            }
        }
    }
}
