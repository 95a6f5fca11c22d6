//! Budgets: in dollars, or as a percentage of the cost of a cache that holds everything.

use std::str::FromStr;

use crate::catalogue::{Catalogue, Combination};
use crate::cost::CostModel;
use crate::counts::HitCounts;
use crate::error::PlanError;
use crate::hierarchy::{Hierarchy, WritePolicy};
use crate::space::Space;

/// The amount that may be spent on tiers.
///
/// ```
/// use forebay_plan::Budget;
/// assert_eq!("12.5".parse(), Ok(Budget::Usd(12.5)));
/// assert_eq!("25%".parse(), Ok(Budget::Fraction(0.25)));
/// assert!("-3".parse::<Budget>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Budget {
    /// An amount in US dollars.
    Usd(f64),
    /// A fraction of the cost at which the working set fits in the catalogue's first DRAM
    /// device, as budgets are scaled in Bhandari (2024), figure 3.4.
    Fraction(f64),
}

/// A text that is not a budget.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not a budget: write an amount in dollars, such as 250, or a percentage of the \
     price of enough DRAM for all data, such as 20%"
)]
pub struct BudgetError(pub String);

impl FromStr for Budget {
    type Err = BudgetError;
    fn from_str(text: &str) -> Result<Self, BudgetError> {
        let error = || BudgetError(text.to_owned());
        let positive = |number: &str| {
            let number: f64 = number.trim().parse().map_err(|_| error())?;
            if number.is_finite() && number > 0.0 { Ok(number) } else { Err(error()) }
        };
        let trimmed = text.trim();
        match trimmed.strip_suffix('%') {
            Some(percent) => Ok(Self::Fraction(positive(percent)? / 100.0)),
            None => Ok(Self::Usd(positive(trimmed.strip_prefix('$').unwrap_or(trimmed))?)),
        }
    }
}

impl Budget {
    /// The budget in US dollars, for a workload with these `counts`.
    pub fn usd<H: HitCounts + ?Sized>(
        self,
        counts: &H,
        catalogue: &Catalogue,
        cost: &CostModel,
    ) -> f64 {
        match self {
            Self::Usd(usd) => usd,
            Self::Fraction(fraction) => fraction * full_usd(counts, catalogue, cost),
        }
    }
}

/// The cost in US dollars of a tier 1 that holds every block the workload accesses, made of the
/// catalogue's first DRAM device.
pub fn full_usd<H: HitCounts + ?Sized>(counts: &H, catalogue: &Catalogue, cost: &CostModel) -> f64 {
    let units = cost.units_for(counts.footprint_blocks()).0 as f64;
    catalogue.reference_device().map_or(0.0, |dram| units * cost.unit_usd(0, dram, dram))
}

/// `count` budgets from `lowest_usd` to `highest_usd`, evenly spaced on a logarithmic scale, to
/// plot plans against budgets. Only `highest_usd` if `count` is below 2 or the range is empty.
pub fn budget_range(lowest_usd: f64, highest_usd: f64, count: usize) -> Vec<f64> {
    let ratio = highest_usd / lowest_usd;
    if count < 2 || !ratio.is_finite() || ratio <= 1.0 {
        return vec![highest_usd];
    }
    let at = |k: usize| lowest_usd * ratio.powf(k as f64 / (count - 1) as f64);
    (0..count).map(at).collect()
}

/// Rejects a budget that does not buy one unit of any combination's tier 1. Needs no workload, so a
/// caller can check before measuring one.
///
/// # Errors
/// If the budget is not a positive amount or buys nothing, or a combination names a device that the
/// catalogue does not have.
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

/// Returns the error that names the lower price.
pub(crate) fn cheaper(before: Option<PlanError>, error: PlanError) -> PlanError {
    let usd = |e: &PlanError| match e {
        PlanError::BuysNothing { needed_usd, .. } => *needed_usd,
        _ => f64::INFINITY,
    };
    before.filter(|b| usd(b) <= usd(&error)).unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Steps;

    #[test]
    fn percentages_are_of_the_cost_at_which_all_fits_in_the_first_dram() {
        let counts = Steps { reads: 9, writes: 9, at: vec![], footprint: 1000 * 256 - 5 };
        let (catalogue, cost) = (Catalogue::default(), CostModel::default());
        let all = 1000.0 * (1_048_576.0 + 7936.0) * 120.0 / 16e9;
        let half: Budget = "50%".parse().unwrap();
        assert!((half.usd(&counts, &catalogue, &cost) - all / 2.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_amount_of_money_is_no_budget() {
        for text in ["", "0", "-1", "nan", "inf", "%", "0%", "ten", "1e999"] {
            let error = text.parse::<Budget>().unwrap_err().to_string();
            assert!(error.contains("20%"), "{error}");
        }
    }

    #[test]
    fn a_range_runs_from_lowest_to_highest() {
        let range = budget_range(1.0, 100.0, 3);
        assert!(
            (range[1] - 10.0).abs() < 1e-9 && range[0] == 1.0 && (range[2] - 100.0).abs() < 1e-9
        );
        assert_eq!(budget_range(5.0, 5.0, 9), [5.0]);
    }
}
