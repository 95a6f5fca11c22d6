//! Goal: no simple choice of shares beats the shares found. Method: equal shares for random
//! workloads under every write policy, and problems whose best shares are known.

use forebay_block::{Op, Request};
use forebay_plan::partition::{
    AnnealOptions, ByPlace, Cost, Costs, Goal, IopsGoal, Problem, Search, Share, VolumeModel,
    exact, solve, unwatched,
};
use proptest::prelude::*;

use crate::partition::{BLOCK, Random, measure, model, options, problem, random_reader, read};

/// The cost of equal shares of whole units.
fn equal_shares(problem: &Problem<'_>) -> Cost {
    let (volumes, budget) = (problem.volumes() as u64, problem.budget());
    let each = Share::new(budget.dram / volumes, budget.flash / volumes);
    (0..problem.volumes()).map(|volume| problem.cost(volume, each)).sum()
}

/// How writes are served: in memory, on flash and on a miss.
fn write_model(policy: usize) -> VolumeModel {
    let read = ByPlace { dram: 1.0, flash: 100.0, miss: 5_000.0 };
    let write = match policy {
        // Written back from memory, or from flash.
        0 => ByPlace::all(1.0),
        1 => ByPlace::all(100.0),
        // Writes bypass the cache unless the block is in it.
        2 => ByPlace { dram: 1.0, flash: 100.0, miss: 5_000.0 },
        _ => ByPlace::all(5_000.0),
    };
    VolumeModel { read, write, writes_through: policy == 3, ..model(100.0, 5_000.0) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn equal_shares_beat_neither_the_shares_found_nor_the_bound(
        seed in any::<u64>(), goal in 0..4usize, policy in 0..4usize, anneals in any::<bool>(),
        target in any::<bool>(), dram in 0..20u64, flash in 0..60u64, unit in 1..4u64,
    ) {
        let mut random = Random(seed);
        let mut requests = Vec::new();
        for volume in 0..1 + random.below(4) as u32 {
            // Every other volume never accesses a block again.
            let file = 1 + random.below(20);
            for n in 0..40 {
                let block = if volume % 2 == 0 { n } else { random.below(file) };
                let op = if random.below(2) == 0 { Op::Write } else { Op::Read };
                requests.push(Request { op, ..read(volume, block, 1) });
            }
        }
        let profile = measure(requests);
        let goals = [Goal::Latency, Goal::Hits, Goal::Iops(IopsGoal::Sum), Goal::Iops(IopsGoal::Inverse)];
        let mut options = options(goals[goal], flash * unit, unit);
        options.sizes.dram_bytes = dram * unit * BLOCK;
        options.units.dram_bytes = unit * BLOCK;
        let models = vec![write_model(policy); profile.volumes.len()];
        let mut problem = problem(&profile, options, models);
        if target {
            problem.set_target(0, 500.0);
        }
        let search = match anneals {
            true => Search::Anneal(AnnealOptions { steps: 20_000, ..AnnealOptions::default() }),
            false => Search::Exact,
        };
        let found = solve(&problem, search, &mut unwatched).unwrap();
        let equal = equal_shares(&problem);
        let above = |a: Cost, b: Cost| a.missed > b.missed
            || a.missed == b.missed && a.value > b.value + 1e-9 * b.value.abs();
        if !anneals {
            prop_assert!(!above(found.cost, equal), "{:?} {equal:?}", found.cost);
        }
        for cost in [found.cost, equal] {
            prop_assert!(found.bound.is_none_or(|bound| !above(bound, cost)), "{found:?} {cost:?}");
        }
    }
}

#[test]
fn writes_to_blocks_that_are_never_used_again_are_worth_one_block() {
    let writes = (0..100).map(|block| Request { op: Op::Write, ..read(0, block, 1) });
    let profile = measure(writes.chain(random_reader(1, 64, 1, 1, 1_000)));
    let problem = problem(&profile, options(Goal::Latency, 200, 1), vec![write_model(1); 2]);
    let found = exact(&problem, &mut unwatched).unwrap();
    assert_eq!(found.shares[0].flash, 1);
    let written = problem.predict(0, problem.sizes(0, found.shares[0]));
    assert_eq!(written.latency_us, 100.0);
}

#[test]
fn a_latency_that_rounding_puts_above_its_target_misses_nothing() {
    let profile = measure(random_reader(0, 64, 1, 1, 1_000));
    let mut problem = problem(&profile, options(Goal::Latency, 64, 1), vec![model(100.0, 5_000.0)]);
    problem.set_target(0, 0.3);
    assert_eq!(problem.missed(0, 0.1 + 0.2), 0.0);
    let missed: Vec<f64> = [0.31, 0.4, 0.7].map(|us| problem.missed(0, us)).into();
    let [there, back] = [missed.iter().sum::<f64>(), missed.iter().rev().sum()];
    assert_eq!(there, back);
    assert!((there - 0.51 / 0.3).abs() < 1e-8, "{there}");
}

#[test]
fn memory_is_not_left_idle_where_everything_fits() {
    let profile = measure([0, 1].into_iter().flat_map(|v| random_reader(v, 64, 1, 1, 2_000)));
    let useful: u64 = profile.volumes.values().map(|c| c.useful_blocks()).sum();
    let read = ByPlace { dram: 1.0, flash: 100.0, miss: 5_000.0 };
    for (goal, dram) in [(Goal::Ppc, 200), (Goal::Hits, 200), (Goal::Hits, 50)] {
        for anneals in [false, true] {
            let mut options = options(goal, 200, 1);
            options.sizes.dram_bytes = dram * BLOCK;
            let models = vec![VolumeModel { read, ..model(100.0, 5_000.0) }; 2];
            let problem = problem(&profile, options, models);
            let search = match anneals {
                true => Search::Anneal(AnnealOptions::default()),
                false => Search::Exact,
            };
            let found = solve(&problem, search, &mut unwatched).unwrap();
            let memory: u64 = found.shares.iter().map(|share| share.dram).sum();
            assert_eq!(memory, dram.min(useful), "{goal:?} {search:?}: {found:?}");
        }
    }
}
