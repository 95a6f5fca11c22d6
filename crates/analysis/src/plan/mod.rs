//! Which tiers to buy for a workload and a budget?
//!
//! ```
//! use forebay_analysis::{Unobserved, plan};
//! use forebay_plan::Catalogue;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let trace = dir.path().join("trace.csv");
//! # let start = 128_166_372_000_000_000;
//! # let line = |n: u64| format!("{},host,0,Read,{},4096,10\n", start + n * 10_000, n % 300 * 4096);
//! # let text: String = (0..2000).map(line).collect();
//! # std::fs::write(&trace, text)?;
//! let catalogue = Catalogue::default();
//! let combinations = catalogue.combine(&[], &["SlowHDD".into()])?;
//! let half = "50%".parse()?; // of what DRAM for all data would cost
//! let question = plan::Question::new(trace.as_path().into(), catalogue, combinations, vec![half]);
//! let answer = question.ask(&Unobserved::default())?;
//! let best = &answer.plans[0].choices[0].purchase;
//! assert!(best.mean_latency_us > 0.0 && best.cost_usd <= answer.plans[0].budget_usd);
//! # Ok(())
//! # }
//! ```

mod answer;
mod cache;
mod document;
mod formulas;
pub mod growth;
mod judging;
mod replayed;
mod simulated;
pub mod study;
mod workload;

use forebay_plan::{Budget, Catalogue, Combination, Method, PlanError, PlanOptions, check_budget};

use crate::{AnalysisError, Observer, Traces};
pub use answer::{Answer, Basis, Chosen, Front, Row};
pub use document::{Document, ParetoRow, ParetoTier};
pub use judging::{Evaluate, SHORTLIST};
pub use replayed::Replay;
pub use workload::Workload;

/// Which tiers to buy for a workload.
#[derive(Clone, Debug)]
pub struct Question {
    /// The workload.
    pub traces: Traces,
    /// The devices that can be bought.
    pub catalogue: Catalogue,
    /// The allowed combinations; [`Catalogue::combine`] selects them by name.
    pub combinations: Vec<Combination>,
    /// The budgets; one plan for each, at least one.
    pub budgets: Vec<Budget>,
    /// Write policy, search, costs and wear limit. The duration is taken from the traces.
    pub options: PlanOptions,
    /// The share of the blocks to sample.
    pub sample_rate: f64,
    /// How to evaluate the best choices.
    pub evaluate: Evaluate,
    /// Number of further budgets, from one that buys little to one that buys enough for all data. A
    /// budget that buys nothing, or only flash that wears out, has no plan.
    pub sweep: Option<usize>,
    /// Whether to search for the plans that are Pareto-optimal in cost, mean latency, 99th
    /// percentile and drive writes.
    pub pareto: bool,
}

impl Question {
    /// A question by formulas, with write-through, about the budgets only.
    pub fn new(
        traces: Traces,
        catalogue: Catalogue,
        combinations: Vec<Combination>,
        budgets: Vec<Budget>,
    ) -> Self {
        Self {
            traces,
            catalogue,
            combinations,
            budgets,
            options: PlanOptions::default(),
            sample_rate: 1.0,
            evaluate: Evaluate::default(),
            sweep: None,
            pareto: false,
        }
    }

    /// Rejects an impossible question before traces are read.
    ///
    /// # Errors
    /// If there is no budget, the search does not support the combinations, a budget buys nothing,
    /// or a replay does not have the devices of exactly one combination or would destroy data
    /// without permission.
    pub fn check(&self) -> Result<(), AnalysisError> {
        self.check_search()?;
        for budget in &self.budgets {
            if let Budget::Usd(usd) = budget {
                check_budget(&self.catalogue, &self.combinations, *usd, &self.options.cost)
                    .map_err(|error| AnalysisError::Refused { error, budget: *budget })?;
            }
        }
        Ok(())
    }

