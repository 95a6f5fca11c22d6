//! How a cleaning ends, and who learns of it. `cleaner.rs` has the table.

use forebay_effect::IoError;

use super::Work;

/// How a cleaning has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// What could be read is on the stores, and synced; a region to reclaim is free. (Records of
    /// other regions that cannot be read are in the account of the destage.)
    Done,
    /// Its writes, their syncs or stamps have failed; or the log could not make its records durable.
    Failed(IoError),
    /// A destage has failed, but only on stores that were known to fail, and no destage of
    /// everything waits for it.
    StillFailing(IoError),
    /// The log takes no more, or the cache stops.
    Dropped,
    /// A reclaim: the region holds records that cannot be read, so it cannot be emptied.
    Unreadable,
    /// A reclaim: the region's records can be carried on as soon as the regions released before are free.
    Crowded,
    /// A reclaim: the region cannot be emptied before late stores have ended their writes.
    Postponed,
    /// A reclaim: the region cannot be emptied, and no request needs it so far.
    Parked,
}

impl Ending {
    /// Whether this work can end so.
    pub fn fits(self, work: Work) -> bool {
        match self {
            Ending::Done | Ending::Failed(_) | Ending::Dropped => true,
            Ending::StillFailing(_) => work.destages(),
            Ending::Unreadable | Ending::Crowded | Ending::Postponed | Ending::Parked => {
                work.reclaims()
            }
        }
    }

    /// Whether it counts as an attempt that is to be repeated.
    pub fn is_failure(self) -> bool {
        match self {
            Ending::Failed(_) | Ending::StillFailing(_) | Ending::Unreadable => true,
            Ending::Done | Ending::Dropped => false,
            Ending::Crowded | Ending::Postponed | Ending::Parked => false,
        }
    }
}

/// Who has to learn of the end of a cleaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Told {
    Nobody,
    /// `Progress`: a region was not reclaimed.
    Progress,
    /// `Destages`: the destage of everything leaves a region behind, because of this error.
    Destage(IoError),
}
