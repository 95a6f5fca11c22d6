//! The best possible division, by dynamic programming over units of allocation.
//!
//! The lowest cost of the first `k` volumes with a budget `b` is the minimum, over the shares `s`
//! of volume `k`, of its cost with `s` plus the lowest cost of the first `k - 1` volumes with `b -
//! s`. This is exact for every goal that is a sum over volumes, whatever the shape of the curves,
//! and takes volumes x budgets x shares steps. With two resources, budgets and shares are pairs.
//!
//! Only shares that are better than every smaller share are tried. There are none where a curve is
//! flat, so most real volumes have few.
//!
//! If the units of a tier leave a rest, every budget occurs twice, in two *layers*: without the
//! rest and with it. A share that has the rest leads from the layer without it to the layer with
//! it.

use super::cost::{Cost, Costs, Rests, Share, most};
use super::solution::Solution;
use super::watch::{Steps, Watch};
use crate::error::PlanError;

/// The most steps that [`exact`] takes: about ten seconds.
pub const STEPS_MAX: u64 = 1 << 33;
/// Cost of looking up what a share costs, in steps.
const LOOKUP_STEPS: u64 = 256;
/// The most choices kept at once: one for each volume and budget, 4 bytes each, 1 GiB in total.
const CHOICES_MAX: u64 = 1 << 28;
/// Memory that a budget needs in addition while its volume is processed, in choices: two costs,
/// each with the amount by which targets are missed.
const STATE_CHOICES: u64 = 8;
/// Shares looked up, and steps taken, between two calls of the [`Watch`].
const LOOKUPS_PERIOD: u64 = 1 << 14;
const STEPS_PERIOD: u64 = 1 << 22;

/// A prepared problem: the shares worth trying.
pub struct DynamicProgram {
    budget: Share,
    /// Additional budget for computing the bound.
    slack: Share,
    /// The rests that are available in each layer; the last layer has all of them.
    layers: Vec<Rests>,
    candidates: Vec<Vec<(Share, Cost)>>,
    has_targets: bool,
    is_monotone: bool,
    evaluations: u64,
}

impl DynamicProgram {
    /// Looks up every share of every volume, unless that alone, or [`DynamicProgram::run`] after
    /// it, would take more than `steps_max` steps.
    ///
    /// # Errors
    /// If there are too many steps, or too many budgets to keep, or if `watch` stops the search.
    /// If there are too many steps, or too many budgets to keep; or if `watch` ends it.
    pub fn new(
        costs: &dyn Costs,
        steps_max: u64,
        watch: &mut Watch<'_>,
    ) -> Result<Self, PlanError> {
        let budget = costs.budget();
        let volumes = costs.volumes();
        // Rounding up a finer share adds less than one unit per volume. The whole units of the
        // result then also hold what the rest held.
        let more = |units: u64, rest: bool| if units > 0 || rest { volumes as u64 } else { 0 };
        let slack = match costs.is_monotone() {
            true => Share::new(
                more(budget.dram, budget.rests.dram),
                more(budget.flash, budget.rests.flash),
            ),
            false => Share::default(),
        };
        let mut program = Self {
            budget,
            slack,
            layers: Rests::ALL.into_iter().filter(|r| r.is_within(budget.rests)).collect(),
            candidates: Vec::new(),
            has_targets: costs.has_targets(),
            is_monotone: costs.is_monotone(),
            evaluations: 0,
        };
        let lookups = (0..volumes).map(|volume| Range::new(costs, volume).shares());
        let lookups = lookups.fold(0, u64::saturating_add);
        let lookups = lookups.saturating_mul(program.layers.len() as u64);
        let too_many = |steps| Err(PlanError::TooManySteps { steps, most: steps_max });
        // Each volume has at least one share to try, or there is no solution. So these lower bounds
        // are known beforehand.
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
        let tried_max = steps_max / program.layer_states();
        let mut tried = 0;
        for volume in 0..volumes {
            let found = program.candidates_of(costs, volume, tried_max - tried, &mut steps)?;
            tried += program.tries(&found);
            if tried > tried_max {
                return too_many(tried * program.layer_states());
            }
            program.candidates.push(found);
        }
        program.evaluations = steps.done;
        steps.finish()?;
        Ok(program)
    }