    /// As [`check`](Self::check), except for what the budgets buy.
    pub(super) fn check_search(&self) -> Result<(), AnalysisError> {
        if self.budgets.is_empty() {
            return Err(AnalysisError::NoBudget);
        }
        let more = self.combinations.iter().find(|c| c.tiers.len() > 2);
        if let (Method::Cydonia(_), Some(more)) = (self.options.method, more) {
            return Err(PlanError::CydoniaTiers(more.tiers.len()).into());
        }
        match &self.evaluate {
            Evaluate::Replay { replay, .. } => replay.check(&self.catalogue, &self.combinations),
            Evaluate::Analytic | Evaluate::Simulate { .. } => Ok(()),
        }
    }

    /// Runs all steps in order: checks, measures, plans and evaluates.
    ///
    /// # Errors
    /// As [`check`](Self::check), [`measure`](Self::measure), [`plan`](Self::plan) and
    /// [`judge`](Self::judge).
    pub fn ask(&self, observer: &dyn Observer) -> Result<Answer, AnalysisError> {
        self.check()?;
        let workload = self.measure(observer)?;
        let mut answer = self.plan(&workload, observer)?;
        self.judge(&workload, &mut answer, observer)?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unobserved;

    #[test]
    fn a_question_without_a_budget_is_refused_before_and_after_reading() {
        let trace = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(trace.path(), "time_ns,volume,op,offset,length\n0,a,read,0,4096\n").unwrap();
        let catalogue = Catalogue::default();
        let combinations = catalogue.combine(&[], &["SlowHDD".to_owned()]).unwrap();
        let question = Question::new(trace.path().into(), catalogue, combinations, Vec::new());
        let observer = Unobserved::default();
        assert!(matches!(question.check(), Err(AnalysisError::NoBudget)));
        let workload = question.measure(&observer).unwrap();
        let answer = question.plan(&workload, &observer);
        assert!(matches!(answer, Err(AnalysisError::NoBudget)));
        let growth = growth::Question { plan: question, have_bytes: 1 << 30 };
        assert!(matches!(growth.ask(&observer), Err(AnalysisError::NoBudget)));
    }

    #[test]
    fn budgets_of_a_sweep_that_buy_only_what_wears_out_are_left_out() {
        let device = |name: &str, kind: &str, price_usd, capacity_gb, us, more: &str| {
            format!(
                "[[device]]\nname = '{name}'\nkind = '{kind}'\nprice_usd = {price_usd}\n\
                 capacity_gb = {capacity_gb}\nread_latency_us = {us}\nwrite_latency_us = {us}\n{more}\n"
            )
        };
        let text = device("D", "dram", 120, 16, 0.06, "")
            + &device("F", "flash", 100, 400, 10.0, "drive_writes_per_day = 1")
            + &device("H", "hdd", 300, 8000, 2000.0, "")
            + "[[combination]]\ntiers = ['F']\nbacking = ['H']\n";
        let catalogue = Catalogue::parse(&text).unwrap();
        // 2,000 blocks are read twice within an hour: it takes 190 MB of flash to endure that, of
        // which 8 MB are useful.
        let trace = tempfile::NamedTempFile::with_suffix(".csv").unwrap();
        let line = |n: u64| format!("{},a,read,{},4096\n", n * 900_000_000, n % 2000 * 4096);
        let lines: String = (0..4000).map(line).collect();
        std::fs::write(trace.path(), format!("time_ns,volume,op,offset,length\n{lines}")).unwrap();
        let combinations = catalogue.combine(&[], &[]).unwrap();
        let budgets = vec![Budget::Usd(1000.0)];
        let mut question = Question::new(trace.path().into(), catalogue, combinations, budgets);
        question.options.wear_max = Some(1.0);
        question.sweep = Some(8);
        let answer = question.ask(&Unobserved::default()).unwrap();
        assert_eq!(answer.plans.len(), 1);
        assert!((1..8).contains(&answer.sweep.len()), "{}", answer.sweep.len());
    }
}
