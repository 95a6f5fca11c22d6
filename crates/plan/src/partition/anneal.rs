//! Simulated annealing over divisions (Koller 2012, section 5.3.1).
//!
//! A step moves some units of one tier between two volumes, or between a volume and the unassigned
//! units; or it swaps the entire shares of two volumes; or it hands on a rest. A step that makes
//! the result worse is accepted with a probability that falls with the loss and with time. Small
//! units cost no extra time, so annealing suits two tiers whose pairs of sizes are too many for
//! dynamic programming. It does badly where a curve is one large step (a scan), because moves
//! smaller than the step have no effect; moves therefore come in all magnitudes.
//!
//! The seed determines all random choices.

use super::cost::{Cost, Costs, Rests, Share, most, total};
use super::solution::Solution;
use super::watch::{Steps, Watch};
use crate::error::PlanError;

/// How long to anneal, and with which seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnnealOptions {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of moves tried, over all runs.
    pub steps: u64,
    /// Number of independent annealing runs, of which the best counts.
    pub starts: u32,
}

impl Default for AnnealOptions {
    fn default() -> Self {
        Self { seed: 1, steps: 400_000, starts: 4 }
    }
}

/// Moves tried to find the initial temperature.
const PROBES: u32 = 200;
/// Final temperature, as a fraction of the initial one.
const COOLING: f64 = 1e-5;
/// Moves between two calls of the [`Watch`].
const STEPS_PERIOD: u64 = 1 << 12;
/// One in this many moves exchanges the shares of two volumes.
const SWAPS: u64 = 8;
/// One in this many moves hands on a rest, if there is one.
const RESTS: u64 = 8;
/// Penalty for missing a target by 100 %, as a multiple of the initial cost.
const PENALTY: f64 = 100.0;

/// Searches for shares.
///
/// # Errors
/// If the floors exceed the budget, or `watch` stops the search.
pub fn anneal(
    costs: &dyn Costs,
    options: AnnealOptions,
    watch: &mut Watch<'_>,
) -> Result<Solution, PlanError> {
    let volumes = costs.volumes();
    let budget = costs.budget();
    let floors: Vec<Share> = (0..volumes).map(|v| costs.floor(v)).collect();
    let taken = |of: fn(&Share) -> u64| floors.iter().map(of).sum::<u64>();
    let (dram, flash) = (taken(|s| s.dram), taken(|s| s.flash));
    if dram > budget.dram || flash > budget.flash {
        return Err(PlanError::Floors);
    }
    let mut walk = Walk {
        costs,
        most: (0..volumes).map(|v| most(costs, v, budget)).collect(),
        floors,
        random: Random(options.seed),
        evaluations: 0,
    };
    let mut best: Option<(Vec<Share>, Cost)> = None;
    let starts = options.starts.max(1);
    let each = options.steps / u64::from(starts);
    let mut steps = Steps::new(watch, each * u64::from(starts), STEPS_PERIOD);
    for start in 0..starts {
        let (shares, cost) = walk.run(start, each, &mut steps)?;
        if best.as_ref().is_none_or(|(_, best)| cost.is_below(best)) {
            best = Some((shares, cost));
        }
    }
    steps.finish()?;
    let (shares, cost) = best.unwrap_or_default();
    Ok(Solution { shares, cost, bound: None, evaluations: walk.evaluations })
}

struct Walk<'a> {
    costs: &'a dyn Costs,
    floors: Vec<Share>,
    most: Vec<Share>,
    random: Random,
    evaluations: u64,
}

/// A tier whose units a move changes.
#[derive(Clone, Copy)]
enum Tier {
    Dram,
    Flash,
}

impl Tier {
    fn units_mut(self, share: &mut Share) -> &mut u64 {
        match self {
            Tier::Dram => &mut share.dram,
            Tier::Flash => &mut share.flash,
        }
    }

    fn at(self, mut share: Share) -> u64 {
        *self.units_mut(&mut share)
    }
}

