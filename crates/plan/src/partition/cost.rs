//! The interface between the value of a share and the search for shares.

use std::cmp::Ordering;

/// A volume's share of each tier, in units of allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Share {
    /// Units of memory.
    pub dram: u64,
    /// Units of flash.
    pub flash: u64,
    /// The rests that the volume has in addition to its units.
    pub rests: Rests,
}

impl Share {
    /// A share of whole units, without rests.
    pub const fn new(dram: u64, flash: u64) -> Self {
        Self { dram, flash, rests: Rests { dram: false, flash: false } }
    }

    /// The share that is left after `taken`, which is within this share, is removed.
    pub(crate) fn without(self, taken: Self) -> Self {
        Self {
            dram: self.dram - taken.dram,
            flash: self.flash - taken.flash,
            rests: self.rests.without(taken.rests),
        }
    }
}

/// The rests of tiers. A *rest* is the part of a tier, smaller than a unit, that is left over after
/// dividing the tier into units. At most one volume gets it, in addition to its units.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Rests {
    /// The rest of memory.
    pub dram: bool,
    /// The rest of flash.
    pub flash: bool,
}

impl Rests {
    /// Every combination of rests, each after those that it includes.
    pub(crate) const ALL: [Self; 4] = [
        Self { dram: false, flash: false },
        Self { dram: true, flash: false },
        Self { dram: false, flash: true },
        Self { dram: true, flash: true },
    ];

    /// Whether `other` has all of these rests.
    pub(crate) fn is_within(self, other: Self) -> bool {
        self.dram <= other.dram && self.flash <= other.flash
    }

    /// These rests and the `added` ones.
    pub(crate) fn with(self, added: Self) -> Self {
        Self { dram: self.dram | added.dram, flash: self.flash | added.flash }
    }

    /// These rests except the `taken` ones.
    pub(crate) fn without(self, taken: Self) -> Self {
        Self { dram: self.dram & !taken.dram, flash: self.flash & !taken.flash }
    }
}

/// The cost of a share to its volume, or the sum of such costs over volumes: lower is better.
/// Missed targets count first, regardless of the goal.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    /// By how much targets are missed, as fractions of the targets; 0 if all are met.
    pub missed: f64,
    /// The quantity that the goal minimises.
    pub value: f64,
}

impl Cost {
    /// A cost without missed targets.
    pub const fn from_value(value: f64) -> Self {
        Self { missed: 0.0, value }
    }

    /// Compares missed targets first, then the goal.
    pub fn compare(&self, other: &Self) -> Ordering {
        self.missed.total_cmp(&other.missed).then(self.value.total_cmp(&other.value))
    }

    /// Whether this cost is strictly better.
    pub fn is_below(&self, other: &Self) -> bool {
        self.compare(other).is_lt()
    }
}

impl std::ops::Add for Cost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { missed: self.missed + other.missed, value: self.value + other.value }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), |a, b| a + b)
    }
}

/// Volumes and their costs for any share: all that a search knows.
pub trait Costs {
    /// Number of volumes.
    fn volumes(&self) -> usize;
    /// The units to divide, and the existing rests.
    fn budget(&self) -> Share;
    /// The minimum share of a volume, in whole units.
    fn floor(&self, volume: usize) -> Share;
    /// The largest useful share of a volume in each tier, in whole units; more gains nothing,
    /// whatever the volume has of the other tier.
    fn useful(&self, volume: usize) -> Share;
    /// The cost of a share to a volume.
    fn cost(&self, volume: usize, share: Share) -> Cost;
    /// Whether a larger share never costs more. Only then can a search give a bound for finer
    /// units.
    fn is_monotone(&self) -> bool;
    /// Whether any volume has a target.
    fn has_targets(&self) -> bool;
}

/// The total cost of the shares of all volumes.
pub(crate) fn total(costs: &dyn Costs, shares: &[Share]) -> Cost {
    shares.iter().enumerate().map(|(volume, &share)| costs.cost(volume, share)).sum()
}

/// The largest share of a volume, in whole units, that a search considers within a `budget`.
pub(crate) fn most(costs: &dyn Costs, volume: usize, budget: Share) -> Share {
    let (useful, floor) = (costs.useful(volume), costs.floor(volume));
    Share::new(
        useful.dram.max(floor.dram).min(budget.dram),
        useful.flash.max(floor.flash).min(budget.flash),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_outweighs_any_value() {
        let missed = Cost { missed: 0.01, value: -1e9 };
        assert!(Cost::from_value(1e9).is_below(&missed));
        assert!(Cost::from_value(1.0).is_below(&Cost::from_value(2.0)));
        assert!(!Cost::from_value(1.0).is_below(&Cost::from_value(1.0)));
        let sum: Cost = [missed, Cost::from_value(5.0)].into_iter().sum();
        assert_eq!((sum.missed, sum.value), (0.01, 5.0 - 1e9));
    }
}
