//! Grow the existing tier 1, or add a tier 2?

use forebay_plan::{Growth, Hierarchy, PlanError, Units, budget_range};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Basis, Question as PlanQuestion};
use crate::{AnalysisError, Columns, Observer};

/// Number of amounts of money in a curve.
const AMOUNTS: usize = 48;

/// Whether to grow an existing tier 1 or to add a tier 2.
#[derive(Clone, Debug)]
pub struct Question {
    /// Workload, devices and budgets. How to evaluate choices is ignored; formulas are used.
    pub plan: PlanQuestion,
    /// Size of the existing tier 1, in bytes.
    pub have_bytes: u64,
}

/// The effect of the budgets on the existing tier 1.
#[derive(Debug)]
pub struct Answer {
    /// The input of the comparison.
    pub basis: Basis,
    /// The figures.
    pub document: Document,
}

/// The JSON document. Latencies are in microseconds.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct Document {
    /// The write policy (`--policy`).
    pub policy: String,
    /// Size of a block, in bytes.
    pub block_size: u64,
    /// Bytes of metadata per block, for each tier.
    pub metadata_bytes_per_block: Vec<u64>,
    /// Size of the existing tier 1, rounded down to whole units.
    pub have_bytes: u64,
    /// Cost of DRAM for all data. A budget in percent is a percentage of this cost.
    pub full_cost_usd: f64,
    /// An entry for each budget and combination of two tiers.
    pub growth: Vec<Growth>,
    /// Names of the combinations for which a budget does not buy one unit.
    pub unaffordable: Vec<String>,
    /// The latency by budget, for each combination of two tiers.
    pub curves: Vec<Curve>,
}

/// The latencies of a combination with increasing amounts of money.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, JsonSchema)]
pub struct Curve {
    /// The devices of tier 1 and tier 2.
    pub tiers: [String; 2],
    /// The device of the backing store.
    pub backing: String,
    /// Points of the curve by ascending budget.
    pub points: Vec<Point>,
}

/// The effect of one amount of money.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, JsonSchema)]
pub struct Point {
    /// Budget in addition to the existing cache.
    pub budget_usd: f64,
    /// Mean latency if the whole budget is spent on enlarging tier 1.
    pub grow_latency_us: f64,
    /// Mean latency if the whole budget is spent on adding a tier 2.
    pub add_latency_us: f64,
    /// Mean latency if the budget is divided optimally.
    pub divide_latency_us: f64,
}

/// A row of `--parquet`.
pub type Row = (Tiers, Growth);

/// The columns of a row that come before the figures.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Tiers {
    /// The device of tier 1.
    pub tier1: String,
    /// The device of tier 2.
    pub tier2: String,
    /// The device of the backing store.
    pub backing: String,
    /// Size of the existing tier 1.
    pub have_bytes: u64,
    /// Size of tier 1 if the whole budget is spent on enlarging it.
    pub grow_tier1_bytes: u64,
    /// Size of tier 2 if the whole budget is spent on adding one.
    pub add_tier2_bytes: u64,
    /// Size of tier 1 if the budget is divided optimally.
    pub divide_tier1_bytes: u64,
    /// Size of tier 2 if the budget is divided optimally.
    pub divide_tier2_bytes: u64,
}

