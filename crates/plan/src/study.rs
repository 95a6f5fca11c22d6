//! Many workloads under every budget: which shape of hierarchy wins, by how much, and how close
//! Cydonia comes to exhaustive search (Bhandari 2024, figures 3.4 to 3.6).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::best::Found;
use crate::cost::CostModel;
use crate::counts::HitCounts;
use crate::error::PlanError;
use crate::evaluate::Analytic;
use crate::hierarchy::Hierarchy;
use crate::purchase::Class;
use crate::search::{CydoniaOptions, cydonia, exhaustive};
use crate::space::Space;

/// One workload, with one combination of two tiers and one budget.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StudyPoint {
    /// The budget, in US dollars.
    pub budget_usd: f64,
    /// Mean latency of the single tier that the budget buys, in microseconds.
    pub single_us: f64,
    /// Mean latency of the best sizes that the budget buys, in microseconds.
    pub best_us: f64,
    /// The shape of the best sizes.
    pub class: Class,
    /// Mean latency of the sizes that Cydonia finds, in microseconds.
    pub cydonia_us: f64,
    /// The shape that Cydonia finds.
    pub cydonia_class: Class,
}

impl StudyPoint {
    /// Runs both searches with the formulas; `None` if the budget does not buy one unit of tier 1.
    ///
    /// # Errors
    /// If the workload has no accesses, the hierarchy has more than two tiers, or the budget is not
    /// a positive amount.
    pub fn search<H: HitCounts + ?Sized>(
        counts: &H,
        hierarchy: &Hierarchy,
        cost: &CostModel,
        budget_usd: f64,
        how: CydoniaOptions,
    ) -> Result<Option<Self>, PlanError> {
        if counts.reads() + counts.writes() == 0 {
            return Err(PlanError::NoAccesses);
        }
        let space = match Space::new(counts, hierarchy, cost, budget_usd) {
            Err(PlanError::BuysNothing { .. }) => return Ok(None),
            space => space?,
        };
        let mut analytic = Analytic::new(counts, cost);
        let found = cydonia(counts, &space, how, &mut analytic)?;
        let best = exhaustive(&space, 1, &mut analytic)?;
        let class = |found: &Found| {
            let sizes: Vec<u64> = found.sizes.iter().map(|s| s.0).collect();
            Class::from_sizes(&sizes)
        };
        Ok(Some(Self {
            budget_usd,
            single_us: best.baseline_us,
            best_us: best.mean_latency_us,
            class: class(&best),
            cydonia_us: found.mean_latency_us,
            cydonia_class: class(&found),
        }))
    }

    /// How much lower the best latency is than that of the single tier, as a fraction of the
    /// latter.
    pub fn reduction(&self) -> f64 {
        if self.single_us > 0.0 { 1.0 - self.best_us / self.single_us } else { 0.0 }
    }

    /// How much higher Cydonia's latency is than the best, as a fraction of the best.
    pub fn excess(&self) -> f64 {
        if self.best_us > 0.0 { self.cydonia_us / self.best_us - 1.0 } else { 0.0 }
    }
}

/// A summary of many points.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StudySummary {
    /// Number of points. A point is one combination, one trace and one budget that is large enough
    /// to buy at least one tier.
    pub points: u64,
    /// Number of points at which a single tier is fastest.
    pub single: u64,
    /// Number of points at which two tiers are fastest and tier 2 is larger than tier 1.
    pub pyramidal: u64,
    /// Number of points at which two tiers are fastest and tier 2 is not larger than tier 1.
    pub non_pyramidal: u64,
    /// Mean gain of pyramidal tiers over the single tier that the budget buys, at the points where pyramidal
    /// tiers are fastest, as a fraction of the single tier's latency; null if there are no such points.
    pub pyramidal_reduction: Option<f64>,
    /// Mean gain of non-pyramidal tiers over the single tier that the budget buys, at the points where
    /// non-pyramidal tiers are fastest, as a fraction of the single tier's latency; null if there are no such
    /// points.
    pub non_pyramidal_reduction: Option<f64>,
    /// The largest gain of two tiers over the single tier that the budget buys, as a fraction of the
    /// single tier's latency.
    pub reduction_max: f64,
    /// Mean excess of Cydonia's latency over the best latency, as a fraction.
    pub cydonia_excess: f64,
    /// The largest excess of Cydonia's latency over the best latency, as a fraction.
    pub cydonia_excess_max: f64,
    /// Number of points at which two tiers are fastest but Cydonia finds a single tier.
    pub cydonia_missed: u64,
}