impl Walk<'_> {
    /// Does one annealing run. Returns the best shares seen, without units that gain nothing.
    fn run(
        &mut self,
        start: u32,
        steps: u64,
        taken: &mut Steps<'_, '_>,
    ) -> Result<(Vec<Share>, Cost), PlanError> {
        let mut shares = self.beginning(start);
        let mut idle = self.idle(&shares);
        let mut each: Vec<Cost> =
            shares.iter().enumerate().map(|(v, &s)| self.cost(v, s)).collect();
        let sum: Cost = each.iter().copied().sum();
        let penalty = PENALTY * (sum.value.abs() + 1.0);
        let (mut now, mut best) = (sum, (shares.clone(), sum));
        let warm = self.temperature(&shares, idle, &each, penalty);
        for step in 0..steps {
            taken.add(1)?;
            let temperature = warm * COOLING.powf(step as f64 / steps as f64);
            let Some(change) = self.propose(&shares, idle) else { continue };
            let changed = || change.shares.into_iter().flatten();
            let was: Cost = changed().map(|(v, _)| each[v]).sum();
            let new = change.shares.map(|of| of.map(|(v, share)| self.cost(v, share)));
            let is: Cost = new.into_iter().flatten().sum();
            let worse = (is.value - was.value) + penalty * (is.missed - was.missed);
            if worse > 0.0 && self.random.unit() >= (-worse / temperature).exp() {
                continue;
            }
            for ((v, share), cost) in changed().zip(new.into_iter().flatten()) {
                (shares[v], each[v]) = (share, cost);
            }
            idle = change.idle;
            now = Cost {
                missed: now.missed + is.missed - was.missed,
                value: now.value + is.value - was.value,
            };
            if now.is_below(&best.1) {
                best = (shares.clone(), now);
            }
        }
        let mut shares = best.0;
        (0..shares.len()).for_each(|v| shares[v] = self.trimmed(v, shares[v]));
        self.fill(&mut shares);
        // Sum up again, because the running sum has rounding errors.
        let cost = total(self.costs, &shares);
        Ok((shares, cost))
    }

    /// The initial shares of a run: equal in the first run, random in the others.
    fn beginning(&mut self, start: u32) -> Vec<Share> {
        let mut shares = self.floors.clone();
        let volumes = shares.len() as u64;
        for tier in [Tier::Dram, Tier::Flash] {
            let mut left = tier.at(self.idle(&shares));
            for (share, most) in shares.iter_mut().zip(&self.most) {
                let equal = tier.at(self.costs.budget()) / volumes.max(1);
                let aim = match start {
                    0 => equal,
                    _ => self.random.below(2 * equal + 1),
                };
                let has = tier.at(*share);
                let more = aim.min(tier.at(*most)).saturating_sub(has).min(left);
                *tier.units_mut(share) += more;
                left -= more;
            }
        }
        shares
    }

    fn idle(&self, shares: &[Share]) -> Share {
        shares.iter().fold(self.costs.budget(), |left, share| left.without(*share))
    }

    /// The temperature at which a move of mean loss is accepted four times in five.
    fn temperature(&mut self, shares: &[Share], idle: Share, each: &[Cost], penalty: f64) -> f64 {
        let (mut losses, mut count) = (0.0, 0u32);
        for _ in 0..PROBES {
            let Some(change) = self.propose(shares, idle) else { continue };
            let mut worse = 0.0;
            for (v, share) in change.shares.into_iter().flatten() {
                let cost = self.cost(v, share);
                worse += cost.value - each[v].value + penalty * (cost.missed - each[v].missed);
            }
            if worse > 0.0 {
                (losses, count) = (losses + worse, count + 1);
            }
        }
        let mean = losses / f64::from(count.max(1));
        if mean > 0.0 { mean / -(0.8f64.ln()) } else { f64::MIN_POSITIVE }
    }

    /// Proposes a random move within the floors, the budget and what is useful; `None` if the move
    /// drawn is not.
    fn propose(&mut self, shares: &[Share], idle: Share) -> Option<Change> {
        let volumes = shares.len() as u64;
        let mut pick = || {
            let number = self.random.below(volumes + 1);
            (number < volumes).then_some(number as usize)
        };
        let (gainer, loser) = (pick(), pick());
        if gainer == loser {
            return None;
        }
        if let (Some(a), Some(b)) = (gainer, loser)
            && self.random.below(SWAPS) == 0
        {
            return self.swap(shares, idle, a, b);
        }
        let budget = self.costs.budget();
        if budget.rests != Rests::default() && self.random.below(RESTS) == 0 {
            let tier = match budget.rests {
                Rests { dram: true, flash: true } => Rests::ALL[1 + self.random.below(2) as usize],
                only => only,
            };
            return hand_on(tier, shares, idle, gainer, loser);
        }
        let tier = match (budget.dram, budget.flash) {
            (0, _) => Tier::Flash,
            (_, 0) => Tier::Dram,
            _ if self.random.below(2) == 0 => Tier::Dram,
            _ => Tier::Flash,
        };
        let room = gainer.map_or(u64::MAX, |v| tier.at(self.most[v]) - tier.at(shares[v]));
        let there = match loser {
            Some(v) => tier.at(shares[v]) - tier.at(self.floors[v]),
            None => tier.at(idle),
        };
        let most = room.min(there);
        if most == 0 {
            return None;
        }
        // Every magnitude is equally likely, and so is the largest possible move.
        let magnitude = self.random.below(u64::from(most.ilog2()) + 2);
        let units = match 1u64 << magnitude {
            size if size > most => most,
            size => size + self.random.below(size.min(most - size + 1)),
        };
        let mut change =
            Change { shares: [gainer, loser].map(|v| v.map(|v| (v, shares[v]))), idle };
        let [gains, loses] = &mut change.shares;
        *tier.units_mut(gains.as_mut().map_or(&mut change.idle, |(_, share)| share)) += units;
        *tier.units_mut(loses.as_mut().map_or(&mut change.idle, |(_, share)| share)) -= units;
        Some(change)
    }

    /// Swaps the entire shares of two volumes; `None` if a share is outside the other volume's
    /// limits.
    fn swap(&self, shares: &[Share], idle: Share, a: usize, b: usize) -> Option<Change> {
        let may = |v: usize, share: Share| {
            let (floor, most) = (self.floors[v], self.most[v]);
            (floor.dram..=most.dram).contains(&share.dram)
                && (floor.flash..=most.flash).contains(&share.flash)
        };
        let fits = may(a, shares[b]) && may(b, shares[a]);
        fits.then(|| Change { shares: [Some((a, shares[b])), Some((b, shares[a]))], idle })
    }

    /// Gives the unassigned units to volumes that gain by them: the volume that gains most first.
    fn fill(&mut self, shares: &mut [Share]) {
        for _ in 0..shares.len() {
            let idle = self.idle(shares);
            if idle == Share::default() {
                return;
            }
            let mut best: Option<(f64, f64, usize, Share)> = None;
            for (volume, &has) in shares.iter().enumerate() {
                let most = self.most[volume];
                let more = Share {
                    dram: (has.dram + idle.dram).min(most.dram),
                    flash: (has.flash + idle.flash).min(most.flash),
                    rests: has.rests.with(idle.rests),
                };
                let (was, is) = (self.cost(volume, has), self.cost(volume, more));
                let gain = (was.missed - is.missed, was.value - is.value);
                let best_gain = best.map_or((0.0, 0.0), |(missed, value, ..)| (missed, value));
                if gain > best_gain {
                    best = Some((gain.0, gain.1, volume, more));
                }
            }
            let Some((_, _, volume, more)) = best else { return };
            shares[volume] = self.trimmed(volume, more);
        }
    }

    /// The smallest share within this one that costs no more.
    fn trimmed(&mut self, volume: usize, mut share: Share) -> Share {
        if share.rests != Rests::default() {
            let with_all = self.cost(volume, share);
            let fewer = Rests::ALL.into_iter().filter(|rests| rests.is_within(share.rests));
            let fewer = fewer.map(|rests| Share { rests, ..share });
            let as_good = |less: &Share| !with_all.is_below(&self.cost(volume, *less));
            share = fewer.into_iter().find(as_good).unwrap_or(share);
        }
        for tier in [Tier::Flash, Tier::Dram] {
            let floor = tier.at(self.floors[volume]);
            let mut step = tier.at(share).next_power_of_two();
            let as_good = self.cost(volume, share);
            while step > 0 {
                let mut less = share;
                *tier.units_mut(&mut less) = tier.at(share).saturating_sub(step);
                let fits = tier.at(share) >= floor + step;
                if fits && !as_good.is_below(&self.cost(volume, less)) {
                    share = less;
                } else {
                    step /= 2;
                }
            }
        }
        share
    }

    fn cost(&mut self, volume: usize, share: Share) -> Cost {
        self.evaluations += 1;
        self.costs.cost(volume, share)
    }
}

