//! The best division there is, by dynamic programming over units of allocation.
//!
//! What the first `k` volumes cost at best with a budget `b` is the least, over the shares `s` of
//! volume `k`, of its cost with `s` and what the first `k - 1` cost at best with `b - s`. That is
//! exact for every goal that is a sum over volumes, whatever the shape of the curves, at volumes
//! x budgets x shares steps. Two resources make both budgets and shares pairs.
//!
//! Only shares that are better than every share within them are tried: where a curve is flat
//! there are none, so most real volumes have few.

use super::cost::{Cost, Costs, Share, most};
use super::solution::Solution;
use crate::error::PlanError;

/// Steps that [`exact`] takes at most: some ten seconds.
pub const STEPS_MAX: u64 = 1 << 33;

/// A problem made ready: shares that are worth trying, and how long trying them takes.
pub struct DynamicProgram {
    budget: Share,
    /// More budget than there is, for the bound.
    slack: Share,
    candidates: Vec<Vec<(Share, Cost)>>,
    has_targets: bool,
    evaluations: u64,
}

impl DynamicProgram {
    /// Looks at every share of every volume.
    pub fn new(costs: &dyn Costs) -> Self {
        let budget = costs.budget();
        let volumes = costs.volumes();
        // A finer share rounded up takes less than one unit more, a volume each.
        let more = |budget: u64| if budget > 0 { volumes as u64 } else { 0 };
        let slack = match costs.is_monotone() {
            true => Share { dram: more(budget.dram), flash: more(budget.flash) },
            false => Share::default(),
        };
        let mut evaluations = 0;
        let candidates =
            (0..volumes).map(|volume| candidates(costs, volume, &mut evaluations)).collect();
        Self { budget, slack, candidates, has_targets: costs.has_targets(), evaluations }
    }

    /// About how many steps [`DynamicProgram::run`] takes.
    pub fn steps(&self) -> u64 {
        let tried: u64 = self.candidates.iter().map(|c| c.len() as u64).sum();
        tried.saturating_mul(self.states() as u64)
    }

    /// The best shares; none if the floors are more than there is.
    pub fn run(&self) -> Option<Solution> {
        match self.has_targets {
            true => self.run_by::<Cost>(),
            false => self.run_by::<f64>(),
        }
    }

    fn width(&self) -> usize {
        (self.budget.flash + self.slack.flash + 1) as usize
    }

    fn states(&self) -> usize {
        (self.budget.dram + self.slack.dram + 1) as usize * self.width()
    }

    fn run_by<S: Score>(&self) -> Option<Solution> {
        let (width, states) = (self.width(), self.states());
        let mut best = vec![S::NONE; states];
        let mut choices: Vec<Vec<u32>> = Vec::with_capacity(self.candidates.len());
        let mut before = vec![S::of(Cost::default()); states];
        for candidates in &self.candidates {
            best.fill(S::WORST);
            let mut choice = vec![0u32; states];
            for (number, &(share, cost)) in candidates.iter().enumerate() {
                let (cost, flash) = (S::of(cost), share.flash as usize);
                if flash >= width {
                    continue;
                }
                for dram in share.dram as usize..states / width {
                    let from = (dram - share.dram as usize) * width;
                    let old = &before[from..from + width - flash];
                    let to = dram * width + flash..(dram + 1) * width;
                    let new = best[to.clone()].iter_mut().zip(&mut choice[to]);
                    for ((best, choice), &old) in new.zip(old) {
                        let cost = old.plus(cost);
                        let better = cost.below(*best);
                        *choice = if better { number as u32 } else { *choice };
                        *best = if better { cost } else { *best };
                    }
                }
            }
            choices.push(choice);
            std::mem::swap(&mut best, &mut before);
        }
        let mut left = self.budget;
        let at = |left: Share| left.dram as usize * width + left.flash as usize;
        let cost = before[at(left)].cost()?;
        let mut shares = vec![Share::default(); self.candidates.len()];
        for (volume, choice) in choices.iter().enumerate().rev() {
            let share = self.candidates[volume][choice[at(left)] as usize].0;
            left = Share { dram: left.dram - share.dram, flash: left.flash - share.flash };
            shares[volume] = share;
        }
        let with_slack = before[states - 1].cost();
        let bound = with_slack.filter(|_| self.slack != Share::default());
        Some(Solution { shares, cost, bound, evaluations: self.evaluations })
    }
}

/// The best shares there are.
///
/// # Errors
/// If floors leave nothing to choose, or there are more than [`STEPS_MAX`] steps to take.
pub fn exact(costs: &dyn Costs) -> Result<Solution, PlanError> {
    let program = DynamicProgram::new(costs);
    if program.steps() > STEPS_MAX {
        return Err(PlanError::TooManySteps { steps: program.steps(), most: STEPS_MAX });
    }
    program.run().ok_or(PlanError::Floors)
}

