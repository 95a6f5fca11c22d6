//! The seam between what a share is worth and how shares are searched.

use std::cmp::Ordering;

/// A volume's part of each tier, in units of allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Share {
    /// Units of memory.
    pub dram: u64,
    /// Units of flash.
    pub flash: u64,
}

/// What a share costs its volume, and the sum of that over volumes: lower is better. Missed
/// targets count first, whatever the goal says.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cost {
    /// By how much targets are missed, as fractions of the targets; 0 where all are met.
    pub missed: f64,
    /// What the goal minimises.
    pub value: f64,
}

impl Cost {
    /// No targets are missed.
    pub const fn from_value(value: f64) -> Self {
        Self { missed: 0.0, value }
    }

    /// Targets before the goal.
    pub fn compare(&self, other: &Self) -> Ordering {
        self.missed.total_cmp(&other.missed).then(self.value.total_cmp(&other.value))
    }

    /// Whether it is strictly the better one.
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

/// Volumes and what each would cost with any share: all that a search knows.
pub trait Costs {
    /// Number of volumes.
    fn volumes(&self) -> usize;
    /// What there is to divide.
    fn budget(&self) -> Share;
    /// The least that a volume must get.
    fn floor(&self, volume: usize) -> Share;
    /// More than this is of no use to a volume, whatever it has of the other tier.
    fn useful(&self, volume: usize) -> Share;
    /// What a volume costs with a share.
    fn cost(&self, volume: usize, share: Share) -> Cost;
    /// Whether more never costs more: then a bound for finer units can be told.
    fn is_monotone(&self) -> bool;
    /// Whether any volume may have missed a target.
    fn has_targets(&self) -> bool;
}

/// The cost of shares of all volumes.
pub(crate) fn total(costs: &dyn Costs, shares: &[Share]) -> Cost {
    shares.iter().enumerate().map(|(volume, &share)| costs.cost(volume, share)).sum()
}

/// The largest share of a volume that a search considers.
pub(crate) fn most(costs: &dyn Costs, volume: usize) -> Share {
    let (budget, useful, floor) = (costs.budget(), costs.useful(volume), costs.floor(volume));
    Share {
        dram: useful.dram.max(floor.dram).min(budget.dram),
        flash: useful.flash.max(floor.flash).min(budget.flash),
    }
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