/// Hands the rest of a tier on to `gainer`; `None` if `loser` does not have it.
fn hand_on(
    rest: Rests,
    shares: &[Share],
    idle: Share,
    gainer: Option<usize>,
    loser: Option<usize>,
) -> Option<Change> {
    if !rest.is_within(loser.map_or(idle, |v| shares[v]).rests) {
        return None;
    }
    let mut change = Change { shares: [gainer, loser].map(|v| v.map(|v| (v, shares[v]))), idle };
    let [gains, loses] = &mut change.shares;
    let gaining = &mut gains.as_mut().map_or(&mut change.idle, |(_, share)| share).rests;
    *gaining = gaining.with(rest);
    let losing = &mut loses.as_mut().map_or(&mut change.idle, |(_, share)| share).rests;
    *losing = losing.without(rest);
    Some(change)
}

/// The new shares of one or two volumes, and what then remains unassigned.
#[derive(Clone, Copy)]
struct Change {
    shares: [Option<(usize, Share)>; 2],
    idle: Share,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::exact::exact;
    use crate::partition::testing::{sum, tables};
    use crate::partition::watch::unwatched;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn annealing_stays_within_budget_and_floors_and_is_not_better_than_the_best(
            table in tables(), seed in any::<u64>(),
        ) {
            let options = AnnealOptions { seed, steps: 20_000, starts: 4 };
            let found = anneal(&table, options, &mut unwatched);
            match exact(&table, &mut unwatched) {
                Err(_) => prop_assert!(matches!(found, Err(PlanError::Floors))),
                Ok(best) => {
                    let found = found.unwrap();
                    let taken = sum(&found.shares);
                    prop_assert!(taken.dram <= table.budget.dram);
                    prop_assert!(taken.flash <= table.budget.flash);
                    for (share, floor) in found.shares.iter().zip(&table.floors) {
                        prop_assert!(share.dram >= floor.dram && share.flash >= floor.flash);
                    }
                    prop_assert_eq!(found.cost, total(&table, &found.shares));
                    prop_assert!(!found.cost.is_below(&best.cost)
                        || (found.cost.value - best.cost.value).abs() < 1e-9);
                }
            }
        }

