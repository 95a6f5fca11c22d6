//! Sets of granules of one block.

use core::fmt;
use core::iter;
use core::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not, Range};

/// A set of granules of one block: one bit for each, bit 0 for the first. A block has at most
/// [`GRANULES_MAX`](crate::GRANULES_MAX) granules. It prints as the bare number, also in debug
/// output.
///
/// ```
/// use forebay_flash::Granules;
/// let (valid, dirty) = (Granules::range(0, 4), Granules::range(3, 2));
/// assert_eq!(valid & dirty, Granules::range(3, 1));
/// assert_eq!(dirty & !valid, Granules::range(4, 1));
/// assert!((valid | dirty).contains(4) && !valid.contains(4));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Granules(pub u16);

impl Granules {
    /// No granule.
    pub const EMPTY: Granules = Granules(0);

    /// `count` granules from number `first` on.
    ///
    /// # Panics
    /// In debug builds, if the last of them is past the sixteenth.
    #[inline]
    #[must_use]
    pub const fn range(first: u32, count: u32) -> Granules {
        debug_assert!(first + count <= u16::BITS, "a block has at most 16 granules");
        Granules((((1_u32 << count) - 1) << first) as u16)
    }

    /// Whether it has no granule.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of granules.
    #[inline]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether it has the granule with this number.
    #[inline]
    pub const fn contains(self, granule: u32) -> bool {
        self.0 as u32 >> granule & 1 != 0
    }

    /// The granule with the lowest number.
    #[inline]
    pub const fn first(self) -> Option<u32> {
        if self.is_empty() { None } else { Some(self.0.trailing_zeros()) }
    }

    /// Removes and returns the first run of consecutive granules, as their numbers.
    #[inline]
    pub fn take_run(&mut self) -> Option<Range<u32>> {
        let first = self.first()?;
        let count = (self.0 >> first).trailing_ones();
        *self &= !Granules::range(first, count);
        Some(first..first + count)
    }

    /// The runs of consecutive granules, as their numbers.
    #[inline]
    pub fn runs(self) -> impl Iterator<Item = Range<u32>> {
        let mut rest = self;
        iter::from_fn(move || rest.take_run())
    }
}

impl BitAnd for Granules {
    type Output = Granules;
    #[inline]
    fn bitand(self, other: Granules) -> Granules {
        Granules(self.0 & other.0)
    }
}

impl BitAndAssign for Granules {
    #[inline]
    fn bitand_assign(&mut self, other: Granules) {
        self.0 &= other.0;
    }
}

impl BitOr for Granules {
    type Output = Granules;
    #[inline]
    fn bitor(self, other: Granules) -> Granules {
        Granules(self.0 | other.0)
    }
}

impl BitOrAssign for Granules {
    #[inline]
    fn bitor_assign(&mut self, other: Granules) {
        self.0 |= other.0;
    }
}

impl Not for Granules {
    type Output = Granules;
    #[inline]
    fn not(self) -> Granules {
        Granules(!self.0)
    }
}

impl fmt::Debug for Granules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Granules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_granules_of_its_numbers() {
        for first in 0..=16 {
            for count in 0..=16 - first {
                let granules = Granules::range(first, count);
                assert_eq!(granules.count(), count);
                assert_eq!(granules.is_empty(), count == 0);
                assert!(
                    (0..16).all(|n| granules.contains(n) == (first..first + count).contains(&n))
                );
            }
        }
    }

    #[test]
    fn the_runs_of_a_set_are_its_granules_in_order() {
        for bits in 0..=u16::MAX {
            let granules = Granules(bits);
            let runs: Vec<_> = granules.runs().collect();
            assert!(runs.is_sorted_by(|a, b| a.end < b.start), "runs do not touch: {runs:?}");
            let all = runs.iter().fold(Granules::EMPTY, |all, run| {
                all | Granules::range(run.start, run.end - run.start)
            });
            assert_eq!((all, granules.first()), (granules, runs.first().map(|run| run.start)));
        }
    }
}
