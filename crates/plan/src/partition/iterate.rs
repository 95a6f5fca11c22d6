//! Plan, measure, plan again: latencies move with the load that a plan leaves to each device.
//!
//! A plan made with latencies that were measured under another division may be wrong: where misses
//! go up, the backing store waits longer. So the plan is measured, and the search runs again with
//! what was measured, until what was predicted is what is measured (Koller 2012, section 5.3.1).
//!
//! The paper puts the last measured latencies in the place of the ones before. Two divisions can then
//! take turns for ever: a volume that has much cache has a backing store at rest, and so seems to be
//! in no need of cache. Here every measurement is kept, with the load at which it was made
//! ([`VolumeModel::under`]). A division that was measured once is thereby predicted as it was
//! measured, so that each plan is either a new one or the last.

use super::model::{ByPlace, LoadPoint, VolumeModel};
use super::problem::{Goal, Outcome, Problem, Sizes};
use super::solution::{Search, Solution, solve};
use super::watch::Watch;
use crate::error::{BoxError, PlanError};

/// Fewer requests than this say nothing of the latency of their place.
const COUNT_MIN: f64 = 20.0;

/// When to stop.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Convergence {
    /// How far prediction and measurement may be apart: in the objective, in the latency of each
    /// volume with a target, and, by volume, for the mean request. Latencies and requests per second
    /// as fractions of what was measured, hit ratios as differences.
    pub tolerance: f64,
    /// Plans at most.
    pub rounds_max: u32,
}

impl Default for Convergence {
    fn default() -> Self {
        Self { tolerance: 0.05, rounds_max: 8 }
    }
}

/// What one volume did with its share.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measured {
    /// What became of its requests.
    pub outcome: Outcome,
    /// Mean latency of reads by place, in microseconds; of no meaning where there were none.
    pub read: ByPlace,
    /// Mean latency of writes by place, in microseconds; of no meaning where there were none.
    pub write: ByPlace,
}

/// Tells what every volume does with a share of these sizes.
pub type Measure<'a> = dyn FnMut(&[Sizes]) -> Result<Vec<Measured>, BoxError> + 'a;

/// One plan and what was measured of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Round {
    /// The plan.
    pub solution: Solution,
    /// Its shares in bytes.
    pub sizes: Vec<Sizes>,
    /// What the plan promised, by volume.
    pub predicted: Vec<Outcome>,
    /// What was measured, by volume.
    pub measured: Vec<Outcome>,
    /// The objective as predicted and as measured.
    pub objective: [f64; 2],
    /// How far the two are apart ([`Convergence::tolerance`]).
    pub deviation: f64,
}

/// All plans, in the order in which they were made.
#[derive(Clone, PartialEq, Debug)]
pub struct Iterated {
    /// At least one.
    pub rounds: Vec<Round>,
    /// The round that is the answer: the one that agreed, or else the one that measured best.
    pub chosen: usize,
    /// Whether prediction and measurement agreed.
    pub converged: bool,
}

/// Plans and measures until both agree, beginning with what is measured of `first`, which is no plan
/// but may have been measured for comparison: equal shares, say. The problem's models are afterwards
/// those by which the answer was predicted.
///
/// # Errors
/// If a search or a measurement fails, or `watch` ends a search.
pub fn iterate(
    problem: &mut Problem<'_>,
    search: Search,
    convergence: Convergence,
    first: Option<(&[Sizes], &[Measured])>,
    watch: &mut Watch<'_>,
    measure: &mut Measure<'_>,
) -> Result<Iterated, PlanError> {
    let mut rounds: Vec<Round> = Vec::new();
    let mut known: Vec<(Vec<Sizes>, Vec<Measured>)> = Vec::new();
    let mut models: Vec<Vec<VolumeModel>> = Vec::new();
    if let Some((sizes, measured)) = first {
        known.push((sizes.to_vec(), measured.to_vec()));
        learn_all(problem, measured, sizes);
    }
    let (mut converged, mut repeats) = (false, false);
    while !converged && !repeats && rounds.len() < convergence.rounds_max.max(1) as usize {
        let solution = solve(problem, search, watch)?;
        let sizes: Vec<Sizes> =
            solution.shares.iter().enumerate().map(|(v, &s)| problem.sizes(v, s)).collect();
        let predicted: Vec<Outcome> =
            sizes.iter().enumerate().map(|(v, &s)| problem.predict(v, s)).collect();
        let before = known.iter().find(|(of, _)| *of == sizes);
        // What disagrees with itself will not come to agree.
        repeats = before.is_some();
        let measured = match before {
            Some((_, measured)) => measured.clone(),
            None => {
                let what = || format!("round {}", rounds.len() + 1);
                let failed = |source| PlanError::Evaluation { what: what(), source };
                let measured = measure(&sizes).map_err(failed)?;
                known.push((sizes.clone(), measured.clone()));
                measured
            }
        };
        let outcomes: Vec<Outcome> = measured.iter().map(|m| m.outcome).collect();
        let deviation = deviation(problem, &predicted, &outcomes, &sizes);
        converged = deviation <= convergence.tolerance;
        models.push(problem.models().to_vec());
        learn_all(problem, &measured, &sizes);
        rounds.push(Round {
            objective: [&predicted, &outcomes].map(|o| problem.objective(o, &sizes)),
            solution,
            sizes,
            predicted,
            measured: outcomes,
            deviation,
        });
    }
    let chosen = match converged {
        true => rounds.len() - 1,
        false => best(problem, &rounds),
    };
    problem.update_models(|latest| latest.clone_from_slice(&models[chosen]));
    Ok(Iterated { rounds, chosen, converged })
}

