//! The operations that remain after the log has latched into its error state. It takes no more
//! records, but its records can be made durable, destaged, and then declared void.
//!
//! 1. [`Log::salvage`]: one more sync, unless a sync is what failed. Records may go to the stores
//!    only if it succeeds. Otherwise, after a power cut, an older clean record could be the newest
//!    on flash while the store holds newer data.
//! 2. The caller destages. [`Log::sync_written`] succeeds at once, since nothing has been written
//!    since.
//! 3. [`Log::void`]: both copies of the superblock say that no record of these volumes counts. From
//!    then on only their stores count, and they may be written past the log.
//!
//! The superblock is written as usual: over the copy that is not known to be durable, and then over
//! the other, so that losing either loses nothing.

use crate::log::Log;
use crate::operation::Operation;
use crate::sabotage::Bug;
use crate::types::Event;
use forebay_block::Volume;
use forebay_effect::{IoError, Outcome};

/// See the module.
#[derive(Default)]
pub(crate) struct Remains {
    step: Step,
    /// Everything that is complete is durable.
    salvaged: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Step {
    #[default]
    Idle,
    /// A sync is wanted, or in flight.
    SyncWanted(u64),
    Syncing(u64),
    /// A superblock is wanted, being written, or being made durable.
    VoidWanted(u64),
    Writing(u64),
    Settling(u64),
    /// The other copy of the superblock is being written.
    Mirroring(u64),
    Mirrored(u64),
}

impl Log {
    /// For a log that has latched: `Synced` follows once everything whose `Appended` event was
    /// emitted is durable, if the device can still make it durable.
    ///
    /// # Panics
    /// Before the log has latched, or while another call of this or of [`Log::void`] is unanswered.
    pub fn salvage(&mut self, ticket: u64) {
        assert!(self.error().is_some(), "only a failed log can be salvaged");
        assert!(self.remains.step == Step::Idle, "an earlier call is still unanswered");
        if self.commit.has_failed() {
            let result = Err(IoError::Device);
            return self.io.tell(Event::Synced { ticket, result });
        }
        self.remains.step = Step::SyncWanted(ticket);
        self.pump();
    }

    /// Whether that has succeeded.
    pub fn is_salvaged(&self) -> bool {
        self.remains.salvaged
    }

    /// For a log that has latched: no record of these volumes counts any more. `Voided` follows
    /// once that is durable. Their stores must be durable, and hold the data that was dirty.
    ///
    /// # Panics
    /// Before a salvage has succeeded, or while another call is unanswered.
    pub fn void(&mut self, volumes: impl Iterator<Item = Volume>, ticket: u64) {
        assert!(self.remains.salvaged, "void requires a successful salvage");
        assert!(self.remains.step == Step::Idle, "an earlier call is still unanswered");
        let last = self.batches.next_sequence.previous();
        self.superblock.void(volumes, last);
        self.remains.step = Step::VoidWanted(ticket);
        self.pump();
    }

    /// Begins the requested operation when no earlier one is in the way.
    pub(crate) fn pump_remains(&mut self) -> bool {
        match self.remains.step {
            Step::SyncWanted(ticket) if !self.commit.is_syncing() => {
                self.remains.step = Step::Syncing(ticket);
                if self.commit.has_failed() {
                    // (The one that was in flight.)
                    self.end_remains(Err(IoError::Device));
                    return true;
                }
                self.push_remains_sync();
                true
            }
            Step::VoidWanted(ticket)
                if !self.commit.is_syncing() && !self.superblock.is_in_flight() =>
            {
                self.remains.step = Step::Writing(ticket);
                if self.io.sabotage.is(Bug::VoidSkipped) {
                    self.end_remains(Ok(()));
                    return true;
                }
                self.encode_superblock();
                self.superblock.write(Operation::RemainsSuperblock, &mut self.io);
                true
            }
            _ => false,
        }
    }

    fn push_remains_sync(&mut self) {
        self.io.sync(Operation::RemainsSync);
    }

    /// A requested operation has ended.
    pub(crate) fn remains_done(&mut self, result: Outcome) {
        match (self.remains.step, result) {
            (Step::Syncing(_), Err(error)) => {
                self.commit.salvage(result);
                self.end_remains(Err(error));
            }
            (Step::Syncing(_), Ok(())) => {
                self.remains.salvaged = true;
                self.commit.salvage(result);
                self.end_remains(Ok(()));
            }
            (Step::Writing(ticket), Ok(())) => {
                self.remains.step = Step::Settling(ticket);
                self.push_remains_sync();
            }
            (Step::Settling(ticket), Ok(())) => {
                self.superblock.note_durable();
                self.remains.step = Step::Mirroring(ticket);
                self.superblock.write(Operation::RemainsSuperblock, &mut self.io);
            }
            (Step::Mirroring(ticket), Ok(())) => {
                self.remains.step = Step::Mirrored(ticket);
                self.push_remains_sync();
            }
            (Step::Mirrored(_), Ok(())) => self.end_remains(Ok(())),
            // (One copy may be durable. But on such a device the other, older one may soon be the only
            // one that can be read, and nothing else on flash says that records are void.)
            (_, Err(error)) => self.end_remains(Err(error)),
            (Step::Idle | Step::SyncWanted(_) | Step::VoidWanted(_), Ok(())) => {
                panic!("no operation was requested")
            }
        }
    }

    fn end_remains(&mut self, result: Result<(), IoError>) {
        let step = core::mem::take(&mut self.remains.step);
        self.io.tell(match step {
            Step::Syncing(ticket) => Event::Synced { ticket, result },
            Step::Writing(ticket)
            | Step::Settling(ticket)
            | Step::Mirroring(ticket)
            | Step::Mirrored(ticket) => Event::Voided { ticket, result },
            _ => unreachable!("no operation was requested"),
        });
    }
}
