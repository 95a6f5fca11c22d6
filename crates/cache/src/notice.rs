//! How a cache is started ([`Open`]), and its messages to the operator ([`Notice`]).

use forebay_block::Volume;
use forebay_effect::Outcome;
use forebay_flash::{Binding, LogError, RecoveryReport, Stamp, StoreStamp};

#[cfg(doc)]
use crate::cache::Cache;

/// Something the operator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Requests are welcome. With what recovery found, if there is a flash tier.
    Ready(Option<Box<RecoveryReport>>),
    /// The flash tier could not be opened; nothing was written to it. The cache takes no requests.
    Failed(LogError),
    /// The backing stores durably hold, of every block, the version that was newest when
    /// [`Cache::destage`] was called, or a newer one.
    Destaged(Outcome),
    /// The policy given to [`Cache::set_policy`] holds; or, with an error, the old one does.
    PolicySet(Outcome),
    /// What [`Cache::seal`] was given is noted on the flash tier, durably, and what ceases to count is
    /// gone.
    Sealed(Outcome),
    /// These stamps are to be written to the headers of their stores, durably; [`Cache::stamped`] is to
    /// follow for each, alone or with others.
    Stamp {
        /// By volume.
        stamps: Vec<(Volume, Stamp)>,
        /// The headers are to say, too, that the stores are *released*: from now on nothing that the log
        /// has of these volumes counts, whatever a later start finds there.
        release: bool,
    },
    /// The cache has stopped. An error says that dirty data is still on flash only, or that the
    /// clean mark could not be written, or that what was in memory only could go nowhere.
    Stopped(Outcome),
}

/// How the flash tier is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// Write an empty one.
    Format {
        /// Its new, random UUID.
        uuid: [u8; 16],
        /// The volumes bound to it.
        bindings: Vec<Binding>,
    },
    /// Go on with what is there.
    Recover {
        /// Volumes whose backing stores others have written since: what is clean of them is
        /// dropped, and if anything is dirty, the start is refused ([`LogError::Changed`]).
        changed: Vec<u16>,
        /// Whether seals stay as they are, because the caller is about to replace them.
        sealed: bool,
        /// The stamps of those stores that keep one. An older copy of a store, or of the flash tier, is
        /// found by them: what is clean of the volume is dropped if the store is whole, and nothing is
        /// dirty; else the start is refused ([`LogError::Older`]).
        stores: Vec<StoreStamp>,
    },
}

impl Open {
    /// [`Open::Recover`] with backing stores that only this cache has written.
    pub const RECOVER: Open =
        Open::Recover { changed: Vec::new(), sealed: false, stores: Vec::new() };
}
