//! The work that the cleaner has to do.

use forebay_flash::RegionIndex;

use crate::shard::Target;

/// What a cleaning is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// The log wants to reuse this region.
    Reclaim(RegionIndex),
    /// All dirty records of this region are to be on the backing stores.
    Destage(RegionIndex),
    /// Late stores take their dirty records of this region.
    Late(RegionIndex),
    /// Slots layout: blocks are evicted from flash, wherever they are.
    Evict,
}

impl Work {
    /// The region that is cleaned, if it is one.
    #[inline]
    pub fn region(self) -> Option<RegionIndex> {
        match self {
            Work::Reclaim(region) | Work::Destage(region) | Work::Late(region) => Some(region),
            Work::Evict => None,
        }
    }

    /// The records that it cleans.
    pub fn target(self) -> Target {
        self.region().map_or(Target::Coldest, Target::Region)
    }

    /// Whether the log waits for it.
    #[inline]
    pub fn reclaims(self) -> bool {
        matches!(self, Work::Reclaim(_))
    }

    /// Whether it is part of a destage.
    #[inline]
    pub fn destages(self) -> bool {
        matches!(self, Work::Destage(_))
    }

    /// Whether it is for late stores.
    #[inline]
    pub fn is_late(self) -> bool {
        matches!(self, Work::Late(_))
    }
}

/// The first regions of a log, for tests.
#[cfg(test)]
pub(super) const R: [RegionIndex; 4] =
    [RegionIndex(0), RegionIndex(1), RegionIndex(2), RegionIndex(3)];