/// The round that measured best: first in targets, then in the objective.
fn best(problem: &Problem<'_>, rounds: &[Round]) -> usize {
    let key = |round: &Round| {
        let missed = |(v, o): (usize, &Outcome)| problem.missed(v, o.latency_us);
        let missed: f64 = round.measured.iter().enumerate().map(missed).sum();
        let objective = round.objective[1];
        (missed, if problem.is_maximised() { -objective } else { objective })
    };
    let order = |a: usize, b: usize| {
        let (a, b) = (key(&rounds[a]), key(&rounds[b]));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    };
    (0..rounds.len()).min_by(|&a, &b| order(a, b)).unwrap_or(0)
}

fn learn_all(problem: &mut Problem<'_>, measured: &[Measured], sizes: &[Sizes]) {
    for (volume, (measured, &sizes)) in measured.iter().zip(sizes).enumerate() {
        let predicted = problem.predict(volume, sizes);
        let assumed = problem.latencies(volume, sizes, &predicted);
        // Less than a block caches nothing.
        let is_cached = problem.blocks(sizes) > 0;
        problem.update_models(|models| learn(&mut models[volume], assumed, measured, is_cached));
    }
}

/// Takes in what was measured, under the load that was predicted: there it will be looked up.
/// What was not measured stays as it was `assumed`.
fn learn(model: &mut VolumeModel, assumed: LoadPoint, measured: &Measured, is_cached: bool) {
    let outcome = &measured.outcome;
    let mut point = assumed;
    for place in ByPlace::PLACES {
        if outcome.reads.at(place) >= COUNT_MIN {
            *point.read.at_mut(place) = measured.read.at(place);
        }
        if is_cached && outcome.writes.at(place) >= COUNT_MIN {
            *point.write.at_mut(place) = measured.write.at(place);
        }
    }
    if !is_cached && outcome.writes.sum() >= COUNT_MIN {
        model.write_uncached = measured.write.dot(&outcome.writes) / outcome.writes.sum();
    }
    let by_formula = model.iops(point.backing_ratio);
    if by_formula > 0.0 && outcome.iops > 0.0 {
        point.iops_factor = outcome.iops / by_formula;
    }
    model.learn(point);
}

/// How far prediction and measurement are apart: in the objective, for volumes with a target, and
/// for the mean request. One small volume that jumps about does not count for much.
fn deviation(
    problem: &Problem<'_>,
    predicted: &[Outcome],
    measured: &[Outcome],
    sizes: &[Sizes],
) -> f64 {
    let relative = |a: f64, b: f64| if b != 0.0 { ((a - b) / b).abs() } else { 0.0 };
    let is_iops = matches!(problem.options().goal, Goal::Iops(_));
    let [a, b] = [predicted, measured].map(|o| problem.objective(o, sizes));
    let mut most = match problem.options().goal {
        Goal::Hits => (a - b).abs(),
        _ => relative(a, b),
    };
    let (mut sum, mut requests) = (0.0, 0.0);
    for (volume, (p, m)) in predicted.iter().zip(measured).enumerate() {
        let latency = relative(p.latency_us, m.latency_us);
        let speed = if is_iops { relative(p.iops, m.iops) } else { latency };
        sum += m.requests() * speed.max((p.hit_ratio() - m.hit_ratio()).abs());
        requests += m.requests();
        if problem.target_us(volume).is_some() {
            most = most.max(latency);
        }
    }
    if requests > 0.0 { most.max(sum / requests) } else { most }
}
