//! The events of the log. They are grouped by what they are about, so that their owner can pass each
//! group on and match it completely.

use crate::key::{BlockKey, Position, RegionIndex};
use crate::types::{ExtentId, LogError, Record, RecoveryReport};
use forebay_block::Volume;
use forebay_effect::{IoError, Outcome};

/// Events of the log, in the order in which they became true.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// What became of a record or of a mapping.
    Record(RecordEvent),
    /// The answer to `mark_active` or `void_record`.
    Mark {
        /// As given.
        ticket: u64,
        /// The answer.
        answer: MarkAnswer,
    },
    /// What a start gives, and how it ends.
    Start(StartEvent),
    /// The end of what a part of the log's owner has asked for.
    Answer {
        /// As given.
        ticket: u64,
        /// What was asked for.
        kind: AnswerKind,
        /// How it ended.
        result: Outcome,
    },
    /// Data of the volume may bypass the log from now on: this is durably noted.
    BypassNoted {
        /// The volume.
        volume: Volume,
        /// How it ended.
        result: Outcome,
    },
    /// Release all records in the region, then call `region_released`.
    Reclaim {
        /// Region number, as `Log::region_of` gives it.
        region: RegionIndex,
    },
    /// A region given to `region_released` is free: the advanced tail is durable. The owner of the
    /// index forgets the region's (clean) records only now, because until now recovery would have
    /// returned them. Then it calls `region_forgotten`, and the region is reused.
    RegionFreed {
        /// Region number.
        region: RegionIndex,
    },
    /// The table of active extents is full. Make the backing store of this extent's volume durable,
    /// with one sync that begins from now on (writes that are in flight then do not matter), then call
    /// `extent_released`. Until then the extent stays marked. If the sync fails, call `hold_extents`.
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

/// What became of a record or of a mapping; see [`Event::Record`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordEvent {
    /// The record is on flash (durable after the next sync). These events are in log order.
    Appended {
        /// As given.
        ticket: u64,
        /// Where its payload starts; [`Position::NONE`] for a tombstone.
        position: Position,
        /// CRC-32C of its payload, continued from `Log::payload_seed`.
        checksum: u32,
    },
    /// The record is not on flash; the log has latched as failed. Its frame is free again.
    AppendFailed {
        /// As given.
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
        /// As given.
        ticket: u64,
    },
    /// A mapping given to `remap` is in the journal again (durable after the next sync).
    Moved {
        /// As given.
        ticket: u64,
        /// As given.
        key: BlockKey,
        /// As given.
        position: Position,
        /// The region where it was.
        from: RegionIndex,
        /// The region where it is; `region_of` returns it too, from now on.
        region: RegionIndex,
        /// How it ended.
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

/// The answer to a request for a mark, or for a block's records to be void; see [`Event::Mark`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum MarkAnswer {
    /// The extent is durably marked, and the block's record on flash is stale. The block may be
    /// written directly now, or a record appended of what its store holds: see
    /// [`Log::mark_active`](crate::Log::mark_active). Or it is not marked, because the log has failed.
    Active(Outcome),
    /// The extent is not marked, and gets no place in the table: see `hold_extents`. Call `void_record`
    /// before the block is written directly.
    Unmarked,
    /// No record of the block given to `void_record` counts any more, durably; or the log has failed.
    RecordVoid(Outcome),
}

impl MarkAnswer {
    /// The event that answers the caller who gave this ticket.
    pub(crate) fn to(self, ticket: u64) -> Event {
        Event::Mark { ticket, answer: self }
    }
}

/// What a start gives, and how it ends; see [`Event::Start`].
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

/// What an [`Event::Answer`] answers; it happened only if the result is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerKind {
    /// Everything appended before the call is durable, or never will be.
    Synced,
    /// Records appended before the call are durably declared clean.
    CleanMarked,
    /// The table of bound volumes, or what `seal` changed in it, is durable.
    Bound,
    /// The records of the volumes given to `void` durably no longer count, by both copies of the
    /// superblock.
    Voided,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_events_cost_no_memory() {
        // The queue of events is sized for all frames. The tag of the largest group serves for all.
        assert_eq!(size_of::<Event>(), size_of::<StartEvent>());
        assert_eq!(size_of::<StartEvent>(), size_of::<LogError>());
    }
}