/// The shares of a volume that are better than every other within them.
fn candidates(costs: &dyn Costs, volume: usize, evaluations: &mut u64) -> Vec<(Share, Cost)> {
    let (least, most) = (costs.floor(volume), most(costs, volume));
    let mut found = Vec::new();
    if least.dram > most.dram || least.flash > most.flash {
        return found;
    }
    // By flash: the best cost with at most that much flash and less memory.
    let mut with_less: Vec<Option<Cost>> = vec![None; (most.flash - least.flash + 1) as usize];
    for dram in least.dram..=most.dram {
        let mut in_row: Option<Cost> = None;
        for (with_less, flash) in with_less.iter_mut().zip(least.flash..) {
            let share = Share { dram, flash };
            let cost = costs.cost(volume, share);
            *evaluations += 1;
            let within = [in_row, *with_less];
            if within.iter().flatten().all(|other| cost.is_below(other)) {
                found.push((share, cost));
                in_row = Some(cost);
            }
            let better = match (in_row, *with_less) {
                (Some(a), Some(b)) if b.is_below(&a) => Some(b),
                (a, b) => a.or(b),
            };
            *with_less = better;
        }
    }
    found
}

/// A cost as the innermost loop compares it: one number where there are no targets.
trait Score: Copy {
    const NONE: Self;
    const WORST: Self;
    fn of(cost: Cost) -> Self;
    fn plus(self, other: Self) -> Self;
    fn below(self, other: Self) -> bool;
    fn cost(self) -> Option<Cost>;
}

impl Score for f64 {
    const NONE: Self = 0.0;
    const WORST: Self = f64::INFINITY;
    fn of(cost: Cost) -> Self {
        cost.value
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn below(self, other: Self) -> bool {
        self < other
    }
    fn cost(self) -> Option<Cost> {
        self.is_finite().then(|| Cost::of(self))
    }
}

impl Score for Cost {
    const NONE: Self = Cost { missed: 0.0, value: 0.0 };
    const WORST: Self = Cost { missed: f64::INFINITY, value: f64::INFINITY };
    fn of(cost: Cost) -> Self {
        cost
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn below(self, other: Self) -> bool {
        self.missed < other.missed || (self.missed == other.missed && self.value < other.value)
    }
    fn cost(self) -> Option<Cost> {
        self.missed.is_finite().then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::cost::total;
    use crate::partition::testing::{Table, brute_force, tables};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_division_is_better(table in tables()) {
            let found = exact(&table);
            match brute_force(&table) {
                None => prop_assert!(matches!(found, Err(PlanError::Floors))),
                Some(best) => {
                    let found = found.unwrap();
                    prop_assert!((found.cost.missed - best.missed).abs() < 1e-9);
                    prop_assert!((found.cost.value - best.value).abs() < 1e-9);
                    prop_assert_eq!(total(&table, &found.shares), found.cost);
                    let sum = found.shares.iter().fold(Share::default(), |a, b| Share {
                        dram: a.dram + b.dram,
                        flash: a.flash + b.flash,
                    });
                    prop_assert!(sum.dram <= table.budget.dram && sum.flash <= table.budget.flash);
                }
            }
        }

        #[test]
        fn the_bound_holds_for_units_a_half_and_a_third_as_large(
            table in tables().prop_filter("monotone", |t| t.monotone), parts in 2..4u64,
        ) {
            // What costs these are between whole units is what they are at the unit below.
            let fine = table.divided(parts);
            if let (Ok(coarse), Ok(fine)) = (exact(&table), exact(&fine)) {
                let bound = coarse.bound.unwrap_or(coarse.cost);
                prop_assert!(!fine.cost.is_below(&bound) || (fine.cost.value - bound.value).abs() < 1e-9);
                prop_assert!(!coarse.cost.is_below(&bound));
            }
        }
    }

    #[test]
    fn what_is_of_no_use_is_not_given() {
        let table = Table {
            budget: Share { dram: 0, flash: 10 },
            floors: vec![Share::default(); 2],
            costs: vec![vec![vec![9.0, 4.0, 4.0, 4.0]], vec![vec![5.0, 5.0, 1.0, 1.0]]],
            targets: vec![None; 2],
            monotone: true,
        };
        let found = exact(&table).unwrap();
        assert_eq!(found.cost, Cost::of(5.0));
        let flash: Vec<u64> = found.shares.iter().map(|s| s.flash).collect();
        assert_eq!(flash, [1, 2]);
    }

    #[test]
    fn the_papers_first_example_gives_each_volume_half() {
        // Koller (2012), figure 5.1: files of 2 and of 1 GB, read at random, and a cache of 2 GB.
        let line = |gb: f64| vec![(0..=2).map(|c| 1.0 - (f64::from(c) / gb).min(1.0)).collect()];
        let table = Table {
            budget: Share { dram: 0, flash: 2 },
            floors: vec![Share::default(); 2],
            costs: vec![line(2.0), line(1.0)],
            targets: vec![None; 2],
            monotone: true,
        };
        let found = exact(&table).unwrap();
        assert_eq!(found.cost, Cost::of(0.5));
        assert_eq!(found.shares, [Share { dram: 0, flash: 1 }; 2]);
    }
}
