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
use super::watch::{Steps, Watch};
use crate::error::PlanError;

/// Steps that [`exact`] takes at most: some ten seconds.
pub const STEPS_MAX: u64 = 1 << 33;
/// Steps that take as long as looking up what a share costs.
const LOOKUP_STEPS: u64 = 256;
/// Choices that are kept at once at most, one for each volume and budget, of four bytes each: 1 GiB.
const CHOICES_MAX: u64 = 1 << 28;
/// What a budget takes besides, while its volume is looked at, counted in choices: two costs, with how far
/// targets are missed.
const STATE_CHOICES: u64 = 8;
/// Shares that are looked up, and steps that are taken, between two looks at the [`Watch`].
const LOOKUPS_PERIOD: u64 = 1 << 14;
const STEPS_PERIOD: u64 = 1 << 22;

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
    /// Looks at every share of every volume, unless that alone, or [`DynamicProgram::run`] after it,
    /// takes more than `steps_max` steps.
    ///
    /// # Errors
    /// If there are too many steps, or too many budgets to keep; or if `watch` ends it.
    pub fn new(
        costs: &dyn Costs,
        steps_max: u64,
        watch: &mut Watch<'_>,
    ) -> Result<Self, PlanError> {
        let budget = costs.budget();
        let volumes = costs.volumes();
        // A finer share rounded up takes less than one unit more, a volume each.
        let more = |budget: u64| if budget > 0 { volumes as u64 } else { 0 };
        let slack = match costs.is_monotone() {
            true => Share { dram: more(budget.dram), flash: more(budget.flash) },
            false => Share::default(),
        };
        let mut program = Self {
            budget,
            slack,
            candidates: Vec::new(),
            has_targets: costs.has_targets(),
            evaluations: 0,
        };
        let lookups = (0..volumes).map(|volume| Range::new(costs, volume).shares());
        let lookups = lookups.fold(0, u64::saturating_add);
        let too_many = |steps| Err(PlanError::TooManySteps { steps, most: steps_max });
        // Each volume has a share to try, or there is no solution. All this is known beforehand.
        let choices = program.states().saturating_mul(volumes as u64);
        let least = lookups.saturating_mul(LOOKUP_STEPS).max(choices);
        if least > steps_max {
            return too_many(least);
        }
        let kept = choices.saturating_add(program.states().saturating_mul(STATE_CHOICES));
        if kept > CHOICES_MAX {
            return Err(PlanError::TooManyBudgets { budgets: kept, most: CHOICES_MAX });
        }
        let mut steps = Steps::new(watch, lookups, LOOKUPS_PERIOD);
        let tried_max = (steps_max / program.states()) as usize;
        let mut tried = 0;
        for volume in 0..volumes {
            let found = candidates(costs, volume, tried_max - tried, &mut steps)?;
            tried += found.len();
            if tried > tried_max {
                return too_many(tried as u64 * program.states());
            }
            program.candidates.push(found);
        }
        program.evaluations = steps.done;
        steps.finish()?;
        Ok(program)
    }

    /// The best shares; none if the floors are more than there is.
    ///
    /// # Errors
    /// If `watch` ends it.
    pub fn run(&self, watch: &mut Watch<'_>) -> Result<Option<Solution>, PlanError> {
        match self.has_targets {
            true => self.run_by::<Cost>(watch),
            false => self.run_by::<f64>(watch),
        }
    }

    fn width(&self) -> u64 {
        (self.budget.flash + self.slack.flash).saturating_add(1)
    }

    fn states(&self) -> u64 {
        (self.budget.dram + self.slack.dram).saturating_add(1).saturating_mul(self.width())
    }

    fn run_by<S: Score>(&self, watch: &mut Watch<'_>) -> Result<Option<Solution>, PlanError> {
        let tried: u64 = self.candidates.iter().map(|c| c.len() as u64).sum();
        let mut steps = Steps::new(watch, tried * self.states(), STEPS_PERIOD);
        let (width, states) = (self.width() as usize, self.states() as usize);
        let mut best = vec![S::NONE; states];
        let mut choices: Vec<Vec<u32>> = Vec::with_capacity(self.candidates.len());
        let mut before = vec![S::from_cost(Cost::default()); states];
        for candidates in &self.candidates {
            best.fill(S::WORST);
            let mut choice = vec![0u32; states];
            for (number, &(share, cost)) in candidates.iter().enumerate() {
                let (cost, flash) = (S::from_cost(cost), share.flash as usize);
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
                    steps.add(width as u64)?;
                }
            }
            choices.push(choice);
            std::mem::swap(&mut best, &mut before);
        }
        steps.finish()?;
        let mut left = self.budget;
        let at = |left: Share| left.dram as usize * width + left.flash as usize;
        let Some(cost) = before[at(left)].cost() else { return Ok(None) };
        let mut shares = vec![Share::default(); self.candidates.len()];
        for (volume, choice) in choices.iter().enumerate().rev() {
            let share = self.candidates[volume][choice[at(left)] as usize].0;
            left = Share { dram: left.dram - share.dram, flash: left.flash - share.flash };
            shares[volume] = share;
        }
        let with_slack = before[states - 1].cost();
        let bound = with_slack.filter(|_| self.slack != Share::default());
        Ok(Some(Solution { shares, cost, bound, evaluations: self.evaluations }))
    }
}