        #[test]
        fn the_same_seed_gives_the_same_shares(table in tables(), seed in any::<u64>()) {
            let options = AnnealOptions { seed, steps: 2_000, starts: 2 };
            if let Ok(once) = anneal(&table, options, &mut unwatched) {
                prop_assert_eq!(Some(once), anneal(&table, options, &mut unwatched).ok());
            }
        }
    }

    #[test]
    fn annealing_without_end_is_ended_by_who_watches() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let found = (0..20).map(|_| tables().new_tree(&mut runner).unwrap().current());
        let table = found.into_iter().find(|t| exact(t, &mut unwatched).is_ok()).unwrap();
        let options = AnnealOptions { seed: 1, steps: u64::MAX, starts: 4 };
        let mut told = Vec::new();
        let ended = anneal(&table, options, &mut |done, total| {
            told.push((done, total));
            if told.len() < 3 { Ok(()) } else { Err("enough".into()) }
        });
        assert!(matches!(ended, Err(PlanError::Stopped(_))), "{ended:?}");
        let total = u64::MAX / 4 * 4;
        assert_eq!(told, [1, 2, 3].map(|n| (n * STEPS_PERIOD, total)));
    }

    #[test]
    fn annealing_nearly_always_finds_the_best_of_a_small_problem_without_any_shape() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let (mut solved, mut best) = (0, 0);
        for _ in 0..400 {
            let table = tables().new_tree(&mut runner).expect("tables are made").current();
            let Ok(exact) = exact(&table, &mut unwatched) else { continue };
            let options = AnnealOptions { seed: 1, steps: 20_000, starts: 4 };
            let found = anneal(&table, options, &mut unwatched).expect("there is a solution");
            solved += 1;
            best += u32::from(!exact.cost.is_below(&found.cost));
        }
        assert!(solved > 200 && f64::from(best) >= 0.98 * f64::from(solved), "{best} of {solved}");
    }
}
