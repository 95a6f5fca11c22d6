//! The operations that remain after the log has latched into its error state. It takes no more
//! records, but its records can be made durable, destaged, and then declared void.
//!
//! 1. [`Log::salvage`](crate::Log::salvage): one more sync, unless a sync is what failed. Records
//!    may go to the stores only if it succeeds. Otherwise, after a power cut, an older clean record
//!    could be the newest on flash while the store holds newer data.
//! 2. The caller destages. [`Log::sync_written`](crate::Log::sync_written) succeeds at once, since
//!    nothing has been written since.
//! 3. [`Log::void`](crate::Log::void): both copies of the superblock say that no record of these
//!    volumes counts. From then on only their stores count, and they may be written past the log.
//!
//! The superblock is written as usual: over the copy that is not known to be durable, and then over
//! the other, so that losing either loses nothing.

use crate::commit::{Commit, Described, SuperblockWriter};
use crate::events::{AnswerKind, Event};
use crate::io::Io;
use crate::operation::LogOperation;
use crate::sabotage::Bug;
use crate::sequence::BatchSequence;

use forebay_block::Volume;
use forebay_effect::{IoError, Outcome};

/// The progress of these operations; see the module documentation.
#[derive(Default)]
pub(crate) struct Remains {
    step: RemainsStep,
    /// Whether a salvage has succeeded, so that everything complete is durable.
    salvaged: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum RemainsStep {
    #[default]
    Idle,
    /// A sync has been requested, or is in flight.
    SyncWanted(u64),
    Syncing(u64),
    /// A superblock has been requested, is being written, or is being made durable.
    VoidWanted(u64),
    Writing(u64),
    Settling(u64),
    /// The other copy of the superblock is being written.
    Mirroring(u64),
    Mirrored(u64),
}

impl Remains {
    /// Requests a salvage; `Synced` answers it.
    pub fn salvage(&mut self, ticket: u64, commit: &Commit, io: &mut Io) {
        assert!(self.step == RemainsStep::Idle, "an earlier call is still unanswered");
        if commit.has_failed() {
            let result = Err(IoError::Device);
            return io.tell(Event::Answer { ticket, kind: AnswerKind::Synced, result });
        }
        self.step = RemainsStep::SyncWanted(ticket);
    }

    /// Whether a salvage has succeeded.
    pub fn is_salvaged(&self) -> bool {
        self.salvaged
    }

    /// Voids all records of these volumes up to batch `last`: `Voided` follows once this is
    /// durable.
    pub fn void(
        &mut self,
        volumes: impl Iterator<Item = Volume>,
        last: BatchSequence,
        ticket: u64,
        superblock: &mut SuperblockWriter,
    ) {
        assert!(self.salvaged, "void requires a successful salvage");
        assert!(self.step == RemainsStep::Idle, "an earlier call is still unanswered");
        superblock.void(volumes, last);
        self.step = RemainsStep::VoidWanted(ticket);
    }

    /// Begins the requested operation when no earlier one is in the way.
    pub fn pump(
        &mut self,
        superblock: &mut SuperblockWriter,
        described: &Described<'_>,
        io: &mut Io,
    ) -> bool {
        let commit = described.commit;
        match self.step {
            RemainsStep::SyncWanted(ticket) if !commit.is_syncing() => {
                self.step = RemainsStep::Syncing(ticket);
                if commit.has_failed() {
                    // (The sync that was in flight has failed.)
                    self.end(Err(IoError::Device), io);
                    return true;
                }
                io.sync(LogOperation::RemainsSync);
                true
            }
            RemainsStep::VoidWanted(ticket)
                if !commit.is_syncing() && !superblock.is_in_flight() =>
            {
                self.step = RemainsStep::Writing(ticket);
                if io.sabotage.is(Bug::VoidSkipped) {
                    self.end(Ok(()), io);
                    return true;
                }
                superblock.encode(described, io);
                superblock.write(LogOperation::RemainsSuperblock, io);
                true
            }
            _ => false,
        }
    }

    /// Called when a requested operation has ended.
    pub fn done(
        &mut self,
        result: Outcome,
        commit: &mut Commit,
        superblock: &mut SuperblockWriter,
        io: &mut Io,
    ) {
        match (self.step, result) {
            (RemainsStep::Syncing(_), Err(error)) => {
                commit.salvage(result);
                self.end(Err(error), io);
            }
            (RemainsStep::Syncing(_), Ok(())) => {
                self.salvaged = true;
                commit.salvage(result);
                self.end(Ok(()), io);
            }
            (RemainsStep::Writing(ticket), Ok(())) => {
                self.step = RemainsStep::Settling(ticket);
                io.sync(LogOperation::RemainsSync);
            }
            (RemainsStep::Settling(ticket), Ok(())) => {
                superblock.note_durable();
                self.step = RemainsStep::Mirroring(ticket);
                superblock.write(LogOperation::RemainsSuperblock, io);
            }
            (RemainsStep::Mirroring(ticket), Ok(())) => {
                self.step = RemainsStep::Mirrored(ticket);
                io.sync(LogOperation::RemainsSync);
            }
            (RemainsStep::Mirrored(_), Ok(())) => self.end(Ok(()), io),
            // (One copy may be durable. But on such a device the other, older one may soon be the
            // only one that can be read, and nothing else on flash says that records are void.)
            (_, Err(error)) => self.end(Err(error), io),
            (
                RemainsStep::Idle | RemainsStep::SyncWanted(_) | RemainsStep::VoidWanted(_),
                Ok(()),
            ) => {
                panic!("no operation was requested")
            }
        }
    }

    fn end(&mut self, result: Outcome, io: &mut Io) {
        let step = core::mem::take(&mut self.step);
        io.tell(match step {
            RemainsStep::Syncing(ticket) => {
                Event::Answer { ticket, kind: AnswerKind::Synced, result }
            }
            RemainsStep::Writing(ticket)
            | RemainsStep::Settling(ticket)
            | RemainsStep::Mirroring(ticket)
            | RemainsStep::Mirrored(ticket) => {
                Event::Answer { ticket, kind: AnswerKind::Voided, result }
            }
            _ => unreachable!("no operation was requested"),
        });
    }
}