/// The best shares there are.
///
/// # Errors
/// If floors leave nothing to choose, there are more than [`STEPS_MAX`] steps to take or too many
/// budgets to keep, or `watch` ends it.
pub fn exact(costs: &dyn Costs, watch: &mut Watch<'_>) -> Result<Solution, PlanError> {
    let program = DynamicProgram::new(costs, STEPS_MAX, watch)?;
    program.run(watch)?.ok_or(PlanError::Floors)
}

/// The shares that a volume may have.
struct Range {
    least: Share,
    most: Share,
}

impl Range {
    fn new(costs: &dyn Costs, volume: usize) -> Self {
        Self { least: costs.floor(volume), most: most(costs, volume) }
    }

    /// How many there are.
    fn shares(&self) -> u64 {
        let count = |least: u64, most: u64| most.saturating_add(1).saturating_sub(least);
        let Self { least, most } = self;
        count(least.dram, most.dram).saturating_mul(count(least.flash, most.flash))
    }
}

/// The shares of a volume that are better than every other within them; one more than `found_max`
/// if there are more.
fn candidates(
    costs: &dyn Costs,
    volume: usize,
    found_max: usize,
    steps: &mut Steps<'_, '_>,
) -> Result<Vec<(Share, Cost)>, PlanError> {
    let range = Range::new(costs, volume);
    let Range { least, most } = range;
    let mut found = Vec::new();
    if range.shares() == 0 {
        return Ok(found);
    }
    // By flash: the best cost with at most that much flash and less memory.
    let mut with_less: Vec<Option<Cost>> = vec![None; (most.flash - least.flash + 1) as usize];
    for dram in least.dram..=most.dram {
        let mut in_row: Option<Cost> = None;
        for (with_less, flash) in with_less.iter_mut().zip(least.flash..) {
            let share = Share { dram, flash };
            let cost = costs.cost(volume, share);
            steps.add(1)?;
            let within = [in_row, *with_less];
            if within.iter().flatten().all(|other| cost.is_below(other)) {
                found.push((share, cost));
                if found.len() > found_max {
                    return Ok(found);
                }
                in_row = Some(cost);
            }
            let better = match (in_row, *with_less) {
                (Some(a), Some(b)) if b.is_below(&a) => Some(b),
                (a, b) => a.or(b),
            };
            *with_less = better;
        }
    }
    Ok(found)
}

/// A cost as the innermost loop compares it: one number where there are no targets.
trait Score: Copy {
    const NONE: Self;
    const WORST: Self;
    fn from_cost(cost: Cost) -> Self;
    fn plus(self, other: Self) -> Self;
    fn below(self, other: Self) -> bool;
    fn cost(self) -> Option<Cost>;
}

impl Score for f64 {
    const NONE: Self = 0.0;
    const WORST: Self = f64::INFINITY;
    fn from_cost(cost: Cost) -> Self {
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
        self.is_finite().then(|| Cost::from_value(self))
    }
}