    /// The shares of a volume that are better than every smaller share. If trying them takes more
    /// than `tries_max` tries, the list ends at the share that exceeds the limit.
    fn candidates_of(
        &self,
        costs: &dyn Costs,
        volume: usize,
        tries_max: u64,
        steps: &mut Steps<'_, '_>,
    ) -> Result<Vec<(Share, Cost)>, PlanError> {
        let range = Range::new(costs, volume);
        let Range { least, most } = range;
        let (mut found, mut tries) = (Vec::new(), 0);
        if range.shares() == 0 {
            return Ok(found);
        }
        // Indexed by flash and layer: the lowest cost of a share with at most these rests, at most
        // this much flash and less memory.
        let none = [None::<Cost>; Rests::ALL.len()];
        let mut with_less = vec![none; (most.flash - least.flash + 1) as usize];
        for dram in least.dram..=most.dram {
            // The same for shares with this much memory and less flash.
            let mut in_row = none;
            for (with_less, flash) in with_less.iter_mut().zip(least.flash..) {
                let mut here = none;
                for (at, &rests) in self.layers.iter().enumerate() {
                    let share = Share { dram, flash, rests };
                    let cost = costs.cost(volume, share);
                    steps.add(1)?;
                    let fewer_rests = self.layers[..at].iter().zip(&here);
                    let fewer_rests = fewer_rests.filter(|(of, _)| of.is_within(rests));
                    let within = fewer_rests.map(|(_, cost)| *cost);
                    let within = within.chain([in_row[at], with_less[at]]).flatten();
                    let within = within.min_by(Cost::compare);
                    here[at] = within;
                    if within.is_none_or(|other| cost.is_below(&other)) {
                        here[at] = Some(cost);
                        found.push((share, cost));
                        tries += self.steps(rests).count() as u64;
                        if tries > tries_max {
                            return Ok(found);
                        }
                    }
                }
                (in_row, *with_less) = (here, here);
            }
        }
        Ok(found)
    }

    /// Returns the best shares; `None` if the floors exceed the budget.
    ///
    /// # Errors
    /// If `watch` stops the search.
    pub fn run(&self, watch: &mut Watch<'_>) -> Result<Option<Solution>, PlanError> {
        match self.has_targets {
            true => self.run_by::<Cost>(watch),
            false => self.run_by::<f64>(watch),
        }
    }

    fn width(&self) -> u64 {
        (self.budget.flash + self.slack.flash).saturating_add(1)
    }

    /// Number of budgets in one layer.
    fn layer_states(&self) -> u64 {
        (self.budget.dram + self.slack.dram).saturating_add(1).saturating_mul(self.width())
    }

    fn states(&self) -> u64 {
        self.layer_states().saturating_mul(self.layers.len() as u64)
    }

    /// How many times shares are tried: each once per layer that has the share's rests.
    fn tries(&self, candidates: &[(Share, Cost)]) -> u64 {
        let layers = |&(share, _): &(Share, Cost)| self.steps(share.rests).count() as u64;
        candidates.iter().map(layers).sum()
    }

    /// The layers from which and to which a share with these rests leads.
    fn steps(&self, rests: Rests) -> impl Iterator<Item = (usize, usize)> {
        let to = self.layers.iter().enumerate().filter(move |(_, of)| rests.is_within(**of));
        to.map(move |(to, of)| (self.layer(of.without(rests)), to))
    }

    fn layer(&self, rests: Rests) -> usize {
        self.layers.iter().position(|of| *of == rests).expect("each choice of rests is a layer")
    }

    fn run_by<S: Score>(&self, watch: &mut Watch<'_>) -> Result<Option<Solution>, PlanError> {
        let tried: u64 = self.candidates.iter().map(|c| self.tries(c)).sum();
        let mut steps = Steps::new(watch, tried * self.layer_states(), STEPS_PERIOD);
        let (width, states) = (self.width() as usize, self.states() as usize);
        let layer_states = self.layer_states() as usize;
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
                for (from_layer, to_layer) in self.steps(share.rests) {
                    let (from_layer, to_layer) =
                        (from_layer * layer_states, to_layer * layer_states);
                    for dram in share.dram as usize..layer_states / width {
                        let from = from_layer + (dram - share.dram as usize) * width;
                        let old = &before[from..from + width - flash];
                        let to = to_layer + dram * width;
                        let to = to + flash..to + width;
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
            }
            choices.push(choice);
            std::mem::swap(&mut best, &mut before);
        }
        steps.finish()?;
        let mut left = self.budget;
        let at = |left: Share| {
            self.layer(left.rests) * layer_states + left.dram as usize * width + left.flash as usize
        };
        let Some(cost) = before[at(left)].cost() else { return Ok(None) };
        let mut shares = vec![Share::default(); self.candidates.len()];
        for (volume, choice) in choices.iter().enumerate().rev() {
            let share = self.candidates[volume][choice[at(left)] as usize].0;
            left = left.without(share);
            shares[volume] = share;
        }
        let with_slack = before[layer_states - 1].cost();
        let bound = with_slack.filter(|_| self.is_monotone);
        Ok(Some(Solution { shares, cost, bound, evaluations: self.evaluations }))
    }
}

