//! Bugs that can be switched on, for the adversary to find. It must find each of them: that says
//! how hard it looks.
//!
//! Only a build with debug assertions can have bugs ([`Sabotage::POSSIBLE`]), and there a machine is
//! sound until a bug is chosen. In a release build [`Sabotage::is`] is constantly false, and the
//! compiler removes the hooks.

/// A bug. Each hook that asks for one is a single line and says `sabotage`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Bug {
    /// Flash: a sync of the log is answered without one.
    LogSyncSkipped,
    /// Flash: a sync counts for what was complete when it ended, not when it was asked for.
    SyncCoversTooMuch,
    /// Flash: batches count as complete in the order in which their writes end: two are swapped.
    BatchesSwapped,
    /// Flash: recovery believes payloads whatever their checksums say.
    ChecksumIgnoredAtRecovery,
    /// Flash: the record of a directly written block gets no tombstone.
    TombstoneForgotten,
    /// Flash: the superblock does not name the extents open for direct writes.
    ActivityMarkSkipped,
    /// Flash: a region is used again before what supersedes its records is durable.
    RegionReusedEarly,
    /// Flash: what an earlier run wrote behind the end of its log counts again.
    EpochsForgotten,
    /// Flash, slots layout: a cell is used again before what forgets its record is durable.
    CellReusedEarly,
    /// Flash, slots layout: recovery does not verify payloads that nothing says were durable.
    TailUnverified,
    /// Flash, slots layout: a record that replacement drops is not forgotten on flash.
    UnmapForgotten,
    /// Flash: records of a log that has failed are declared void, but not on flash.
    VoidSkipped,
    /// Cache, slots layout: a region is given back with mappings that are still needed.
    MappingLeftBehind,
    /// Cache: payloads read from flash are believed whatever their checksums say.
    ChecksumIgnoredOnRead,
    /// Cache: a flush and a FUA write do not sync the backing store.
    BackingSyncSkipped,
    /// Cache: a newer partial record hides the granules of an older one.
    PartialHidesOlder,
    /// Cache: a trim goes past a dirty record, which is later destaged over it.
    DestageOverDirectWrite,
    /// Cache: a slot is written while the log is writing it out.
    SlotWrittenUnderSpill,
    /// Cache: a region's dirty records count as clean before the backing store is synced.
    RegionFreedBeforeSync,
    /// Cache: records that are destaged together are written as one though one of them has left.
    GapWrittenOver,
    /// Cache: a volume is cleaned while what was destaged of it apart has not ended.
    ApartOvertaken,
    /// Cache: what was destaged apart counts as clean before its store is synced.
    ApartUnsynced,
    /// Cache: a record counts as clean as soon as it is written to the backing store.
    DirtyForgottenBeforeSync,
    /// Cache: a failed sync of the backing store counts as a good one.
    SyncFailureIgnored,
    /// Cache: a zeroing leaves what DRAM holds of the block as it was.
    TrimLeavesOldData,
    /// Cache: a trim takes the rest of an extent as one though blocks of it are cached.
    TrimPassesCachedBlocks,
    /// Cache: who waits for an index entry is not woken by a region that had none of its shard.
    EntryWaiterForgotten,
    /// Cache: a destage does not follow a dirty record to the region it moves to.
    DestageLosesSight,
    /// Cache: the replacement policy counts an access that finds a block twice.
    PolicyToldTwice,
    /// Cache: the hand of a replacement policy is not bounded.
    HandDoesNotEnd,
    /// Cache: a cell is used again between the choice of its record for cleaning and the cleaning.
    ChosenCellsUsedAgain,
    /// Cache: a record is inserted again behind a newer one of its block that is being written.
    ReinsertedOverNewer,
    /// Cache: a write in transit is answered when its record is handed to the log, not when that has it.
    TransitAnsweredEarly,
    /// Cache: the frame of a write in transit is free when its record is handed to the log, not when that has it.
    TransitFrameReusedEarly,
    /// Cache: a block is read by the record that a newer one has taken the place of.
    StaleReferenceRead,
    /// Cache: the rest of a line is fetched though a write or zeroing of it is on its way to the store.
    LineOverWrites,
    /// Cache: a published block is not withdrawn when what is known of it changes.
    NotWithdrawn,
    /// Cache: cleaning goes on after a stop has ended.
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

/// Which bug a machine has, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sabotage {
    bug: Option<Bug>,
}

impl Sabotage {
    /// A machine without a bug.
    pub const NONE: Sabotage = Sabotage { bug: None };
    /// Whether machines of this build can have a bug.
    pub const POSSIBLE: bool = cfg!(debug_assertions);

    /// The bug.
    pub const fn bug(self) -> Option<Bug> {
        self.bug
    }

    /// A machine with this bug.
    pub const fn with(bug: Bug) -> Sabotage {
        Sabotage { bug: Some(bug) }
    }

    /// Whether the machine has this bug.
    #[inline(always)]
    pub fn is(self, bug: Bug) -> bool {
        Self::POSSIBLE && self.bug == Some(bug)
    }
}