impl Score for Cost {
    const NONE: Self = Cost { missed: 0.0, value: 0.0 };
    const WORST: Self = Cost { missed: f64::INFINITY, value: f64::INFINITY };
    fn from_cost(cost: Cost) -> Self {
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
    use crate::partition::watch::unwatched;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_division_is_better(table in tables()) {
            let found = exact(&table, &mut unwatched);
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
            if let (Ok(coarse), Ok(fine)) = (exact(&table, &mut unwatched), exact(&fine, &mut unwatched)) {
                let bound = coarse.bound.unwrap_or(coarse.cost);
                prop_assert!(!fine.cost.is_below(&bound) || (fine.cost.value - bound.value).abs() < 1e-9);
                prop_assert!(!coarse.cost.is_below(&bound));
            }
        }
    }

    /// Two volumes of which every unit of `budget` is useful, and how often one was looked up.
    struct Sloping {
        budget: Share,
        lookups: std::cell::Cell<u64>,
    }

    impl Sloping {
        fn new(dram: u64, flash: u64) -> Self {
            Self { budget: Share { dram, flash }, lookups: Default::default() }
        }
    }

    impl Costs for Sloping {
        fn volumes(&self) -> usize {
            2
        }
        fn budget(&self) -> Share {
            self.budget
        }
        fn floor(&self, _volume: usize) -> Share {
            Share::default()
        }
        fn useful(&self, _volume: usize) -> Share {
            self.budget
        }
        fn cost(&self, _volume: usize, share: Share) -> Cost {
            self.lookups.set(self.lookups.get() + 1);
            Cost::from_value(-(share.dram as f64 * 2.0 + share.flash as f64))
        }
        fn is_monotone(&self) -> bool {
            true
        }
        fn has_targets(&self) -> bool {
            false
        }
    }

    #[test]
    fn too_many_units_are_refused_before_the_work() {
        for (dram, flash) in [(1 << 18, 1 << 18), (1 << 40, 1 << 40), (u64::MAX >> 1, 0)] {
            let costs = Sloping::new(dram, flash);
            let refused = exact(&costs, &mut unwatched).unwrap_err();
            let PlanError::TooManySteps { steps, most } = refused else { panic!("{refused}") };
            assert!(steps > most && costs.lookups.get() == 0, "{refused}");
        }
        // Here looking up is no more than allowed, and trying all that is found would be.
        let costs = Sloping::new(1 << 10, 1 << 10);
        assert!(matches!(exact(&costs, &mut unwatched), Err(PlanError::TooManySteps { .. })));
        assert!(costs.lookups.get() < 1 << 14, "{}", costs.lookups.get());
    }

    #[test]
    fn an_exact_search_tells_how_far_it_is_and_can_be_ended() {
        let costs = Sloping::new(0, 1 << 12);
        let mut told = Vec::new();
        let mut watch = |done, total| {
            told.push((done, total));
            Ok(())
        };
        exact(&costs, &mut watch).unwrap();
        let lookups = 2 * ((1 << 12) + 1);
        assert_eq!(costs.lookups.get(), lookups);
        assert!(told.iter().all(|(done, total)| done <= total), "{told:?}");
        assert!(told.contains(&(lookups, lookups)), "{told:?}");
        let (done, total) = told[told.len() - 1];
        assert!(done == total && total > lookups && told.len() > 5, "{told:?}");
        for last in [1, told.len() / 2] {
            let mut calls = 0;
            let mut watch = |_, _| {
                calls += 1;
                if calls < last { Ok(()) } else { Err("enough".into()) }
            };
            let ended = exact(&costs, &mut watch);
            assert!(matches!(ended, Err(PlanError::Stopped(_))), "{ended:?}");
            assert_eq!(calls, last);
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
        let found = exact(&table, &mut unwatched).unwrap();
        assert_eq!(found.cost, Cost::from_value(5.0));
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
        let found = exact(&table, &mut unwatched).unwrap();
        assert_eq!(found.cost, Cost::from_value(0.5));
        assert_eq!(found.shares, [Share { dram: 0, flash: 1 }; 2]);
    }
}
