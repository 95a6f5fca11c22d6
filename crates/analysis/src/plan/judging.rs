//! Evaluates the best choices of plans by simulation or replay.

use forebay_config::Config;
use forebay_plan::{Hierarchy, JudgedBy, Judgements, Method, Units, judge_shortlist, plan_with};

use super::replayed::{Replay, Replayer};
use super::simulated::simulated_cache;
use super::{Answer, Question, Workload};
use crate::{AnalysisError, Observer};

/// Default number of choices to simulate or replay.
pub const SHORTLIST: usize = 3;

/// How to evaluate the best choices.
#[derive(Clone, Debug, Default)]
pub enum Evaluate {
    /// From the curves and the latencies of the devices.
    #[default]
    Analytic,
    /// By simulating the cache.
    Simulate {
        /// Number of choices of each budget to simulate after an exhaustive search. Cydonia
        /// simulates every evaluation.
        shortlist: usize,
        /// The cache: policies, admission, the relation of the tiers, the layout of flash. The plan
        /// replaces its sizes, write policy and devices. `None`: the default cache.
        cache: Option<Box<Config>>,
    },
    /// By replaying the traces on real files and devices.
    Replay {
        /// Number of choices of each budget to replay after an exhaustive search. Cydonia replays
        /// every evaluation.
        shortlist: usize,
        /// The target of the replay.
        replay: Box<Replay>,
    },
}

impl Evaluate {
    /// The method that evaluates.
    pub const fn judged_by(&self) -> JudgedBy {
        match self {
            Self::Analytic => JudgedBy::Analytic,
            Self::Simulate { .. } => JudgedBy::Simulate,
            Self::Replay { .. } => JudgedBy::Replay,
        }
    }
}

impl Question {
    /// Evaluates the plans by simulation or replay, if requested.
    ///
    /// # Errors
    /// If a simulation or a replay fails, or the observer stops the work.
    pub fn judge(
        &self,
        workload: &Workload,
        answer: &mut Answer,
        observer: &dyn Observer,
    ) -> Result<(), AnalysisError> {
        let (traces, cost) = (&self.traces, self.options.cost);
        let duration = workload.profile.duration();
        let judged_by = self.evaluate.judged_by();
        match &self.evaluate {
            Evaluate::Simulate { shortlist, cache } => {
                let cache = simulated_cache(cache.as_deref())?;
                let simulator = self.simulator(&cache, workload, observer);
                let judgements = Judgements::new(|h, sizes| simulator.judge(h, sizes));
                answer.judge(judged_by, *shortlist, judgements)
            }
            Evaluate::Replay { shortlist, replay } => {
                let (survey, queue_depth) = (workload.survey.clone(), replay.queue_depth);
                let base = replay.config_of(&self.combinations[0]);
                let replayer =
                    Replayer { traces, observer, cost, base, survey, queue_depth, duration };
                let replayer = replayer.with_sizes().map_err(AnalysisError::Judging)?;
                let judgements = Judgements::new(|h, sizes| replayer.judge(h, sizes));
                answer.judge(judged_by, *shortlist, judgements)
            }
            Evaluate::Analytic => Ok(()),
        }
    }
}

impl Answer {
    /// Evaluates the plans of the requested budgets with a judge, which is slower than formulas:
    /// after an exhaustive search only the shortlist, with Cydonia every evaluation.
    fn judge(
        &mut self,
        judged_by: JudgedBy,
        shortlist: usize,
        mut judgements: Judgements<'_>,
    ) -> Result<(), AnalysisError> {
        let basis = &self.basis;
        for plan in &mut self.plans {
            let shortlist = match basis.options.method {
                Method::Exhaustive { .. } => shortlist,
                Method::Cydonia(_) => {
                    let mut evaluator = |hierarchy: &Hierarchy, sizes: &[Units]| {
                        let (hierarchy, sizes) = bought(hierarchy, sizes);
                        // Sizes for which no such cache can be built must not be chosen.
                        let judged = judgements.get(&hierarchy, &sizes)?;
                        Ok(judged.map_or(f64::INFINITY, |j| j.mean_latency_us))
                    };
                    *plan = plan_with(
                        &*basis.profile,
                        &basis.catalogue,
                        &basis.combinations,
                        plan.budget_usd,
                        &basis.options,
                        &mut evaluator,
                    )?;
                    usize::MAX
                }
            };
            let by = (shortlist, judged_by);
            judge_shortlist(plan, &basis.catalogue, &basis.options, by, &mut judgements)?;
        }
        (self.judged_by, self.judgements) = (judged_by, judgements.count());
        Ok(())
    }
}

/// The hierarchy and sizes without tiers of size 0.
fn bought(hierarchy: &Hierarchy, sizes: &[Units]) -> (Hierarchy, Vec<Units>) {
    let there = |tier: &usize| sizes.get(*tier).is_some_and(|size| size.0 > 0);
    let kept: Vec<usize> = (0..hierarchy.tiers.len()).filter(there).collect();
    let tiers = kept.iter().map(|&tier| hierarchy.tiers[tier].clone()).collect();
    let sizes = kept.iter().map(|&tier| sizes[tier]).collect();
    (Hierarchy { tiers, ..hierarchy.clone() }, sizes)
}
