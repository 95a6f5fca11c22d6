//! A cleaning in progress, and its phases.

use forebay_block::Nanos;
use forebay_effect::IoError;
use forebay_flash::{BatchSequence, RegionIndex};

use super::Work;
use crate::volume_set::VolumeSet;

/// The phase of a cleaning, and what only this phase needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Shards choose what is destaged.
    Choosing,
    /// The region's records are being made durable: a version must not reach the backing store
    /// while a power cut could still bring back an older record that is marked clean.
    Logging {
        /// The newest batch that may hold a record that was chosen.
        newest: BatchSequence,
    },
    /// The stores to be written wait for stamps that say that they have seen the records.
    Stamping {
        /// As in [`Phase::Logging`].
        newest: BatchSequence,
    },
    /// Shards are destaging.
    Writing(Writing),
    /// Backing stores are being synced.
    Syncing { left: u32 },
    /// The destaged records become clean, except for the volumes whose sync failed.
    Settling { failed: VolumeSet },
    /// A reclaim: the region's mappings are being moved to another region.
    Moving {
        region: RegionIndex,
        /// The log did not take a mapping.
        failed: bool,
    },
    /// A reclaim: the remaining records of the region are carried on to the head of the log.
    Carrying { region: RegionIndex },
    /// A reclaim: the region is clean. The shards choose, one after another, which records are worth
    /// keeping, in at most `pages` pages of the log.
    Picking { region: RegionIndex, shard: usize, pages: u32 },
    /// A reclaim: the chosen records are inserted again at the head of the log.
    Reinserting { region: RegionIndex },
    /// A reclaim: the region is clean, and waits for stamps that say that the stores hold its records.
    Releasing { region: RegionIndex },
}

/// Shards are destaging; see [`Phase::Writing`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Writing {
    /// When it began.
    pub since: Nanos,
    /// Volumes whose part of this cleaning has not ended.
    pub awaited: VolumeSet,
    /// A bit for each shard: the shard has written its part.
    pub shards: u64,
}

/// A cleaning in progress.
#[derive(Debug)]
pub(super) struct Cleaning {
    pub work: Work,
    pub phase: Phase,
    /// The error of the last failed write.
    pub error: Option<IoError>,
    /// A dirty record could not be read from flash.
    pub unreadable: bool,
    /// Volumes written to.
    pub volumes: VolumeSet,
    /// Volumes to which a write failed.
    pub failed: VolumeSet,
    /// Volumes that were not tried.
    pub skipped: VolumeSet,
    /// It is part of a destage of everything.
    pub whole: bool,
    /// The count of failed syncs when the cleaning began.
    pub sync_failures: u64,
    /// It began during the pause after a failure, so its success does not reset `failures`.
    pub paused: bool,
}

impl Cleaning {
    /// A cleaning that is about to choose records.
    pub fn new(work: Work, sync_failures: u64, paused: bool) -> Cleaning {
        Cleaning {
            work,
            phase: Phase::Choosing,
            error: None,
            unreadable: false,
            volumes: VolumeSet::EMPTY,
            failed: VolumeSet::EMPTY,
            skipped: VolumeSet::EMPTY,
            whole: false,
            sync_failures,
            paused,
        }
    }
}
