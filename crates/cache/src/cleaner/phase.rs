//! A cleaning in progress, and its phases.

use forebay_block::Nanos;
use forebay_effect::IoError;

use super::Purpose;
use crate::volume_set::VolumeSet;

/// The phase of the region being cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Shards choose what is destaged.
    Choosing,
    /// The region's records are being made durable: a version must not reach the backing store
    /// while a power cut could still bring back an older record that is marked clean.
    Logging,
    /// The stores to be written wait for stamps that say that they have seen the records.
    Stamping,
    /// Mappings are being moved to another region.
    Moving,
    /// Shards are destaging.
    Writing,
    /// Backing stores are being synced.
    Syncing { left: u32 },
    /// The destaged records become clean, except for the volumes whose sync failed.
    Settling { failed: VolumeSet },
    /// The remaining records of the region are carried on to the head of the log.
    Carrying,
    /// The region is clean. The shards choose, one after another, which records are worth keeping,
    /// in at most `pages` pages of the log.
    Picking { shard: usize, pages: u32 },
    /// The chosen records are inserted again at the head of the log.
    Reinserting,
    /// The region is clean, and waits for stamps that say that the stores hold its records.
    Releasing,
}

/// A cleaning in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cleaning {
    pub region: u32,
    pub purpose: Purpose,
    pub phase: Phase,
    /// A bit for each shard: the shard has written its part.
    pub written: u64,
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
    /// The newest batch that may hold a record that was chosen.
    pub newest: u64,
    /// The front's count of failed syncs when the region was begun.
    pub sync_failures: u64,
    /// When writing began.
    pub since: Nanos,
    /// Volumes whose part of this cleaning has not ended.
    pub awaited: VolumeSet,
    /// It began during the pause after a failure, so its success does not reset `failures`.
    pub paused: bool,
}

impl Cleaning {
    /// A cleaning that is about to choose records.
    pub fn new(region: u32, purpose: Purpose, sync_failures: u64, paused: bool) -> Cleaning {
        Cleaning {
            region,
            purpose,
            phase: Phase::Choosing,
            written: 0,
            error: None,
            unreadable: false,
            volumes: VolumeSet::EMPTY,
            failed: VolumeSet::EMPTY,
            skipped: VolumeSet::EMPTY,
            whole: false,
            newest: 0,
            sync_failures,
            since: Nanos(0),
            awaited: VolumeSet::EMPTY,
            paused,
        }
    }
}
