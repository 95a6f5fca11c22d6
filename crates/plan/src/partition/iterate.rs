//! Plan, measure, plan again: latencies depend on the load that a plan puts on each device.
//!
//! Latencies that were measured under another division can mislead a plan: with more misses,
//! requests wait longer for the backing store. So the plan is measured, and the search runs again
//! with the measured latencies, until prediction and measurement agree (Koller 2012, section
//! 5.3.1).
//!
//! The paper replaces the previous latencies with the last measured ones. Two divisions can then
//! alternate forever: a volume with much cache puts little load on its backing store, so it seems
//! to need no cache. Here every measurement is kept, together with the load under which it was made
//! ([`VolumeModel::under`]). The prediction for a division that was measured equals the
//! measurement, so each plan is either a new one or the last.

use super::model::{ByPlace, LoadPoint, VolumeModel};
use super::problem::{Goal, Outcome, Problem, Sizes};
use super::solution::{Search, Solution, solve};
use super::watch::Watch;
use crate::error::{BoxError, PlanError};

/// Fewer requests than this do not give a reliable latency for their place.
const COUNT_MIN: f64 = 20.0;

/// When to stop iterating.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Convergence {
    /// The largest deviation between prediction and measurement at which they agree. It covers the
    /// objective, the latency of each volume with a target, and the mean over requests of each
    /// volume's deviation. Latencies and requests per second are compared as fractions of the
    /// measured value, hit ratios as differences.
    pub tolerance: f64,
    /// Largest number of plans.
    pub rounds_max: u32,
}

impl Default for Convergence {
    fn default() -> Self {
        Self { tolerance: 0.05, rounds_max: 8 }
    }
}

/// The measured behaviour of one volume with its share.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measured {
    /// The outcome of its requests.
    pub outcome: Outcome,
    /// Mean latency of reads by place, in microseconds; meaningless for a place without reads.
    pub read: ByPlace,
    /// Mean latency of writes by place, in microseconds; meaningless for a place without writes.
    pub write: ByPlace,
}

/// Measures every volume with a share of these sizes.
pub type Measure<'a> = dyn FnMut(&[Sizes]) -> Result<Vec<Measured>, BoxError> + 'a;

/// One plan and its measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Round {
    /// The plan.
    pub solution: Solution,
    /// Its shares in bytes.
    pub sizes: Vec<Sizes>,
    /// The predicted outcome of each volume.
    pub predicted: Vec<Outcome>,
    /// The measured outcome of each volume.
    pub measured: Vec<Outcome>,
    /// The objective, predicted and measured.
    pub objective: [f64; 2],
    /// The deviation between prediction and measurement ([`Convergence::tolerance`]).
    pub deviation: f64,
}

/// All plans, in the order in which they were made.
#[derive(Clone, PartialEq, Debug)]
pub struct Iterated {
    /// The rounds; at least one.
    pub rounds: Vec<Round>,
    /// Index of the round that is the answer: the one that agreed, or else the one with the best
    /// measurement.
    pub chosen: usize,
    /// Whether prediction and measurement agreed.
    pub converged: bool,
}

/// Plans and measures until prediction and measurement agree. `first` is a division that was
/// measured before, with its measurements; it need not be a plan (equal shares, for example), and
/// the models learn from it. Afterwards, the problem's models are those that predicted the answer.
///
/// # Errors
/// If a search or a measurement fails, or `watch` stops a search.
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
        // A repeated division has the same measurement, so further rounds would not help.
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

/// The round with the best measurement: first by missed targets, then by the objective.
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
        // A share of less than one block caches nothing.
        let is_cached = problem.blocks(sizes) > 0;
        problem.update_models(|models| learn(&mut models[volume], assumed, measured, is_cached));
    }
}

/// Adds the measurement to the model under the predicted load, where it will be looked up. Values
/// that were not measured stay as `assumed`.
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

/// The deviation between prediction and measurement: the largest of those of the objective and of
/// the latency of volumes with a target, and the mean over requests. The mean keeps one small,
/// erratic volume from counting much.
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
