//! The events of the log. They are grouped by subject, so that the owner of the log can pass each
//! group on and match it exhaustively.

use crate::key::{BlockKey, Position, RegionIndex};
use crate::types::{ExtentId, LogError, Record, RecoveryReport};
use forebay_block::Volume;
use forebay_effect::{IoError, Outcome};

/// Events of the log, in the order in which they became true.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The outcome for a record or a mapping.
    Record(RecordEvent),
    /// The answer to `mark_active` or `void_record`.
    Mark {
        /// As passed by the caller.
        ticket: u64,
        /// The answer.
        answer: MarkAnswer,
    },
    /// A record that a start has found, or the end of the start.
    Start(StartEvent),
    /// The answer to a request of the log's owner.
    Answer {
        /// As passed by the caller.
        ticket: u64,
        /// The kind of request.
        kind: AnswerKind,
        /// The result.
        result: Outcome,
    },
    /// The answer to `note_bypass`. On success, data of the volume may bypass the log from now on:
    /// the superblock durably notes this.
    BypassNoted {
        /// The volume.
        volume: Volume,
        /// The result.
        result: Outcome,
    },
    /// Release all records in the region, then call `region_released`.
    Reclaim {
        /// Region number, as `Log::region_of` returns it.
        region: RegionIndex,
    },
    /// A region given to `region_released` is free: the advanced tail is durable. The owner of the
    /// index forgets the region's (clean) records only now, because until now recovery would have
    /// returned them. Then it calls `region_forgotten`, and the region is reused.
    RegionFreed {
        /// Region number.
        region: RegionIndex,
    },
    /// The table of active extents is full. Make the backing store of this extent's volume durable
    /// with one sync that is issued after this event (it need not cover writes in flight at that
    /// time), then call `extent_released`. Until then the extent stays marked. If the sync fails,
    /// call `hold_extents`.
    Retire {
        /// Pass this to `extent_released`.
        extent: ExtentId,
        /// First block of the extent.
        first: BlockKey,
    },
    /// The stop has ended.
    Stopped {
        /// Whether the clean mark is durable.
        result: Outcome,
    },
}

/// The outcome for a record or a mapping; see [`Event::Record`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordEvent {
    /// The record is on flash (durable after the next sync). These events are in log order.
    Appended {
        /// As passed by the caller.
        ticket: u64,
        /// Where its payload starts; [`Position::NONE`] for a tombstone.
        position: Position,
        /// CRC-32C of its payload, continued from `Log::payload_seed`.
        checksum: u32,
    },
    /// The record is not on flash; the log has latched as failed. Its frame is free again.
    AppendFailed {
        /// As passed by the caller.
        ticket: u64,
        /// Why.
        error: IoError,
    },
    /// The record was not written, because [`Log::take_back`] was called, or because
    /// [`Log::reinsert`] found no room to spare; its frame is free again.
    ///
    /// [`Log::take_back`]: crate::Log::take_back
    /// [`Log::reinsert`]: crate::Log::reinsert
    AppendRefused {
        /// As passed by the caller.
        ticket: u64,
    },
    /// A mapping given to `remap` is in the journal again (durable after the next sync).
    Moved {
        /// As passed by the caller.
        ticket: u64,
        /// As passed by the caller.
        key: BlockKey,
        /// As passed by the caller.
        position: Position,
        /// The region that held the mapping before.
        from: RegionIndex,
        /// The region that holds it now; `region_of` returns this region from now on.
        region: RegionIndex,
        /// The result.
        result: Outcome,
    },
    /// A record given to `unmap` is durably forgotten. The owner of an index forgets it only now,
    /// because until now recovery would have returned it; its cell is free from now on.
    Unmapped {
        /// The block.
        key: BlockKey,
        /// The place of its payload.
        position: Position,
    },
}

/// The answer to a request to mark an extent or to void a block's records; see [`Event::Mark`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum MarkAnswer {
    /// On success, the extent is durably marked, and the block's record on flash is stale. The
    /// block may now be written directly, or a record with the data of its backing store appended:
    /// see [`Log::mark_active`](crate::Log::mark_active). An error means that the log has failed
    /// and the extent is not marked.
    Active(Outcome),
    /// The extent is not marked and will get no place in the table: see `hold_extents`. Call
    /// `void_record` before you write the block directly.
    Unmarked,
    /// On success, all records of the block given to `void_record` are durably void. An error means
    /// that the log has failed.
    RecordVoid(Outcome),
}

impl MarkAnswer {
    /// The event that answers the caller who gave this ticket.
    pub(crate) fn to(self, ticket: u64) -> Event {
        Event::Mark { ticket, answer: self }
    }
}

/// A record that a start has found, or the end of the start; see [`Event::Start`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StartEvent {
    /// Recovery found this record; a later record or tombstone of the same block replaces it.
    Recovered(Record),
    /// Recovery found that every earlier record of this block is void.
    RecoveredTombstone {
        /// The block.
        key: BlockKey,
    },
    /// The log accepts appends (after `Start::Check`: it has been read to the end).
    Ready(Box<RecoveryReport>),
    /// The log could not be started. No other event follows, except [`Event::Stopped`] if
    /// [`Log::stop`](crate::Log::stop) was called before.
    Failed(LogError),
}

/// What an [`Event::Answer`] answers. The descriptions below hold only if the result is `Ok`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerKind {
    /// Everything that the call covers is durable, or has been withdrawn.
    Synced,
    /// Records appended before the call are durably declared clean.
    CleanMarked,
    /// The table of bound volumes, or what `seal` changed in it, is durable.
    Bound,
    /// The records of the volumes given to `void` durably no longer count, according to both copies
    /// of the superblock.
    Voided,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_events_cost_no_memory() {
        // The event queue has room for all frames, so the size of an event matters. The groups
        // share the tag of the largest one.
        assert_eq!(size_of::<Event>(), size_of::<StartEvent>());
        assert_eq!(size_of::<StartEvent>(), size_of::<LogError>());
    }
}
