//! Whether flash takes records, and of which volumes: state that the shards and the front share.
//!
//! A shard knows what flash holds of its blocks ([`FlashTier`](crate::shard::FlashTier)). The state
//! of flash as a whole is kept only here: a procedure changes it, and all shards read it.

use forebay_flash::BlockKey;

use crate::volume_set::VolumeSet;

/// Whether the log takes records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogState {
    /// There is no flash tier.
    Absent,
    Open,
    /// The stop has closed it.
    Closed,
    /// It has failed, or was given up: it takes no records until the next start.
    Lost,
}

/// Whether requests that need room on flash wait only for stores that fail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Default, Debug)]
pub(crate) enum Jam {
    /// No, or no volume is suspended yet.
    #[default]
    None,
    /// Writes that need not go to flash bypass it.
    Bypassed,
    /// The jam has lasted too long: nothing is appended, and requests that need room fail, until it
    /// ends.
    Hopeless,
}

/// The condition of flash as a whole; see the module documentation.
#[derive(Debug)]
pub(crate) struct FlashCondition {
    log: LogState,
    /// Whether the log is lost, and writes of blocks with a record wait until records are void.
    pub awaits_void: bool,
    /// Volumes that continue without flash until the next start.
    without: VolumeSet,
    /// Whether all volumes do.
    all_without: bool,
    jam: Jam,
}

impl FlashCondition {
    /// Flash that takes records, or none unless it `exists`.
    pub fn new(exists: bool) -> FlashCondition {
        FlashCondition {
            log: if exists { LogState::Open } else { LogState::Absent },
            awaits_void: false,
            without: VolumeSet::EMPTY,
            all_without: false,
            jam: Jam::None,
        }
    }

    /// Whether there is a flash tier.
    #[inline]
    pub fn exists(&self) -> bool {
        self.log != LogState::Absent
    }

    /// Whether there is a flash tier that takes records.
    #[inline]
    pub fn takes_records(&self) -> bool {
        self.log == LogState::Open
    }

    /// Whether there is a flash tier that takes no records any more.
    #[inline]
    pub fn is_closed(&self) -> bool {
        matches!(self.log, LogState::Closed | LogState::Lost)
    }

    /// Whether the log has failed or was given up, and all parts know it.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.log == LogState::Lost
    }

    /// Notes that the log has failed or was given up.
    pub fn lose(&mut self) {
        self.log = LogState::Lost;
    }

    /// Notes that a stop closes the log, unless the log is lost.
    pub fn close(&mut self) {
        if self.log == LogState::Open {
            self.log = LogState::Closed;
        }
    }

    /// Whether requests that need room on flash wait only for stores that fail.
    #[inline]
    pub fn jam(&self) -> Jam {
        self.jam
    }

    /// Sets the jam; returns whether it has changed.
    /// [`World::set_jam`](crate::world::World::set_jam) also lets waiting pieces try again.
    pub fn set_jam(&mut self, jam: Jam) -> bool {
        core::mem::replace(&mut self.jam, jam) != jam
    }

    /// Volumes that continue without flash.
    pub fn without(&self) -> VolumeSet {
        self.without
    }

    /// Notes that these volumes, of `count`, continue without flash, too.
    pub fn do_without(&mut self, volumes: VolumeSet, count: usize) {
        self.without |= volumes;
        self.all_without = self.without.len() as usize == count;
    }

    /// Whether all volumes continue without flash.
    #[inline]
    pub fn all_without(&self) -> bool {
        self.all_without
    }

    /// Whether the block's volume continues without flash.
    #[inline]
    pub fn is_without(&self, key: BlockKey) -> bool {
        self.without.has(key)
    }

    /// Whether new data of the block's volume is written to flash, if that takes records.
    #[inline]
    pub fn logs(&self, key: BlockKey) -> bool {
        self.exists() && !self.is_without(key)
    }
}
