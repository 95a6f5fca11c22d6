//! Makes plans by formulas: for each budget, the sweep and the fronts.

use std::sync::Arc;

use forebay_plan::{
    Budget, Hierarchy, JudgedBy, PlanError, PlanOptions, Profile, budget_range, full_usd,
    pareto_front, plan,
};

use super::{Answer, Basis, Front, Question, Workload};
use crate::{AnalysisError, Observer};

impl Question {
    pub(super) fn basis(&self, profile: &Arc<Profile>) -> Basis {
        Basis {
            profile: Arc::clone(profile),
            catalogue: self.catalogue.clone(),
            combinations: self.combinations.clone(),
            options: PlanOptions { duration: profile.duration(), ..self.options.clone() },
            full_usd: full_usd(&**profile, &self.catalogue, &self.options.cost),
        }
    }

    /// Makes plans by formulas for each budget, and for the sweep and the fronts if requested.
    ///
    /// # Errors
    /// If there is no budget, a budget buys nothing, no plan can be made, or the observer stops the
    /// work.
    pub fn plan(
        &self,
        workload: &Workload,
        observer: &dyn Observer,
    ) -> Result<Answer, AnalysisError> {
        if self.budgets.is_empty() {
            return Err(AnalysisError::NoBudget);
        }
        let mut basis = self.basis(&workload.profile);
        let usd =
            |budget: &Budget| budget.usd(&*basis.profile, &basis.catalogue, &basis.options.cost);
        let budgets_usd: Vec<f64> = self.budgets.iter().map(usd).collect();
        let largest_usd = budgets_usd.iter().copied().fold(0.0, f64::max);
        basis.options.flash_writes = self.flash_writes(&basis, largest_usd, workload, observer)?;
        let plan =
            |usd| plan(&*basis.profile, &basis.catalogue, &basis.combinations, usd, &basis.options);
        let mut plans = Vec::new();
        for (&budget, usd) in self.budgets.iter().zip(budgets_usd) {
            observer.check()?;
            plans.push(plan(usd).map_err(|error| AnalysisError::Refused { error, budget })?);
        }
        let mut sweep = Vec::new();
        if let Some(count) = self.sweep {
            for usd in sweep_budgets(&basis, count)? {
                observer.check()?;
                match plan(usd) {
                    // This budget was not requested, so it is skipped.
                    Err(PlanError::WearsOut { .. } | PlanError::BuysNothing { .. }) => {}
                    found => sweep.push(found?),
                }
            }
        }
        let budgets: Vec<f64> = plans.iter().chain(&sweep).map(|p| p.budget_usd).collect();
        let pareto = if self.pareto { fronts(&basis, largest_usd, &budgets)? } else { Vec::new() };
        let judged_by = JudgedBy::Analytic;
        Ok(Answer { basis, judged_by, plans, sweep, judgements: 0, pareto })
    }
}

/// Budgets from one that buys a few units of the most expensive first tier to one that buys enough
/// for all data.
fn sweep_budgets(basis: &Basis, count: usize) -> Result<Vec<f64>, AnalysisError> {
    let mut entry_usd = 0.0_f64;
    for combination in &basis.combinations {
        let tier1 = basis.catalogue.device(&combination.tiers[0])?;
        entry_usd = entry_usd.max(basis.options.cost.unit_usd(0, tier1, tier1));
    }
    let highest = basis.full_usd.max(entry_usd);
    let lowest = entry_usd.max(highest / 200.0).min(highest);
    // Slightly more, so that rounding does not cost the smallest budget its only unit.
    Ok(budget_range(lowest * (1.0 + 1e-9), highest * (1.0 + 1e-9), count))
}

/// One front for each backing store.
fn fronts(basis: &Basis, largest_usd: f64, budgets: &[f64]) -> Result<Vec<Front>, AnalysisError> {
    let mut fronts = Vec::new();
    for backing in basis.backings() {
        let combinations = basis.combinations.iter().filter(|c| c.backing == backing);
        let hierarchies: Vec<Hierarchy> = combinations
            .map(|c| Hierarchy::new(&basis.catalogue, c, basis.options.policy))
            .collect::<Result<_, _>>()?;
        let found =
            pareto_front(&*basis.profile, &hierarchies, &basis.options, largest_usd, budgets)?;
        let (points, is_exact) = (found.points, found.is_exact);
        fronts.push(Front { backing: backing.to_string(), hierarchies, points, is_exact });
    }
    Ok(fronts)
}
