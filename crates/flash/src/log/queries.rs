//! Queries of the log's state, which change nothing.

use super::{Log, LogPhase};
use crate::binding::Binding;
use crate::cells::MoveRoom;
use crate::geometry::Geometry;
use crate::granules::Granules;
use crate::key::{BlockKey, Position, RegionIndex};
use crate::layout::Layout;
use crate::sequence::BatchSequence;
use crate::stamp::{Older, Stamp};
use crate::types::{LogStats, Options, RecoveryProgress, RecoveryReport};
use forebay_block::Volume;
use forebay_effect::IoError;

impl Log {
    /// Whether a mark of the block's extent ([`Log::mark_active`]) would wait only for flash, and
    /// not for a sync of another extent's store.
    pub fn has_mark(&self, key: BlockKey) -> bool {
        self.activity.has_place(key)
    }

    /// The volumes bound.
    pub fn bindings(&self) -> &[Binding] {
        self.superblock.bindings()
    }

    /// Whether an append of the block waits and is not in a batch yet.
    pub fn is_waiting(&self, key: BlockKey) -> bool {
        self.placement.queue.holds(key)
    }

    /// Log layout: whether there is room to carry `pages` pages. After a crash while records were
    /// carried there may be none.
    pub fn room_to_carry(&self, pages: u64) -> MoveRoom {
        match MoveRoom::new(pages, &self.placement.regions) {
            _ if self.layout() == Layout::Slots => MoveRoom::Never,
            // A log that has failed frees no region.
            MoveRoom::Later if self.error.is_some() => MoveRoom::Never,
            room => room,
        }
    }

    /// Whether released regions are about to be free.
    pub fn frees_regions(&self) -> bool {
        self.error.is_none() && self.placement.regions.pages_coming() > 0
    }

    /// The layout of records on flash.
    pub fn layout(&self) -> Layout {
        self.io.geometry.layout()
    }

    /// Slots layout: whether there is room for `count` mappings, whatever else is appended.
    /// Mappings that were submitted to `remap` before must have been written.
    pub fn room_for_moves(&self, count: u64) -> MoveRoom {
        // (A log that has failed refuses the moves at once.)
        match self.error {
            Some(_) => MoveRoom::Now,
            None => {
                let pages = count.div_ceil(self.io.geometry.batch_entries_max.into());
                MoveRoom::new(pages, &self.placement.regions)
            }
        }
    }

    /// The position's offset on the device, in bytes.
    pub fn byte_offset(&self, position: Position) -> u64 {
        u64::from(position.0) * u64::from(self.io.geometry.page_size)
    }

    /// The number of the position's region; in the slots layout, of the region with its mapping.
    pub fn region_of(&self, position: Position) -> RegionIndex {
        self.placement.region_of(position, &self.io.geometry)
    }

    /// Bytes of a payload with these valid granules.
    pub fn payload_bytes(&self, valid: Granules) -> u32 {
        self.io.geometry.payload_bytes(valid)
    }

    /// Pages of a payload with these valid granules.
    pub fn payload_pages(&self, valid: Granules) -> u32 {
        self.io.geometry.payload_pages(valid)
    }

    /// The start value of a payload's checksum. It depends on the log's UUID, the epoch and
    /// sequence of the region, the block and the position, so that a stale, misdirected or foreign
    /// payload fails. Call it before the region is released.
    pub fn payload_seed(&self, key: BlockKey, position: Position) -> u32 {
        self.placement.payload_seed(key, position, &self.io.geometry)
    }

    /// The event that [`Log::poll_event`] would return after `n` other events.
    pub fn geometry(&self) -> &Geometry {
        &self.io.geometry
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The error with which the log latched, if it has.
    pub fn error(&self) -> Option<IoError> {
        self.error
    }

    /// Whether a salvage has succeeded.
    pub fn is_salvaged(&self) -> bool {
        self.remains.is_salvaged()
    }

    /// Whether records wait to be written because there is no room.
    pub fn is_out_of_room(&self) -> bool {
        self.placement.is_out_of_room(&self.io.geometry)
    }

    /// Whether the log is so full that a new record may wait until another leaves.
    pub fn is_short(&self) -> bool {
        self.placement.is_short(&self.io.geometry)
    }

    /// The numbers of the regions in use, oldest first.
    pub fn regions_in_use(&self) -> impl Iterator<Item = RegionIndex> + '_ {
        let regions = &self.placement.regions;
        regions.tail.until(regions.end()).map(|sequence| regions.number(sequence))
    }

    /// A new stamp: the newest batch and the newest superblock known to be durable, and the newest
    /// batch before the oldest region, all of whose dirty records are on the stores.
    pub fn stamp(&self) -> Stamp {
        let layout = self.io.geometry.layout();
        Stamp::new(&self.placement.regions, &self.commit, &self.superblock, layout)
    }

    /// The newest batch written so far.
    pub fn complete_batch(&self) -> BatchSequence {
        self.commit.complete_batch()
    }

    /// The newest batch that can be in a region. No record there (in the slots layout: no record
    /// whose mapping is there) belongs to a later batch.
    pub fn newest_batch(&self, region: RegionIndex) -> BatchSequence {
        self.placement.regions.newest_batch(region, self.complete_batch())
    }

    /// Volumes whose store is an older copy that is to be completed; until `Ready`.
    pub fn completing(&self) -> &[Volume] {
        self.opening().map_or(&[], |report| &report.completing)
    }

    /// Volumes whose size has changed so that no clean record counts, and their former sizes in
    /// bytes; until `Ready`.
    pub fn resized(&self) -> &[(Volume, u64)] {
        self.opening().map_or(&[], |report| &report.resized)
    }

    /// Volumes whose store or log recovery found to be an older copy, so that no clean record of
    /// them counts; until `Ready`.
    pub fn outdated(&self) -> &[(Volume, Older)] {
        self.opening().map_or(&[], |report| &report.outdated)
    }

    /// Whether recovery has returned everything that it found, and the log is about to begin its
    /// epoch: the superblock that begins it is not written yet, or in flight.
    pub fn is_opening(&self) -> bool {
        matches!(self.phase, LogPhase::Opening { .. })
    }

    /// The results of recovery, until `Ready` reports them.
    fn opening(&self) -> Option<&RecoveryReport> {
        match &self.phase {
            LogPhase::Opening { report, .. } => Some(report),
            _ => None,
        }
    }

    /// Progress of recovery, while it runs.
    pub fn recovering(&self) -> Option<RecoveryProgress> {
        self.recovery.as_ref().map(|r| r.progress())
    }

    /// Counters.
    pub fn stats(&self) -> &LogStats {
        &self.io.stats
    }

    /// Which operations wait for what, for the report of a run that hangs.
    pub fn describe(&self) -> String {
        format!(
            "\nlog: {:?}, {} waiting to be written, durable to {} of {}, {}",
            self.phase,
            self.placement.queue.len(),
            self.commit.durable_batch(),
            self.commit.complete_batch(),
            self.placement.cells
        )
    }
}
