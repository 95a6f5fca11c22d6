//! The sizes that a budget can buy, among which a search chooses.

use crate::cost::{CostModel, Units};
use crate::counts::HitCounts;
use crate::error::PlanError;
use crate::hierarchy::Hierarchy;

/// The affordable sizes of one hierarchy.
///
/// A search chooses the sizes of all tiers but the last, which gets the rest of the money:
/// enlarging the last tier makes no access slower, provided that it is faster than the backing
/// store. No tier grows beyond the size at which the workload has every possible hit, except to
/// wear more slowly: the last of several tiers may, and so may a single tier.
#[derive(Clone, Debug)]
pub struct Space<'a> {
    hierarchy: &'a Hierarchy,
    cost: &'a CostModel,
    budget_usd: f64,
    unit_usd: Vec<f64>,
    useful: u64,
    /// The last tier may grow to this size for the sake of its endurance, even if less would hold
    /// everything.
    last_useful: u64,
    /// A single tier may grow to this size for the sake of its endurance, even if less would hold
    /// everything.
    single_useful: u64,
}

/// Which sizes to visit.
struct Grid<'a> {
    /// Visit only sizes within this distance of these.
    near: Option<(&'a [Units], u64)>,
    step: u64,
}

impl<'a> Space<'a> {
    /// The sizes that `budget_usd` buys for a workload with these `counts`.
    ///
    /// # Errors
    /// If the budget is not a positive amount, or does not buy one unit of tier 1.
    pub fn new<H: HitCounts + ?Sized>(
        counts: &H,
        hierarchy: &'a Hierarchy,
        cost: &'a CostModel,
        budget_usd: f64,
    ) -> Result<Self, PlanError> {
        Self::for_blocks(counts.useful_blocks(), hierarchy, cost, budget_usd)
    }

    /// The sizes that `budget_usd` buys if a cache of `useful_blocks` has every possible hit.
    pub(crate) fn for_blocks(
        useful_blocks: u64,
        hierarchy: &'a Hierarchy,
        cost: &'a CostModel,
        budget_usd: f64,
    ) -> Result<Self, PlanError> {
        if !(budget_usd.is_finite() && budget_usd > 0.0) {
            return Err(PlanError::NotABudget(budget_usd));
        }
        let tier1 = &hierarchy.tiers[0];
        let tiers = hierarchy.tiers.iter().enumerate();
        let unit_usd = tiers.map(|(tier, device)| cost.unit_usd(tier, device, tier1)).collect();
        let useful = cost.units_for(useful_blocks).0.max(1);
        let (last_useful, single_useful) = (0, 0);
        let space =
            Self { hierarchy, cost, budget_usd, unit_usd, useful, last_useful, single_useful };
        if space.tier1_max().0 == 0 {
            return Err(PlanError::BuysNothing {
                budget_usd,
                needed_usd: space.unit_usd[0],
                device: tier1.name.clone(),
                unit_bytes: cost.unit_bytes,
            });
        }
        Ok(space)
    }

    /// Allows the last tier to grow to `units` for the sake of its endurance, even if less is
    /// useful.
    pub(crate) fn with_last_tier_up_to(self, units: Units) -> Self {
        Self { last_useful: units.0, ..self }
    }

    /// Allows a single tier to grow to `units` for the sake of its endurance, even if less is
    /// useful.
    pub(crate) fn with_single_tier_up_to(self, units: Units) -> Self {
        Self { single_useful: units.0, ..self }
    }

