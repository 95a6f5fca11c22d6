//! A study as a JSON document, and its rows.

use forebay_plan::{Class, StudyPoint, StudySummary};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, POLICIES, Studied};
use crate::Columns;

/// The JSON document.
#[derive(Serialize, Deserialize, Debug, JsonSchema)]
pub struct Document {
    /// The traces, in the order of the files.
    pub traces: Vec<OfTrace>,
    /// The budgets, as fractions of the cost of DRAM for all data.
    pub scaled_budgets: Vec<f64>,
    /// Maximum number of sizes that Cydonia may evaluate for each combination.
    pub evaluations: u64,
    /// Results of all traces together: first with write-through, then with write-back.
    pub policies: Vec<OfPolicy>,
    /// Seconds that all searches took.
    pub search_s: f64,
}

/// The results for one trace.
#[derive(Serialize, Deserialize, Debug, JsonSchema)]
pub struct OfTrace {
    /// Name of the trace file, without the extension.
    pub trace: String,
    /// Requests in the trace.
    pub requests: u64,
    /// Block accesses.
    pub accesses: u64,
    /// Bytes of distinct blocks.
    pub footprint_bytes: u64,
    /// Cost of DRAM for all data of the trace.
    pub full_cost_usd: f64,
    /// Seconds that the searches for this trace took.
    pub search_s: f64,
    /// Results of this trace alone: first with write-through, then with write-back.
    pub policies: Vec<StudySummary>,
}

/// The results for one write policy, over all traces.
#[derive(Serialize, Deserialize, Debug, JsonSchema)]
pub struct OfPolicy {
    /// The write policy.
    pub policy: String,
    /// Over all traces, combinations and budgets.
    #[serde(flatten)]
    pub summary: StudySummary,
    /// Each combination of two tiers, in the order of the catalogue.
    pub combinations: Vec<OfCombination>,
}

/// The results for one combination with one write policy, over all traces.
#[derive(Serialize, Deserialize, Debug, JsonSchema)]
pub struct OfCombination {
    /// The devices, fastest first.
    pub tiers: Vec<String>,
    /// The device of the backing store.
    pub backing: String,
    /// Over all traces and budgets.
    #[serde(flatten)]
    pub summary: StudySummary,
    /// Number of traces for which each shape is fastest, by scaled budget.
    pub winners: Vec<Winners>,
}

/// Numbers of traces for which each shape is the fastest with one budget.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, JsonSchema)]
pub struct Winners {
    /// A single tier.
    pub single: u64,
    /// Two tiers; the second is larger than the first.
    pub pyramidal: u64,
    /// Two tiers; the second is not larger than the first.
    pub non_pyramidal: u64,
}

/// A row of `--parquet`.
pub type Row = (Case, StudyPoint);

/// The columns of a row that come before the point.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// Name of the trace file, without the extension.
    pub trace: String,
    /// The write policy.
    pub policy: String,
    /// The devices: `FastDRAM + FastSSD / SlowHDD`.
    pub combination: String,
    /// The budget, as a fraction of the cost of DRAM for all data.
    pub scaled_budget: f64,
}

impl Winners {
    /// Share of this class among the traces for which the budget buys something; NaN if it buys nothing for any.
    pub fn share(&self, class: Class) -> f64 {
        let all = self.single + self.pyramidal + self.non_pyramidal;
        let won = match class {
            Class::Single => self.single,
            Class::Pyramidal => self.pyramidal,
            Class::NonPyramidal => self.non_pyramidal,
        };
        if all == 0 { f64::NAN } else { won as f64 / all as f64 }
    }
}

impl OfCombination {
    /// The devices: `FastDRAM + FastSSD / SlowHDD`.
    pub fn name(&self) -> String {
        name(&self.tiers, &self.backing)
    }
}

fn name(tiers: &[String], backing: &str) -> String {
    format!("{} / {backing}", tiers.join(" + "))
}

impl Answer {
    /// The answer as a JSON document.
    pub fn document(&self) -> Document {
        let policies = POLICIES.iter().enumerate().map(|(at, &policy)| {
            let combinations = (0..self.combinations.len()).map(|combination| OfCombination {
                tiers: self.combinations[combination].tiers.clone(),
                backing: self.combinations[combination].backing.clone(),
                summary: StudySummary::from_points(self.points(at, combination)),
                winners: self.winners(at, combination),
            });
            OfPolicy {
                policy: policy.name().to_owned(),
                summary: StudySummary::from_points(
                    (0..self.combinations.len()).flat_map(|c| self.points(at, c)),
                ),
                combinations: combinations.collect(),
            }
        });
        let traces = self.traces.iter().map(|t| OfTrace {
            trace: t.trace.clone(),
            requests: t.requests,
            accesses: t.accesses,
            footprint_bytes: t.footprint_bytes,
            full_cost_usd: t.full_cost_usd,
            search_s: t.search_s,
            policies: (0..POLICIES.len())
                .map(|policy| {
                    StudySummary::from_points(t.points[policy].iter().flatten().flatten())
                })
                .collect(),
        });
        Document {
            traces: traces.collect(),
            scaled_budgets: self.scaled_budgets.clone(),
            evaluations: self.evaluations_max,
            policies: policies.collect(),
            search_s: self.search_time().as_secs_f64(),
        }
    }

    fn winners(&self, policy: usize, combination: usize) -> Vec<Winners> {
        let winners = |budget: usize| {
            let at = |t: &Studied| t.points[policy][combination][budget];
            let summary =
                StudySummary::from_points(&self.traces.iter().filter_map(at).collect::<Vec<_>>());
            let StudySummary { single, pyramidal, non_pyramidal, .. } = summary;
            Winners { single, pyramidal, non_pyramidal }
        };
        (0..self.scaled_budgets.len()).map(winners).collect()
    }

    /// One row for each trace, policy, combination and budget.
    pub fn rows(&self) -> Columns {
        let mut rows: Vec<Row> = Vec::new();
        for trace in &self.traces {
            for (policy, by_combination) in POLICIES.iter().zip(&trace.points) {
                for (combination, by_budget) in self.combinations.iter().zip(by_combination) {
                    for (&scaled_budget, point) in self.scaled_budgets.iter().zip(by_budget) {
                        let case = Case {
                            trace: trace.trace.clone(),
                            policy: policy.name().to_owned(),
                            combination: name(&combination.tiers, &combination.backing),
                            scaled_budget,
                        };
                        rows.extend(point.map(|point| (case, point)));
                    }
                }
            }
        }
        Columns::from_rows(rows)
    }
}
