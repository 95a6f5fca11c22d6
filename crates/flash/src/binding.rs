//! What the log remembers about each volume.

use crate::identity::StoreId;
use crate::sequence::{BatchSequence, StampNumber};
use forebay_block::Volume;

/// A volume bound to the flash tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The volume.
    pub volume: Volume,
    /// UUID of the backing store.
    pub uuid: StoreId,
    /// The backing store's generation when the log was formatted.
    pub generation: u64,
    /// Clean records of batches up to and including this one do not count: the backing store was
    /// changed without the log, or was given away.
    pub distrusted: BatchSequence,
    /// Records of batches up to and including this one do not count, dirty or not: the log failed,
    /// and the backing store has been used without it since.
    pub voided: BatchSequence,
    /// The fingerprint of the backing store when the log was last sealed, in the caller's format;
    /// all zeroes while it may be written.
    pub seal: Seal,
    /// The number of the newest stamp known to be durable on the backing store.
    pub stamp: StampNumber,
    /// A copy of the store with a stamp of this number, or a later one, lacks only data that went
    /// through the log; [`StampNumber::NONE`] if that is not known.
    pub logged: StampNumber,
    /// Size of the volume in bytes when it was last attached; 0 if it is unknown, for example
    /// because an earlier release wrote the binding.
    pub size: u64,
}

impl Binding {
    /// A binding of an unsealed volume whose records all count.
    ///
    /// # Panics
    /// If the volume's number needs more than 16 bits.
    pub const fn new(volume: Volume, uuid: StoreId, generation: u64) -> Binding {
        assert!(volume.0 <= u16::MAX as u32, "a volume's number needs more than 16 bits");
        let (distrusted, voided) = (BatchSequence::NONE, BatchSequence::NONE);
        let (seal, stamp, logged) = ([0; SEAL_BYTES], StampNumber::NONE, StampNumber::NONE);
        Binding { volume, uuid, generation, distrusted, voided, seal, stamp, logged, size: 0 }
    }

    /// Whether clean records of the volume, which now has `size` bytes, no longer count. If the
    /// volume has grown, the block at the former end may have more bytes than before: its records
    /// have zeroes there, whatever the backing store holds. If the volume has shrunk, the store's
    /// contents past the new end may change, and the volume may grow again.
    pub const fn is_outdated_by(&self, size: u64, block_size: u64) -> bool {
        let longer = size > self.size && !self.size.is_multiple_of(block_size);
        self.size != 0 && (longer || size < self.size)
    }
}

/// Bytes of a [`Seal`].
pub const SEAL_BYTES: usize = 32;

/// A fingerprint of a backing store's contents.
pub type Seal = [u8; SEAL_BYTES];

/// What [`Log::seal`] notes about a volume.
///
/// [`Log::seal`]: crate::Log::seal
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// The volume.
    pub volume: Volume,
    /// The fingerprint of its backing store; all zeroes for none.
    pub seal: Seal,
    /// Whether all its clean records so far stop counting.
    pub distrust: bool,
    /// The number of the newest stamp that is durable on its backing store, if one was written for
    /// this seal.
    pub stamp: Option<StampNumber>,
}

/// A stamp that is durable on its backing store, for [`Log::note_stamps`].
///
/// [`Log::note_stamps`]: crate::Log::note_stamps
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotedStamp {
    /// The volume.
    pub volume: Volume,
    /// The number of the stamp.
    pub number: StampNumber,
    /// Whether all data that had gone to the store past the log was durable there when the stamp
    /// was requested, and none has gone there past the log since.
    pub logged: bool,
}