/// The best possible shares in whole units, where at most one volume also has the rest of a tier.
///
/// # Errors
/// If the floors exceed the budget, the search needs more than [`STEPS_MAX`] steps or keeps too
/// many budgets, or `watch` stops it.
pub fn exact(costs: &dyn Costs, watch: &mut Watch<'_>) -> Result<Solution, PlanError> {
    let program = DynamicProgram::new(costs, STEPS_MAX, watch)?;
    program.run(watch)?.ok_or(PlanError::Floors)
}

/// The shares that a volume can have.
struct Range {
    least: Share,
    most: Share,
}

impl Range {
    fn new(costs: &dyn Costs, volume: usize) -> Self {
        let mut budget = costs.budget();
        if costs.is_monotone() {
            // For the bound: one more unit, which can hold the rest.
            budget.dram = budget.dram.saturating_add(budget.rests.dram.into());
            budget.flash = budget.flash.saturating_add(budget.rests.flash.into());
        }
        Self { least: costs.floor(volume), most: most(costs, volume, budget) }
    }

    /// Number of shares.
    fn shares(&self) -> u64 {
        let count = |least: u64, most: u64| most.saturating_add(1).saturating_sub(least);
        let Self { least, most } = self;
        count(least.dram, most.dram).saturating_mul(count(least.flash, most.flash))
    }
}

/// A cost as the innermost loop compares it: a single number if there are no targets.
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
                    let sum = found.shares.iter().fold(Share::default(), |a, b| Share::new(a.dram + b.dram, a.flash + b.flash));
                    prop_assert!(sum.dram <= table.budget.dram && sum.flash <= table.budget.flash);
                }
            }
        }

        #[test]
        fn the_bound_holds_for_units_a_half_and_a_third_as_large(
            table in tables().prop_filter("monotone", |t| t.monotone), parts in 2..4u64,
        ) {
            // The cost between two whole units is that of the lower one.
            let fine = table.divided(parts);
            if let (Ok(coarse), Ok(fine)) = (exact(&table, &mut unwatched), exact(&fine, &mut unwatched)) {
                let bound = coarse.bound.unwrap_or(coarse.cost);
                prop_assert!(!fine.cost.is_below(&bound) || (fine.cost.value - bound.value).abs() < 1e-9);
                prop_assert!(!coarse.cost.is_below(&bound));
            }
        }
    }

    /// Two volumes to which every unit of `budget` is useful, and the number of lookups.
    struct Sloping {
        budget: Share,
        lookups: std::cell::Cell<u64>,
    }

    impl Sloping {
        fn new(dram: u64, flash: u64) -> Self {
            Self { budget: Share::new(dram, flash), lookups: Default::default() }
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
        // Here the lookups are within the limit, but trying all that they find is not.
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
            budget: Share::new(0, 10),
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
        // Koller (2012), figure 5.1: files of 2 GB and 1 GB, read at random, and a cache of 2 GB.
        let line = |gb: f64| vec![(0..=2).map(|c| 1.0 - (f64::from(c) / gb).min(1.0)).collect()];
        let table = Table {
            budget: Share::new(0, 2),
            floors: vec![Share::default(); 2],
            costs: vec![line(2.0), line(1.0)],
            targets: vec![None; 2],
            monotone: true,
        };
        let found = exact(&table, &mut unwatched).unwrap();
        assert_eq!(found.cost, Cost::from_value(0.5));
        assert_eq!(found.shares, [Share::new(0, 1); 2]);
    }
}