    /// The hierarchy to which these sizes belong.
    pub fn hierarchy(&self) -> &'a Hierarchy {
        self.hierarchy
    }
    /// The cost model.
    pub fn cost(&self) -> &'a CostModel {
        self.cost
    }
    /// The budget, in US dollars.
    pub fn budget_usd(&self) -> f64 {
        self.budget_usd
    }

    /// The largest tier 1 that the money buys and of which every block is useful.
    pub fn tier1_max(&self) -> Units {
        Units(CostModel::affordable(self.budget_usd, self.unit_usd[0]).min(self.useful))
    }

    /// The single tier that the whole budget buys, limited to the useful size.
    pub fn single_tier(&self) -> Vec<Units> {
        self.single_tier_for(self.budget_usd)
    }

    /// The largest single tier that costs at most `usd`, limited to the useful size.
    pub fn single_tier_for(&self, usd: f64) -> Vec<Units> {
        let mut sizes = vec![Units(0); self.hierarchy.tiers.len()];
        let useful = self.useful.max(self.single_useful);
        sizes[0] = Units(CostModel::affordable(usd, self.unit_usd[0]).min(useful));
        sizes
    }

    /// The largest possible next tier, given the sizes of the tiers above.
    pub fn rest(&self, above: &[Units]) -> Units {
        let Some(&unit_usd) = self.unit_usd.get(above.len()) else { return Units(0) };
        let spent: f64 = above.iter().zip(&self.unit_usd).map(|(s, usd)| s.0 as f64 * usd).sum();
        let bought: u64 = above.iter().map(|s| s.0).sum();
        let left = CostModel::left(self.budget_usd, spent);
        let mut useful = self.useful.saturating_sub(bought);
        if above.len() + 1 == self.hierarchy.tiers.len() {
            useful = useful.max(self.last_useful);
        }
        Units(CostModel::affordable(left, unit_usd).min(useful))
    }

    /// Visits every point, the single tier first. The sizes of all tiers but the last are `step`
    /// units apart, and the last gets the rest of the money. With three or more tiers, there are
    /// also points that spend all the rest on an intermediate tier, with none below. Returns the
    /// number of points.
    ///
    /// # Errors
    /// As soon as `visit` fails.
    pub fn visit<E>(
        &self,
        step: u64,
        mut visit: impl FnMut(&[Units]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let single = self.single_tier();
        visit(&single)?;
        let tiers = self.hierarchy.tiers.len();
        let (mut sizes, mut points) = (vec![Units(0); tiers], 1);
        if tiers > 1 {
            self.descend(0, &Grid { near: None, step }, &mut sizes, &mut |sizes| {
                // All money for tier 1 is the single tier, which was visited already.
                if sizes != single {
                    points += 1;
                    visit(sizes)?;
                }
                Ok(())
            })?;
        }
        Ok(points)
    }

    /// Visits the points near `near`: the size of each tier but the last differs by at most `reach`
    /// units from that in `near`. Returns the number of points.
    ///
    /// # Errors
    /// As soon as `visit` fails.
    pub fn visit_near<E>(
        &self,
        near: &[Units],
        reach: u64,
        step: u64,
        mut visit: impl FnMut(&[Units]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let (mut sizes, mut points) = (vec![Units(0); self.hierarchy.tiers.len()], 0);
        self.descend(0, &Grid { near: Some((near, reach)), step }, &mut sizes, &mut |sizes| {
            points += 1;
            visit(sizes)
        })?;
        Ok(points)
    }

    /// The step at which [`Space::visit`] visits at most about `points` points.
    pub fn step_for(&self, points: u64) -> u64 {
        let free = self.hierarchy.tiers.len().saturating_sub(1);
        match free {
            0 => 1,
            _ => {
                let per_tier = (points.max(1) as f64).powf(1.0 / free as f64).max(1.0);
                (self.tier1_max().0 as f64 / per_tier).ceil().max(1.0) as u64
            }
        }
    }

    fn descend<E>(
        &self,
        tier: usize,
        grid: &Grid<'_>,
        sizes: &mut [Units],
        visit: &mut impl FnMut(&[Units]) -> Result<(), E>,
    ) -> Result<(), E> {
        let most = if tier == 0 { self.tier1_max() } else { self.rest(&sizes[..tier]) };
        if tier + 1 == sizes.len() {
            sizes[tier] = most;
            return visit(sizes);
        }
        let least = u64::from(tier == 0);
        let (mut size, end) = match grid.near {
            None => (least, most.0),
            Some((near, reach)) => {
                let near = near[tier].0;
                (near.saturating_sub(reach).max(least), near.saturating_add(reach).min(most.0))
            }
        };
        while size <= end {
            sizes[tier] = Units(size);
            self.descend(tier + 1, grid, sizes, visit)?;
            size += grid.step.max(1);
        }
        if tier > 0 && most.0 > 0 {
            // Otherwise the change would buy a little of the tiers below, which may be too little
            // to gain.
            sizes[tier] = most;
            sizes[tier + 1..].fill(Units(0));
            visit(sizes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WritePolicy;
    use crate::testing::{Steps, hierarchy};

    fn counts(units: u64) -> Steps {
        Steps { reads: 2, writes: 0, at: vec![(units * 256, 1, 0)], footprint: units * 256 }
    }

    #[test]
    fn every_point_is_affordable_and_no_larger_one_is() {
        let h = hierarchy(["FastDRAM", "SlowDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteBack);
        let (cost, c) = (CostModel::default(), counts(1000));
        let space = Space::new(&c, &h, &cost, 0.1).unwrap();
        let points = space.visit(1, |sizes| {
            let usd = cost.usd(&h.tiers, sizes);
            assert!(usd <= 0.1 + 1e-12, "{sizes:?} costs {usd}");
            let bought: u64 = sizes.iter().map(|s| s.0).sum();
            let rest = space.rest(&sizes[..1]);
            assert!(
                sizes[2].0 == 0 && (bought == space.tier1_max().0 || sizes[1] == rest)
                    || usd + cost.unit_usd(2, &h.tiers[2], &h.tiers[0]) > 0.1
            );
            Ok::<_, ()>(())
        });
        assert_eq!(space.tier1_max(), Units(12));
        assert!(points.unwrap() > 100);
    }

    #[test]
    fn a_budget_that_is_the_price_of_some_tiers_buys_all_of_them() {
        let h = hierarchy(["FastDRAM", "SlowSSD"], "SlowHDD", WritePolicy::WriteBack);
        let (cost, c) = (CostModel::default(), counts(1 << 20));
        for tier1 in (1..200_000).step_by(1009) {
            for tier2 in [1, 2, 3, 7, 100, 9973] {
                let sizes = [tier1, tier2].map(Units);
                let space = Space::new(&c, &h, &cost, cost.usd(&h.tiers, &sizes)).unwrap();
                assert_eq!(space.rest(&sizes[..1]), sizes[1], "{sizes:?}");
            }
        }
    }

    #[test]
    fn nothing_is_bought_that_is_of_no_use() {
        let h = hierarchy(["FastDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteBack);
        let (cost, c) = (CostModel::default(), counts(5));
        let space = Space::new(&c, &h, &cost, 1e6).unwrap();
        let mut seen = Vec::new();
        space
            .visit(1, |sizes| {
                seen.push((sizes[0].0, sizes[1].0));
                Ok::<_, ()>(())
            })
            .unwrap();
        assert_eq!(seen, [(5, 0), (1, 4), (2, 3), (3, 2), (4, 1)]);
    }

    #[test]
    fn a_budget_that_buys_nothing_says_what_would_buy_something() {
        let h = hierarchy(["FastDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteBack);
        let cost = CostModel::default();
        let error = Space::new(&counts(5), &h, &cost, 0.001).unwrap_err().to_string();
        assert!(error.contains("FastDRAM") && error.contains("0.0079"), "{error}");
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Space::new(&counts(5), &h, &cost, bad).is_err());
        }
    }
}
