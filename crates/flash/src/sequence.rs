//! The numbers that the log gives to its parts. Each kind has its own type, so that kinds cannot be
//! confused.
//!
//! All of them print as the bare number, also in debug output.

use crate::key::RegionIndex;
use core::fmt;
use core::ops::{Add, Sub};

macro_rules! numbers {
    ($($(#[$doc:meta])* $visible:vis $Number:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        $visible struct $Number(pub u64);

        impl $Number {
            /// The number after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Debug for $Number {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Display for $Number {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

numbers! {
    /// The number of a batch in the log, from 1 on, across regions; 0 stands for no batch.
    pub BatchSequence;
    /// The number of a use of a region, from 0 on: a region gets a new one each time it is opened.
    pub RegionSequence;
    /// The number of an update of the superblock, from 1 on; 0 stands for none.
    pub SuperblockGeneration;
    /// The number of a stamp in the header of a backing store, from 1 on; 0 stands for none. A
    /// later stamp of the same store has a higher number.
    pub StampNumber;
    /// The number of a state of the superblock's contents in this run, from 1 on; 0 stands for
    /// none.
    pub(crate) SuperblockVersion;
    /// The number of an append in this run, in the order of arrival, from 1 on; 0 stands for none.
    pub(crate) AppendSerial;
}

impl BatchSequence {
    /// No batch; less than all others.
    pub const NONE: BatchSequence = BatchSequence(0);
    /// The first batch of a log.
    pub const FIRST: BatchSequence = BatchSequence(1);
    /// Greater than all batches of a log.
    pub const MAX: BatchSequence = BatchSequence(u64::MAX);

    /// The number before this one, which must not be 0.
    #[must_use]
    pub const fn previous(self) -> BatchSequence {
        BatchSequence(self.0 - 1)
    }

    /// The number before this one, unless this one is 0.
    pub const fn checked_previous(self) -> Option<BatchSequence> {
        match self.0 {
            0 => None,
            n => Some(BatchSequence(n - 1)),
        }
    }
}

/// The batch that follows this one by `batches`.
impl Add<u64> for BatchSequence {
    type Output = BatchSequence;
    fn add(self, batches: u64) -> BatchSequence {
        BatchSequence(self.0 + batches)
    }
}

/// The batch that precedes this one by `batches`.
impl Sub<u64> for BatchSequence {
    type Output = BatchSequence;
    fn sub(self, batches: u64) -> BatchSequence {
        BatchSequence(self.0 - batches)
    }
}

/// The number of batches from `earlier` up to, but not including, this one.
impl Sub for BatchSequence {
    type Output = u64;
    fn sub(self, earlier: BatchSequence) -> u64 {
        self.0 - earlier.0
    }
}

impl StampNumber {
    /// No stamp; less than all others.
    pub const NONE: StampNumber = StampNumber(0);
}

impl RegionSequence {
    /// The first region that a log uses.
    pub const FIRST: RegionSequence = RegionSequence(0);

    /// The number of the region on a device of `regions` regions, which the log uses in rotation.
    ///
    /// # Panics
    /// If `regions` is 0.
    pub const fn region(self, regions: u32) -> RegionIndex {
        RegionIndex((self.0 % regions as u64) as u32)
    }

    /// The uses of regions from this one up to, but not including, `end`.
    pub fn until(self, end: RegionSequence) -> impl DoubleEndedIterator<Item = RegionSequence> {
        (self.0..end.0).map(RegionSequence)
    }
}

/// The use of a region that follows this one by `regions` uses.
impl Add<u64> for RegionSequence {
    type Output = RegionSequence;
    fn add(self, regions: u64) -> RegionSequence {
        RegionSequence(self.0 + regions)
    }
}

/// The number of uses of regions from `earlier` up to, but not including, this one.
impl Sub for RegionSequence {
    type Output = u64;
    fn sub(self, earlier: RegionSequence) -> u64 {
        self.0 - earlier.0
    }
}

impl SuperblockGeneration {
    /// No update; less than all others.
    pub const NONE: SuperblockGeneration = SuperblockGeneration(0);
}

impl AppendSerial {
    /// No append; less than all others.
    pub const NONE: AppendSerial = AppendSerial(0);
    /// Greater than all appends of a run.
    pub const MAX: AppendSerial = AppendSerial(u64::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_prints_alone_as_messages_expect() {
        assert_eq!(format!("{} {:?}", BatchSequence(7), Some(BatchSequence(8))), "7 Some(8)");
        assert_eq!(format!("{} {:?}", AppendSerial(7), [AppendSerial(8)]), "7 [8]");
    }

    #[test]
    fn regions_are_used_in_turn() {
        let uses = RegionSequence(2).until(RegionSequence(2) + 4);
        let regions: Vec<u32> = uses.map(|sequence| sequence.region(3).0).collect();
        assert_eq!(regions, [2, 0, 1, 2]);
        assert_eq!(RegionSequence(6) - RegionSequence(2), 4);
    }
}
