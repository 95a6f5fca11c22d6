//! The faults that devices in memory can have: their rates, and their counts.

use std::fmt;

use crate::choices::Choices;
use crate::devices::Verb;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// A write reports success, but nothing reaches the medium.
    LostWrite,
    /// A write goes to another place on the device and reports success.
    MisdirectedWrite,
    /// A read returns bytes from another place and reports success.
    MisdirectedRead,
    /// Sectors under a read become unreadable until they are written again.
    LatentError,
    /// A byte under a read has changed on the medium.
    ByteRot,
    /// A temporary I/O error. A write may have landed, wholly, partly or not at all.
    TransientError,
    /// A sync fails; data in the volatile cache may be dropped; the next sync succeeds.
    SyncFailure,
    /// No space is left; part of the write may have landed.
    NoSpace,
    /// The device is busy (`EAGAIN`); nothing happened. For a sync, like [`Fault::SyncFailure`].
    Again,
    /// A transfer ends early, without an error.
    Short,
    /// The operation takes much longer than others.
    Slow,
    /// The device disappears; operations fail until it returns.
    Vanished,
    /// The device returns with earlier contents.
    ReturnedOlder,
    /// A different device appears in its place.
    ReturnedOther,
    /// A power cut.
    PowerCut,
    /// A write that was not synced did not survive a power cut.
    LostAtCut,
    /// A write survived a power cut in part.
    Torn,
    /// A sector being written at a power cut holds garbage.
    Garbage,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Fault; 18] = [
        Fault::LostWrite,
        Fault::MisdirectedWrite,
        Fault::MisdirectedRead,
        Fault::LatentError,
        Fault::ByteRot,
        Fault::TransientError,
        Fault::SyncFailure,
        Fault::NoSpace,
        Fault::Again,
        Fault::Short,
        Fault::Slow,
        Fault::Vanished,
        Fault::ReturnedOlder,
        Fault::ReturnedOther,
        Fault::PowerCut,
        Fault::LostAtCut,
        Fault::Torn,
        Fault::Garbage,
    ];

    /// The kinds that may be planned for one operation, as opposed to faults of a whole device.
    pub const OF_OPERATIONS: [Fault; 11] = [
        Fault::LostWrite,
        Fault::MisdirectedWrite,
        Fault::MisdirectedRead,
        Fault::LatentError,
        Fault::ByteRot,
        Fault::TransientError,
        Fault::SyncFailure,
        Fault::NoSpace,
        Fault::Again,
        Fault::Short,
        Fault::Slow,
    ];

    /// Whether an operation can have this fault.
    pub fn befalls(self, verb: Verb) -> bool {
        let modifies = matches!(verb, Verb::Write | Verb::WriteZeroes { .. });
        match self {
            Fault::LostWrite | Fault::MisdirectedWrite | Fault::NoSpace => modifies,
            Fault::MisdirectedRead | Fault::LatentError | Fault::ByteRot => verb == Verb::Read,
            Fault::TransientError => modifies || verb == Verb::Read,
            Fault::Short => matches!(verb, Verb::Read | Verb::Write),
            Fault::SyncFailure => verb == Verb::Sync,
            Fault::Again | Fault::Slow => true,
            _ => false,
        }
    }
}

/// The fault rates of operations: a rate of N means one in N of the operations that can have the
/// fault; 0 means never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultRates {
    one_in: [u32; Fault::OF_OPERATIONS.len()],
    pub(super) sync_failure_reverts: bool,
}

impl FaultRates {
    /// No faults.
    pub const NONE: FaultRates =
        FaultRates { one_in: [0; Fault::OF_OPERATIONS.len()], sync_failure_reverts: false };

    /// Sets the rate of `fault` to one in `n` operations; 0 means never.
    ///
    /// # Panics
    /// If `fault` is not in [`Fault::OF_OPERATIONS`].
    pub fn with(mut self, fault: Fault, n: u32) -> FaultRates {
        let at = Fault::OF_OPERATIONS.iter().position(|&kind| kind == fault);
        self.one_in[at.expect("a fault that affects operations")] = n;
        self
    }

    /// Lets data that a failing sync could not write revert to the old contents at once (as when a
    /// page cache evicts the page), instead of only after a power cut.
    pub fn with_reverting_syncs(self) -> FaultRates {
        FaultRates { sync_failure_reverts: true, ..self }
    }

    /// Draws the fault of an operation.
    pub(super) fn draw(&self, verb: Verb, choices: &mut dyn Choices) -> Option<Fault> {
        (Fault::OF_OPERATIONS.into_iter().zip(self.one_in))
            .find(|&(fault, n)| n != 0 && fault.befalls(verb) && choices.one_in(n))
            .map(|(fault, _)| fault)
    }
}

/// The number of faults of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    counts: [u64; Fault::ALL.len()],
}

impl FaultCounts {
    /// The number of faults of one kind.
    pub fn get(&self, fault: Fault) -> u64 {
        self.counts[fault as usize]
    }

    /// Every kind of fault, with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> + use<> {
        Fault::ALL.into_iter().zip(self.counts)
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &FaultCounts) {
        self.counts.iter_mut().zip(other.counts).for_each(|(mine, theirs)| *mine += theirs);
    }

    pub(super) fn note(&mut self, fault: Fault) {
        self.counts[fault as usize] += 1;
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (fault, count) in self.iter().filter(|&(_, count)| count > 0) {
            write!(f, "{separator}{fault:?} {count}")?;
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_counter() {
        for (index, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, index);
        }
    }
}
