//! Operations: what the log asks devices and the driver to do.
//!
//! The token of an effect names its operation, and the answer to the effect repeats the token. Only
//! this file knows how a token's index is built.

use forebay_effect::{Owner, Token};

/// What an effect of the log does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogOperation {
    /// Writes a batch: its headers, and in the log layout its payloads.
    Batch { batch: u8 },
    /// Writes payloads of a batch to consecutive cells: those of the entries before `end` that no
    /// earlier write of the batch includes.
    Cells { batch: u8, end: u16 },
    /// Computes the checksum of an entry's payload.
    Checksum { batch: u8, entry: u16 },
    /// Makes completed writes durable.
    Sync,
    /// Writes a copy of the superblock, or erases one that a former tier left.
    Superblock,
    /// Writes the directory of a region.
    Directory,
    /// Reads into a metadata buffer for recovery.
    RecoveryRead { buffer: u16 },
    /// Makes the writes of an earlier run durable before recovery reads.
    RecoverySync,
    /// Writes a copy of the superblock of a log that has latched.
    RemainsSuperblock,
    /// Makes the writes of a latched log durable.
    RemainsSync,
}

const BATCH: u32 = 0;
const CHECKSUM: u32 = 1;
const SYNC: u32 = 2;
const SUPERBLOCK: u32 = 3;
const RECOVERY_READ: u32 = 4;
const CELLS: u32 = 5;
const DIRECTORY: u32 = 6;
const REMAINS_SUPERBLOCK: u32 = 7;
const REMAINS_SYNC: u32 = 8;
const RECOVERY_SYNC: u32 = 9;

/// An index holds, from the highest bits: the kind, the batch, and the number of the entry or
/// buffer.
const KIND_SHIFT: u32 = 24;
const BATCH_SHIFT: u32 = 16;

impl LogOperation {
    /// The token of the operation's effect.
    #[inline]
    pub fn token(self) -> Token {
        let (kind, batch, number) = match self {
            LogOperation::Batch { batch } => (BATCH, batch, 0),
            LogOperation::Cells { batch, end } => (CELLS, batch, end),
            LogOperation::Checksum { batch, entry } => (CHECKSUM, batch, entry),
            LogOperation::Sync => (SYNC, 0, 0),
            LogOperation::Superblock => (SUPERBLOCK, 0, 0),
            LogOperation::Directory => (DIRECTORY, 0, 0),
            LogOperation::RecoveryRead { buffer } => (RECOVERY_READ, 0, buffer),
            LogOperation::RecoverySync => (RECOVERY_SYNC, 0, 0),
            LogOperation::RemainsSuperblock => (REMAINS_SUPERBLOCK, 0, 0),
            LogOperation::RemainsSync => (REMAINS_SYNC, 0, 0),
        };
        let index = kind << KIND_SHIFT | u32::from(batch) << BATCH_SHIFT | u32::from(number);
        Token { owner: Owner::Log, index }
    }

    /// The operation whose token has this index.
    ///
    /// # Panics
    /// If no operation's token has this index.
    #[inline]
    pub fn of(index: u32) -> LogOperation {
        let (batch, number) = ((index >> BATCH_SHIFT) as u8, index as u16);
        match index >> KIND_SHIFT {
            BATCH => LogOperation::Batch { batch },
            CELLS => LogOperation::Cells { batch, end: number },
            CHECKSUM => LogOperation::Checksum { batch, entry: number },
            SYNC => LogOperation::Sync,
            SUPERBLOCK => LogOperation::Superblock,
            DIRECTORY => LogOperation::Directory,
            RECOVERY_READ => LogOperation::RecoveryRead { buffer: number },
            RECOVERY_SYNC => LogOperation::RecoverySync,
            REMAINS_SUPERBLOCK => LogOperation::RemainsSuperblock,
            REMAINS_SYNC => LogOperation::RemainsSync,
            _ => panic!("{index:#x} does not belong to a token of the log"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_returns_from_its_token() {
        let operations = [
            LogOperation::Batch { batch: 255 },
            LogOperation::Cells { batch: 254, end: u16::MAX },
            LogOperation::Cells { batch: 1, end: 0 },
            LogOperation::Checksum { batch: 255, entry: u16::MAX },
            LogOperation::Checksum { batch: 0, entry: 1 },
            LogOperation::Sync,
            LogOperation::Superblock,
            LogOperation::Directory,
            LogOperation::RecoveryRead { buffer: u16::MAX },
            LogOperation::RecoverySync,
            LogOperation::RemainsSuperblock,
            LogOperation::RemainsSync,
        ];
        for (n, operation) in operations.into_iter().enumerate() {
            let token = operation.token();
            assert_eq!(token.owner, Owner::Log);
            assert_eq!(LogOperation::of(token.index), operation);
            let same = |other: &&LogOperation| other.token() == token;
            assert_eq!(operations.iter().filter(same).count(), 1, "operation {n}");
        }
    }

    #[test]
    #[should_panic(expected = "does not belong to a token of the log")]
    fn an_index_of_no_operation_is_refused() {
        let _ = LogOperation::of(10 << KIND_SHIFT);
    }
}
