//! How a cache is started ([`Open`]), and its messages to the driver ([`Notice`]).

use forebay_block::Volume;
use forebay_effect::Outcome;
use forebay_flash::{Binding, LogError, RecoveryReport, Stamp, StoreStamp, TierId};

#[cfg(doc)]
use crate::cache::Cache;
use crate::destage::DestageError;
#[cfg(doc)]
use crate::order::Order;
use crate::stop::StoresLeft;
use crate::switch::PolicyError;

/// A message to the driver. [`Notice::Stamp`] is a request that the driver must carry out and
/// answer; the others report to the driver, and thus to the operator, what has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The cache accepts requests. Contains the report of recovery if there is a flash tier.
    Ready(Option<Box<RecoveryReport>>),
    /// The flash tier could not be opened; nothing was written to it. The cache takes no requests.
    Failed(LogError),
    /// For every block, the backing stores durably hold the version that was newest at the time of
    /// the [`Order::Destage`], or a newer one.
    Destaged(Result<(), DestageError>),
    /// The policy of [`Order::SetPolicy`] is in force; or, with an error, the old one still
    /// is.
    PolicySet(Result<(), PolicyError>),
    /// The seals of [`Order::Seal`] are durably noted on the flash tier, and the records that
    /// no longer count are dropped.
    Sealed(Outcome),
    /// These stamps must be written durably to the headers of their stores; call
    /// [`Cache::handle_stamped`] for each, alone or with others. Until then, cleanings wait, and so
    /// may requests for room.
    Stamp {
        /// The stamp of each volume.
        stamps: Vec<(Volume, Stamp)>,
        /// Whether the headers must also say that the stores are *released*: from then on none of
        /// the log's records for these volumes counts, whatever a later start finds there.
        release: bool,
    },
    /// The cache has stopped. An error means that data that was to be destaged is still only on
    /// flash, that the clean mark could not be written or must not be, or that data only in memory
    /// could not be saved.
    Stopped(Result<StoresLeft, DestageError>),
}

/// How the flash tier is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// Format an empty tier.
    Format {
        /// Its new, random UUID.
        uuid: TierId,
        /// The volumes bound to it.
        bindings: Vec<Binding>,
    },
    /// Recover the existing tier.
    Recover {
        /// Volumes whose backing stores others have written since: their clean records are dropped,
        /// and if any are dirty the start is refused ([`LogError::Changed`]).
        changed: Vec<Volume>,
        /// Whether the caller drops all clean records and then replaces the seals, before it serves
        /// any request: until then the seals stay as they are, and a store that is an older copy of
        /// itself is accepted.
        drop_clean: bool,
        /// The stamps of the stores that keep one. They reveal an older copy of a store or of the
        /// flash tier: the clean records of the volume are dropped if the store is complete and
        /// nothing is dirty; else the start is refused ([`LogError::Older`]).
        stores: Vec<StoreStamp>,
    },
}

impl Open {
    /// [`Open::Recover`] with backing stores that only this cache has written.
    pub const RECOVER: Open =
        Open::Recover { changed: Vec::new(), drop_clean: false, stores: Vec::new() };
}