impl StudySummary {
    /// The summary of these points.
    pub fn from_points<'a>(points: impl IntoIterator<Item = &'a StudyPoint>) -> Self {
        let mut s = Self::default();
        let (mut pyramidal, mut other, mut excess) = (0.0, 0.0, 0.0);
        for point in points {
            s.points += 1;
            match point.class {
                Class::Single => s.single += 1,
                Class::Pyramidal => {
                    s.pyramidal += 1;
                    pyramidal += point.reduction();
                }
                Class::NonPyramidal => {
                    s.non_pyramidal += 1;
                    other += point.reduction();
                }
            }
            s.reduction_max = s.reduction_max.max(point.reduction());
            excess += point.excess();
            s.cydonia_excess_max = s.cydonia_excess_max.max(point.excess());
            let missed = point.class != Class::Single && point.cydonia_class == Class::Single;
            s.cydonia_missed += u64::from(missed);
        }
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        s.pyramidal_reduction = mean(pyramidal, s.pyramidal);
        s.non_pyramidal_reduction = mean(other, s.non_pyramidal);
        s.cydonia_excess = mean(excess, s.points).unwrap_or(0.0);
        s
    }

    /// Number of points at which two tiers win.
    pub fn two_tiers(&self) -> u64 {
        self.pyramidal + self.non_pyramidal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WritePolicy;
    use crate::testing::{Steps, hierarchy};

    fn point(class: Class, single_us: f64, best_us: f64, cydonia_us: f64) -> StudyPoint {
        let cydonia_class = if cydonia_us == single_us { Class::Single } else { class };
        StudyPoint { budget_usd: 1.0, single_us, best_us, class, cydonia_us, cydonia_class }
    }

    #[test]
    fn a_summary_counts_winners_and_takes_means_over_them() {
        let points = [
            point(Class::Single, 10.0, 10.0, 10.0),
            point(Class::Pyramidal, 10.0, 5.0, 6.0),
            point(Class::Pyramidal, 10.0, 9.0, 10.0),
            point(Class::NonPyramidal, 10.0, 2.0, 2.0),
        ];
        let s = StudySummary::from_points(&points);
        assert_eq!((s.points, s.single, s.pyramidal, s.non_pyramidal), (4, 1, 2, 1));
        assert!((s.pyramidal_reduction.unwrap() - 0.3).abs() < 1e-12);
        assert!((s.non_pyramidal_reduction.unwrap() - 0.8).abs() < 1e-12);
        assert!((s.reduction_max - 0.8).abs() < 1e-12);
        assert!((s.cydonia_excess - (0.2 + 1.0 / 9.0) / 4.0).abs() < 1e-12);
        assert!((s.cydonia_excess_max - 0.2).abs() < 1e-12);
        assert_eq!((s.cydonia_missed, s.two_tiers()), (1, 3));
        let none = StudySummary::from_points(&points[..1]);
        assert_eq!((none.pyramidal_reduction, none.cydonia_excess), (None, 0.0));
        assert_eq!(StudySummary::from_points([]), StudySummary::default());
    }

    #[test]
    fn a_point_is_what_both_searches_find() {
        let at = vec![(10 * 256, 400, 0), (40 * 256, 900, 0)];
        let counts = Steps { reads: 1000, writes: 0, at, footprint: 40 * 256 };
        let h = hierarchy(["FastDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteThrough);
        let cost = CostModel::default();
        let of = |usd| StudyPoint::search(&counts, &h, &cost, usd, CydoniaOptions::default());
        let p = of(0.2).unwrap().unwrap();
        assert!(p.best_us <= p.cydonia_us && p.cydonia_us <= p.single_us);
        assert_eq!(p.class, Class::Pyramidal);
        assert_eq!(of(0.001).unwrap(), None);
        assert!(of(-1.0).is_err());
    }
}
