//! Bugs that can be switched on. The adversary must find each of them, which shows how thorough it
//! is.
//!
//! Only a build with debug assertions can have bugs ([`Sabotage::POSSIBLE`]); there a machine works
//! correctly until a bug is chosen. In a release build [`Sabotage::is`] is constantly false, and
//! the compiler removes the hooks.

/// A bug. Each hook that checks for one is a single line and says `sabotage`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Bug {
    /// Flash: a sync of the log is answered without one.
    LogSyncSkipped,
    /// Flash: a sync covers the writes that were complete when it ended, not when it was issued.
    SyncCoversTooMuch,
    /// Flash: batches count as complete in the order in which their writes end, so two are swapped.
    BatchesSwapped,
    /// Flash: recovery accepts payloads with wrong checksums.
    ChecksumIgnoredAtRecovery,
    /// Flash: the record of a directly written block gets no tombstone.
    TombstoneForgotten,
    /// Flash: the superblock does not name the extents open for direct writes.
    ActivityMarkSkipped,
    /// Flash: a region is reused before the records that supersede its records are durable.
    RegionReusedEarly,
    /// Flash: batches that an earlier run wrote after the end of its log count again.
    EpochsForgotten,
    /// Flash, slots layout: a cell is reused before its record is durably forgotten.
    CellReusedEarly,
    /// Flash, slots layout: recovery does not verify payloads that no structure says were durable.
    TailUnverified,
    /// Flash, slots layout: a record that replacement drops is not forgotten on flash.
    UnmapForgotten,
    /// Flash: records of a log that has failed are declared void, but not on flash.
    VoidSkipped,
    /// Cache, slots layout: a region is released with mappings that are still needed.
    MappingLeftBehind,
    /// Cache: payloads read from flash are accepted with wrong checksums.
    ChecksumIgnoredOnRead,
    /// Cache: a flush and a FUA write do not sync the backing store.
    BackingSyncSkipped,
    /// Cache: a newer partial record hides the granules of an older one.
    PartialHidesOlder,
    /// Cache: a trim bypasses a dirty record, which is later destaged over it.
    DestageOverDirectWrite,
    /// Cache: a slot is written while the log is writing it out.
    SlotWrittenUnderSpill,
    /// Cache: a region's dirty records count as clean before the backing store is synced.
    RegionFreedBeforeSync,
    /// Cache: records that are destaged together are written as one although one of them has left.
    GapWrittenOver,
    /// Cache: a volume is cleaned before its separate destages have ended.
    ApartOvertaken,
    /// Cache: separately destaged records count as clean before their store is synced.
    ApartUnsynced,
    /// Cache: a record counts as clean as soon as it is written to the backing store.
    DirtyForgottenBeforeSync,
    /// Cache: a failed sync of the backing store counts as successful.
    SyncFailureIgnored,
    /// Cache: a zeroing leaves the block's old data in DRAM.
    TrimLeavesOldData,
    /// Cache: a trim treats the rest of an extent as a whole although some of its blocks are
    /// cached.
    TrimPassesCachedBlocks,
    /// Cache: when a region is freed that held no entry of a shard, a piece that waits for an index entry of the
    /// shard is not woken.
    EntryWaiterForgotten,
    /// Cache: a destage does not follow a dirty record to the region it moves to.
    DestageLosesSight,
    /// Cache: the replacement policy counts an access that hits a block twice.
    PolicyToldTwice,
    /// Cache: the hand of a replacement policy is not bounded.
    HandDoesNotEnd,
    /// Cache: a cell is reused between the choice of its record for cleaning and the cleaning.
    ChosenCellsUsedAgain,
    /// Cache: a record is inserted again after a newer one of its block that is being written.
    ReinsertedOverNewer,
    /// Cache: a write in transit is answered when its record is given to the log, not when the log
    /// has written it.
    TransitAnsweredEarly,
    /// Cache: the frame of a write in transit is freed when its record is given to the log, not
    /// when the log has written it.
    TransitFrameReusedEarly,
    /// Cache: a block is read through a record that a newer one has replaced.
    StaleReferenceRead,
    /// Cache: the rest of a line is fetched although a write or zeroing of it is in transit to the
    /// store.
    LineOverWrites,
    /// Cache: a published block is not withdrawn when its state changes.
    NotWithdrawn,
    /// Cache: cleaning continues after a stop has ended.
    CleansAfterStop,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Bug; 38] = [
        Bug::LogSyncSkipped,
        Bug::SyncCoversTooMuch,
        Bug::BatchesSwapped,
        Bug::ChecksumIgnoredAtRecovery,
        Bug::TombstoneForgotten,
        Bug::ActivityMarkSkipped,
        Bug::RegionReusedEarly,
        Bug::EpochsForgotten,
        Bug::CellReusedEarly,
        Bug::TailUnverified,
        Bug::UnmapForgotten,
        Bug::VoidSkipped,
        Bug::MappingLeftBehind,
        Bug::ChecksumIgnoredOnRead,
        Bug::BackingSyncSkipped,
        Bug::PartialHidesOlder,
        Bug::DestageOverDirectWrite,
        Bug::SlotWrittenUnderSpill,
        Bug::RegionFreedBeforeSync,
        Bug::GapWrittenOver,
        Bug::ApartOvertaken,
        Bug::ApartUnsynced,
        Bug::DirtyForgottenBeforeSync,
        Bug::SyncFailureIgnored,
        Bug::TrimLeavesOldData,
        Bug::TrimPassesCachedBlocks,
        Bug::EntryWaiterForgotten,
        Bug::DestageLosesSight,
        Bug::PolicyToldTwice,
        Bug::HandDoesNotEnd,
        Bug::ChosenCellsUsedAgain,
        Bug::ReinsertedOverNewer,
        Bug::TransitAnsweredEarly,
        Bug::TransitFrameReusedEarly,
        Bug::StaleReferenceRead,
        Bug::LineOverWrites,
        Bug::NotWithdrawn,
        Bug::CleansAfterStop,
    ];
}

/// The bug that a machine has, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sabotage {
    bug: Option<Bug>,
}

impl Sabotage {
    /// No bug.
    pub const NONE: Sabotage = Sabotage { bug: None };
    /// Whether machines of this build can have a bug.
    pub const POSSIBLE: bool = cfg!(debug_assertions);

    /// The bug, if there is one.
    pub const fn bug(self) -> Option<Bug> {
        self.bug
    }

    /// This bug.
    pub const fn with(bug: Bug) -> Sabotage {
        Sabotage { bug: Some(bug) }
    }

    /// Whether the machine has this bug.
    #[inline(always)]
    pub fn is(self, bug: Bug) -> bool {
        Self::POSSIBLE && self.bug == Some(bug)
    }
}
