//! The answer to which tiers to buy.

use std::sync::Arc;

use forebay_plan::{
    Catalogue, Choice, Combination, Hierarchy, JudgedBy, ParetoPoint, Plan, PlanError, PlanOptions,
    Profile, Purchase, Space,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Columns;

/// The input of the plans.
#[derive(Debug)]
pub struct Basis {
    /// Hits by cache size.
    pub profile: Arc<Profile>,
    /// The devices.
    pub catalogue: Catalogue,
    /// The allowed combinations.
    pub combinations: Vec<Combination>,
    /// The options of the plans, including the duration of the traces.
    pub options: PlanOptions,
    /// Cost of DRAM for all data.
    pub full_usd: f64,
}

/// The plans and their input.
#[derive(Debug)]
pub struct Answer {
    /// The input of the plans.
    pub basis: Basis,
    /// How the choices were evaluated.
    pub judged_by: JudgedBy,
    /// One plan for each requested budget.
    pub plans: Vec<Plan>,
    /// One plan for each budget of the sweep, in ascending order.
    pub sweep: Vec<Plan>,
    /// Number of purchases that were simulated or replayed.
    pub judgements: u64,
    /// One front for each backing store, with the hierarchies that its points index.
    pub pareto: Vec<Front>,
}

/// The Pareto front for one backing store.
#[derive(Debug)]
pub struct Front {
    /// The backing store's name.
    pub backing: String,
    /// The hierarchies in front of it.
    pub hierarchies: Vec<Hierarchy>,
    /// The plans that no other plan dominates.
    pub points: Vec<ParetoPoint>,
    /// Whether all sizes were evaluated.
    pub is_exact: bool,
}

impl Basis {
    /// The backing stores, in the order in which combinations name them.
    pub fn backings(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for combination in &self.combinations {
            if !names.contains(&combination.backing.as_str()) {
                names.push(&combination.backing);
            }
        }
        names
    }

    /// Bytes of metadata per block, for each tier.
    pub fn metadata_bytes(&self) -> Vec<u64> {
        let tiers = self.combinations.iter().map(|c| c.tiers.len()).max().unwrap_or(1);
        (0..tiers).map(|tier| self.options.cost.metadata.bytes_per_block(tier)).collect()
    }

    /// An amount for the whole workload, converted to an amount per day; `None` if the traces have
    /// no times.
    pub fn per_day(&self, amount: f64) -> Option<f64> {
        let days = self.profile.duration().as_secs_f64() / 86_400.0;
        (days > 0.0).then(|| amount / days)
    }

    /// Calls `work` with the sizes that the plan's budget can buy of the choice's hierarchy.
    ///
    /// # Errors
    /// If the catalogue lacks a device of the choice, or the budget buys nothing.
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
        let space = Space::new(&*self.profile, &hierarchy, &self.options.cost, budget_usd)?;
        Ok(work(&space))
    }
}

impl Answer {
    /// One row for each budget, requested or of the sweep, and combination.
    pub fn rows(&self) -> Columns {
        let plans = self.plans.iter().chain(&self.sweep);
        Columns::from_rows(
            plans.flat_map(|plan| plan.choices.iter().map(|choice| row(plan, choice))),
        )
    }
}

/// A row of `--parquet`.
pub type Row = (Chosen, Purchase);

/// The columns of a row that come before the purchase.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Chosen {
    /// The budget, in US dollars.
    pub budget_usd: f64,
    /// The devices of the tiers: `FastDRAM+FastSSD`.
    pub tiers: String,
    /// Size of tier 1.
    pub tier1_bytes: u64,
    /// Size of tier 2; 0 if it is not bought.
    pub tier2_bytes: u64,
    /// Size of tier 3; 0 if it is not bought.
    pub tier3_bytes: u64,
    /// Size of tier 4; 0 if it is not bought.
    pub tier4_bytes: u64,
    /// Share of all block accesses that hit in tier 1.
    pub tier1_hit_ratio: f64,
    /// Share of all block accesses that hit in any tier.
    pub hit_ratio: f64,
    /// Mean latency of the single tier of the same cost.
    pub baseline_latency_us: f64,
    /// Number of evaluated sizes of this combination, not counting the single tier.
    pub evaluations: u64,
}

fn row(plan: &Plan, choice: &Choice) -> Row {
    let purchase = &choice.purchase;
    let bytes = |tier: usize| purchase.tiers.get(tier).map_or(0, |tier| tier.bytes);
    let names: Vec<&str> = purchase.tiers.iter().map(|tier| tier.device.as_str()).collect();
    let chosen = Chosen {
        budget_usd: plan.budget_usd,
        tiers: names.join("+"),
        tier1_bytes: bytes(0),
        tier2_bytes: bytes(1),
        tier3_bytes: bytes(2),
        tier4_bytes: bytes(3),
        tier1_hit_ratio: purchase.hit_ratio[0],
        hit_ratio: purchase.hit_ratio.iter().sum(),
        baseline_latency_us: choice.baseline.mean_latency_us,
        evaluations: choice.evaluations,
    };
    (chosen, purchase.clone())
}
