//! Searches for the best sizes that a budget buys: exhaustive search and Cydonia.

use crate::best::{Best, Found};
use crate::cost::Units;
use crate::counts::HitCounts;
use crate::error::PlanError;
use crate::evaluate::{Evaluator, evaluate};
use crate::ratio::{HitMiss, Tradeoff, hit_miss_curve};
use crate::space::Space;

/// Factor by which an exhaustive search reduces its step in each refinement.
const CLOSER: u64 = 8;

/// Options of Cydonia.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CydoniaOptions {
    /// The largest number of two-tier sizes to evaluate; at least 1.
    pub evaluations_max: u64,
    /// Evaluates every `step`-th of the sizes in order of hit-miss ratio. `None` spreads the
    /// evaluations over all sizes, which finds second tiers that the first few ratios, being
    /// neighbours, miss (`docs/planning-figures.md` has numbers).
    pub step: Option<usize>,
}

impl Default for CydoniaOptions {
    /// Ten evaluations, as in the paper, spread over the sizes.
    fn default() -> Self {
        Self { evaluations_max: 10, step: None }
    }
}

/// Evaluates every point of the budget (every `step`-th size of all tiers but the last) and returns
/// the fastest. With a `step` above 1 it then searches the neighbourhood of the fastest point with
/// smaller and smaller steps, which finds the best point there.
///
/// Among equally fast sizes it returns the cheapest: every point spends all of the money, and a
/// binary search then finds the smallest last tier that is as fast. It is the smallest if no larger
/// last tier is slower; by the formulas this holds where the tier is worth having.
///
/// # Errors
/// As soon as an evaluation fails.
pub fn exhaustive(
    space: &Space<'_>,
    step: u64,
    evaluator: &mut dyn Evaluator,
) -> Result<Found, PlanError> {
    let mut best: Option<Best> = None;
    let mut look = |best: &mut Option<Best>, sizes: &[Units]| {
        let us = evaluate(space, evaluator, sizes)?;
        match best {
            None => *best = Some(Best::new(space, sizes, us)),
            Some(best) => best.consider_cheaper(space, evaluator, sizes, us)?,
        }
        Ok::<_, PlanError>(())
    };
    let mut points = space.visit(step, |sizes| look(&mut best, sizes))?;
    let mut reach = step;
    while reach > 1 {
        let near = best.as_ref().expect("the single tier is always visited").found.sizes.clone();
        let closer = (reach / CLOSER).max(1);
        points += space.visit_near(&near, reach, closer, |sizes| look(&mut best, sizes))?;
        reach = closer;
    }
    let mut best = best.expect("the single tier is always visited");
    best.trim(space, evaluator)?;
    Ok(Found { evaluations: points - 1 + best.found.evaluations, ..best.found })
}

/// Cydonia (Bhandari 2024, algorithm 1), for at most two tiers: evaluates a few sizes in order of
/// their hit-miss ratio. Useful where each evaluation is a simulation or a replay.
///
/// If the size with the highest ratio beats the single tier of the whole budget, only smaller first
/// tiers are tried after it, otherwise only larger ones. (The comparison signs of the published
/// listing are garbled; this follows the prose.) If no size has a ratio above the devices'
/// overhead-gain ratio, the answer is the single tier.
///
/// It does badly where the latency has several minima over tier 1's size, because it searches only
/// one side of the highest ratio.
///
/// # Errors
/// If the hierarchy has more than two tiers, or as soon as an evaluation fails.
pub fn cydonia<H: HitCounts + ?Sized>(
    counts: &H,
    space: &Space<'_>,
    options: CydoniaOptions,
    evaluator: &mut dyn Evaluator,
) -> Result<Found, PlanError> {
    let single = space.single_tier();
    if single.len() > 2 {
        return Err(PlanError::CydoniaTiers(single.len()));
    }
    let baseline_us = evaluate(space, evaluator, &single)?;
    let mut best = Best::new(space, &single, baseline_us);
    let candidates = promising(counts, space);
    let Some(first) = candidates.first() else { return Ok(best.found) };
    let first_us = best.try_sizes(space, evaluator, first)?;
    let smaller = first_us < baseline_us;
    let keep = |c: &&HitMiss| {
        if smaller { c.tier1 < first.tier1 } else { c.tier1 > first.tier1 }
    };
    let rest: Vec<&HitMiss> = candidates.iter().filter(keep).collect();
    let left = options.evaluations_max.saturating_sub(1).min(rest.len() as u64) as usize;
    for number in 0..left {
        let at = match options.step {
            Some(step) => number.saturating_mul(step.max(1)),
            None => (number as u128 * rest.len() as u128 / left as u128) as usize,
        };
        let Some(candidate) = rest.get(at) else { break };
        best.try_sizes(space, evaluator, candidate)?;
    }
    Ok(best.found)
}