impl Question {
    /// Compares the options for every requested budget and every combination of two tiers.
    ///
    /// # Errors
    /// If the traces cannot be read, `have_bytes` is less than the unit of sizes, no combination
    /// has two tiers, a budget buys nothing in any combination, or the observer stops the work.
    pub fn ask(&self, observer: &dyn Observer) -> Result<Answer, AnalysisError> {
        self.plan.check_search()?;
        let workload = self.plan.measure(observer)?;
        let basis = self.plan.basis(&workload.profile);
        let unit_bytes = basis.options.cost.unit_bytes;
        let have = Units(self.have_bytes / unit_bytes);
        if have.0 == 0 {
            return Err(AnalysisError::HaveTooLittle { unit_bytes });
        }
        let mut document = Document {
            policy: basis.options.policy.name().to_owned(),
            block_size: basis.options.cost.block_size.bytes(),
            metadata_bytes_per_block: basis.metadata_bytes(),
            have_bytes: have.0 * unit_bytes,
            full_cost_usd: basis.full_usd,
            growth: Vec::new(),
            unaffordable: Vec::new(),
            curves: Vec::new(),
        };
        let hierarchies = two_tiers(&basis)?;
        let compare = |hierarchy: &Hierarchy, usd: f64| {
            Growth::compare(&*basis.profile, hierarchy, have, usd, &basis.options)
        };
        for &budget in &self.plan.budgets {
            observer.check()?;
            let usd = budget.usd(&*basis.profile, &basis.catalogue, &basis.options.cost);
            let (mut refusal, before) = (None, document.growth.len());
            for hierarchy in &hierarchies {
                match compare(hierarchy, usd) {
                    Ok(growth) => document.growth.push(growth),
                    Err(error @ PlanError::BuysNothing { .. }) => {
                        document.unaffordable.push(hierarchy.label());
                        refusal = Some(error);
                    }
                    Err(error) => return Err(AnalysisError::Refused { error, budget }),
                }
            }
            if let Some(error) = refusal.filter(|_| document.growth.len() == before) {
                return Err(AnalysisError::Refused { error, budget });
            }
        }
        for hierarchy in &hierarchies {
            observer.check()?;
            let curve = curve(&basis, hierarchy, &document.growth, compare)?;
            document.curves.push(curve);
        }
        Ok(Answer { basis, document })
    }
}

fn two_tiers(basis: &Basis) -> Result<Vec<Hierarchy>, AnalysisError> {
    let two = basis.combinations.iter().filter(|c| c.tiers.len() == 2);
    let all: Vec<Hierarchy> = two
        .map(|c| Hierarchy::new(&basis.catalogue, c, basis.options.policy))
        .collect::<Result<_, _>>()?;
    if all.is_empty() { Err(AnalysisError::NotTwoTiers) } else { Ok(all) }
}

/// Latency by amount of money, for each way of spending it.
fn curve(
    basis: &Basis,
    hierarchy: &Hierarchy,
    asked: &[Growth],
    compare: impl Fn(&Hierarchy, f64) -> Result<Growth, PlanError>,
) -> Result<Curve, PlanError> {
    let cost = &basis.options.cost;
    let (first, second) = (&hierarchy.tiers[0], &hierarchy.tiers[1]);
    let lowest = cost.unit_usd(0, first, first).max(cost.unit_usd(1, second, first));
    let most = asked.iter().map(|g| g.budget_usd).fold(lowest, f64::max);
    let mut points = Vec::new();
    for usd in budget_range(lowest * (1.0 + 1e-9), 2.0 * most, AMOUNTS) {
        let growth = compare(hierarchy, usd)?;
        points.push(Point {
            budget_usd: growth.budget_usd,
            grow_latency_us: growth.grow.mean_latency_us,
            add_latency_us: growth.add.mean_latency_us,
            divide_latency_us: growth.divide.mean_latency_us,
        });
    }
    let tiers = [first.name.clone(), second.name.clone()];
    Ok(Curve { tiers, backing: hierarchy.backing.name.clone(), points })
}

impl Document {
    /// The backing stores, in the order in which combinations name them.
    pub fn backings(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for curve in &self.curves {
            if !names.contains(&curve.backing.as_str()) {
                names.push(&curve.backing);
            }
        }
        names
    }

    /// One row for each budget and combination.
    pub fn rows(&self) -> Columns {
        Columns::from_rows(self.growth.iter().map(|growth| {
            let [first, second] = [0, 1].map(|tier| &growth.divide.tiers[tier]);
            let tiers = Tiers {
                tier1: first.device.clone(),
                tier2: second.device.clone(),
                backing: growth.now.backing.clone(),
                have_bytes: growth.now.tiers[0].bytes,
                grow_tier1_bytes: growth.grow.tiers[0].bytes,
                add_tier2_bytes: growth.add.tiers[1].bytes,
                divide_tier1_bytes: first.bytes,
                divide_tier2_bytes: second.bytes,
            };
            let row: Row = (tiers, growth.clone());
            row
        }))
    }
}