/// The sizes whose hit-miss ratio is above the overhead-gain ratio, highest ratio first; of
/// equal ratios, the smaller tier 1 first.
fn promising<H: HitCounts + ?Sized>(counts: &H, space: &Space<'_>) -> Vec<HitMiss> {
    let Some(tradeoff) = Tradeoff::from_hierarchy(space.hierarchy()) else { return Vec::new() };
    let ogr = tradeoff.overhead_gain_ratio();
    let mut sizes = hit_miss_curve(counts, space);
    sizes.retain(|s| s.ratio() > ogr);
    sizes.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()).then(a.tier1.cmp(&b.tier1)));
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::best::SAME;
    use crate::testing::{Steps, any_hierarchy, hierarchy, steps};
    use crate::{Analytic, CostModel, WritePolicy};
    use proptest::prelude::*;

    const COST: CostModel = CostModel::with_block_size(forebay_block::BlockSize::KIB_4);

    /// The lowest latency over *every* affordable choice of sizes, whether or not it spends all the
    /// money, and the lowest cost at that latency, computed without any of the search's shortcuts.
    fn brute_force<const TIERS: usize>(
        counts: &Steps,
        space: &Space<'_>,
        all: impl Iterator<Item = [u64; TIERS]>,
    ) -> (f64, f64) {
        let h = space.hierarchy();
        let judged = all.filter_map(|sizes| {
            let usd = COST.usd(&h.tiers, &sizes.map(Units));
            let us = || h.mean_latency_us(counts, &sizes.map(|units| units * 256));
            (usd <= space.budget_usd()).then(|| (us(), usd))
        });
        let judged: Vec<(f64, f64)> = judged.collect();
        let lowest = judged.iter().map(|(us, _)| *us).fold(f64::INFINITY, f64::min);
        let fastest = judged.iter().filter(|(us, _)| *us <= lowest * (1.0 + SAME));
        (lowest, fastest.map(|(_, usd)| *usd).fold(f64::INFINITY, f64::min))
    }

    fn pairs(units: u64) -> impl Iterator<Item = [u64; 2]> {
        (1..=units).flat_map(move |one| (0..=units).map(move |two| [one, two]))
    }

    fn check(found: &Found, space: &Space<'_>, (us, usd): (f64, f64)) {
        let what = space.hierarchy().describe(&found.sizes, &COST);
        assert!((found.mean_latency_us - us).abs() <= 1e-8 * us, "{us} against {what}: {found:?}");
        let cost_usd = COST.usd(&space.hierarchy().tiers, &found.sizes);
        assert!(cost_usd <= usd * (1.0 + 1e-9), "{usd} against {cost_usd}: {what}");
    }

    /// Four different devices of the default catalogue, faster ones first.
    fn three_tiers() -> impl Strategy<Value = crate::Hierarchy> {
        let devices = prop::sample::subsequence((0..7usize).collect::<Vec<_>>(), 4);
        let policy = prop_oneof![Just(WritePolicy::WriteThrough), Just(WritePolicy::WriteBack)];
        (devices, policy).prop_map(|(chosen, policy)| {
            let catalogue = crate::Catalogue::default();
            let device = |at: usize| catalogue.devices()[chosen[at]].clone();
            let tiers = (0..3).map(device).collect();
            crate::Hierarchy { tiers, backing: device(3), policy }
        })
    }

    proptest! {
        #[test]
        fn exhaustive_search_of_three_tiers_finds_what_brute_force_finds(
            counts in steps(16), h in three_tiers(), budget in 0.01..0.12f64,
        ) {
            let space = Space::new(&counts, &h, &COST, budget).unwrap();
            let found = exhaustive(&space, 1, &mut Analytic::new(&counts, &COST)).unwrap();
            let all = pairs(16).flat_map(|[one, two]| (0..=16).map(move |three| [one, two, three]));
            check(&found, &space, brute_force(&counts, &space, all));
        }
    }

    #[test]
    fn a_plateau_is_bought_for_the_least_that_reaches_it() {
        // A loop of 4 units, and reuse beyond what the budget buys.
        let at = vec![(4 * 256, 166, 0), (90 * 256, 1000, 0)];
        let counts = Steps { reads: 1100, writes: 0, at, footprint: 100 * 256 };
        let policy = WritePolicy::WriteThrough;
        let one = hierarchy(["FastDRAM"], "SlowHDD", policy);
        let two = hierarchy(["FastDRAM", "SlowSSD"], "SlowHDD", policy);
        for (h, budget, expected) in [(one, 0.2, &[4][..]), (two, 0.02, &[1, 3])] {
            let space = Space::new(&counts, &h, &COST, budget).unwrap();
            let found = exhaustive(&space, 1, &mut Analytic::new(&counts, &COST)).unwrap();
            let sizes: Vec<u64> = found.sizes.iter().map(|size| size.0).collect();
            assert_eq!(sizes, expected, "{}", h.label());
            // The baseline spends all of the money and is no faster.
            assert!(found.mean_latency_us <= found.baseline_us);
        }
    }

    #[test]
    fn a_coarse_search_looks_closer_around_what_it_finds() {
        // Each further unit brings less than the one before, and no size with a jump is on the
        // grid.
        let jump = |k: u64| (k * 5 * 256, (100_000.0 * (k as f64 / 60.0).sqrt()) as u64, 0);
        let at = (1..=60).map(jump).collect();
        let counts = Steps { reads: 110_000, writes: 0, at, footprint: 300 * 256 };
        let h = hierarchy(["FastDRAM", "FastSSD", "SlowSSD"], "SlowHDD", WritePolicy::WriteBack);
        let space = Space::new(&counts, &h, &COST, 0.4).unwrap();
        let mut analytic = Analytic::new(&counts, &COST);
        let fine = exhaustive(&space, 1, &mut analytic).unwrap();
        let grid = space.visit(13, |_| Ok::<_, PlanError>(())).unwrap();
        let coarse = exhaustive(&space, 13, &mut analytic).unwrap();
        assert!(coarse.evaluations > grid);
        assert!(coarse.mean_latency_us <= fine.mean_latency_us * 1.001, "{coarse:?}, {fine:?}");
        assert!(coarse.evaluations * 5 < fine.evaluations, "{coarse:?}, {fine:?}");
    }

    proptest! {
        #[test]
        fn exhaustive_search_finds_what_brute_force_finds(
            counts in steps(24), h in any_hierarchy(), budget in 0.01..0.25f64,
        ) {
            let space = Space::new(&counts, &h, &COST, budget).unwrap();
            let found = exhaustive(&space, 1, &mut Analytic::new(&counts, &COST)).unwrap();
            check(&found, &space, brute_force(&counts, &space, pairs(26)));
        }

        #[test]
        fn cydonia_never_beats_exhaustive_search_nor_loses_to_the_single_tier(
            counts in steps(60), h in any_hierarchy(), budget in 0.01..0.6f64,
        ) {
            let space = Space::new(&counts, &h, &COST, budget).unwrap();
            let mut analytic = Analytic::new(&counts, &COST);
            let best = exhaustive(&space, 1, &mut analytic).unwrap();
            let found = cydonia(&counts, &space, CydoniaOptions::default(), &mut analytic).unwrap();
            prop_assert!(found.mean_latency_us >= best.mean_latency_us * (1.0 - 1e-8));
            prop_assert!(found.mean_latency_us <= found.baseline_us * (1.0 + 1e-8));
            prop_assert!(found.evaluations <= 10);
            prop_assert_eq!(found.baseline_us, best.baseline_us);
        }

        /// With one working set, one size is best and the ratio falls on both sides of it.
        #[test]
        fn cydonia_is_exact_where_there_is_one_working_set(
            h in any_hierarchy(), units in 4u64..60, reads in 100u64..1000, cold in 1u64..50,
        ) {
            let at = vec![(units * 256, reads, 0)];
            let counts = Steps { reads: reads + cold, writes: 0, at, footprint: units * 256 };
            let budget = COST.unit_usd(0, &h.tiers[0], &h.tiers[0]) * units as f64 * 0.97;
            let space = Space::new(&counts, &h, &COST, budget).unwrap();
            let mut analytic = Analytic::new(&counts, &COST);
            let best = exhaustive(&space, 1, &mut analytic).unwrap();
            let found = cydonia(&counts, &space, CydoniaOptions::default(), &mut analytic).unwrap();
            prop_assert!((found.mean_latency_us - best.mean_latency_us).abs()
                <= 1e-8 * best.mean_latency_us, "{:?} against {:?}", found, best);
        }
    }

    #[test]
    fn a_second_tier_that_never_gains_is_never_bought() {
        let h = hierarchy(["FastDRAM", "MediumSSD"], "SlowSSD", WritePolicy::WriteThrough);
        let counts = Steps {
            reads: 100,
            writes: 10,
            at: vec![(256, 10, 1), (2560, 90, 9)],
            footprint: 2560,
        };
        let space = Space::new(&counts, &h, &COST, 0.03).unwrap();
        let mut analytic = Analytic::new(&counts, &COST);
        for found in [
            exhaustive(&space, 1, &mut analytic).unwrap(),
            cydonia(&counts, &space, CydoniaOptions::default(), &mut analytic).unwrap(),
        ] {
            assert_eq!(found.sizes[1], Units(0));
        }
    }

    #[test]
    fn cydonia_turns_to_larger_first_tiers_when_the_highest_ratio_disappoints() {
        // The test records the sizes tried; in the first round the evaluator prefers the single
        // tier.
        let h = hierarchy(["FastDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteThrough);
        let at = vec![(10 * 256, 400, 0), (40 * 256, 900, 0)];
        let counts = Steps { reads: 1000, writes: 0, at, footprint: 40 * 256 };
        let space = Space::new(&counts, &h, &COST, 0.2).unwrap();
        for single_is_best in [true, false] {
            let mut tried = Vec::new();
            let mut judge = |_: &crate::Hierarchy, sizes: &[Units]| {
                tried.push(sizes[0].0);
                Ok(if (sizes[1].0 == 0) == single_is_best { 1.0 } else { 2.0 })
            };
            let found = cydonia(&counts, &space, CydoniaOptions::default(), &mut judge).unwrap();
            assert_eq!(found.sizes[1].0 == 0, single_is_best);
            let (first, rest) = (tried[1], &tried[2..]);
            assert!(rest.iter().all(|&t| if single_is_best { t > first } else { t < first }));
        }
    }

    #[test]
    fn cydonia_spreads_its_evaluations_over_all_sizes() {
        let h = hierarchy(["FastDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteThrough);
        // Every size has a higher ratio than the next smaller one; there are between nine and ten
        // times nine of them.
        let at = (1..=200).map(|units| (units * 256, units * units, 0)).collect();
        let counts = Steps { reads: 50_000, writes: 0, at, footprint: 200 * 256 };
        let budget = COST.unit_usd(0, &h.tiers[0], &h.tiers[0]) * 90.0;
        let space = Space::new(&counts, &h, &COST, budget).unwrap();
        let all = promising(&counts, &space);
        let mut tried = Vec::new();
        let mut judge = |_: &crate::Hierarchy, sizes: &[Units]| {
            tried.push(sizes[0]);
            Ok(1.0)
        };
        let found = cydonia(&counts, &space, CydoniaOptions::default(), &mut judge).unwrap();
        assert_eq!(found.evaluations, 10);
        // After the single tier and the first size, one evaluation falls into each ninth of the
        // larger sizes.
        let rest: Vec<Units> =
            all.iter().map(|size| size.tier1).filter(|&size| size > all[0].tier1).collect();
        assert!(rest.len() > 18 && rest.len() % 9 > 4, "{}", rest.len());
        for (number, size) in tried[2..].iter().enumerate() {
            assert_eq!(*size, rest[number * rest.len() / 9]);
        }
    }

    #[test]
    fn an_evaluation_that_fails_ends_the_search_and_says_where() {
        let h = hierarchy(["FastDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteThrough);
        let counts = Steps { reads: 1, writes: 0, at: vec![], footprint: 2560 };
        let space = Space::new(&counts, &h, &COST, 0.03).unwrap();
        let mut fails = |_: &crate::Hierarchy, _: &[Units]| Err("no such device".into());
        let error = exhaustive(&space, 1, &mut fails).unwrap_err().to_string();
        assert!(error.contains("3 MiB of FastDRAM") && error.contains("no such device"), "{error}");
    }
}
