//! A transfer: a device operation in progress on one block, or on consecutive blocks.

use forebay_flash::{BlockKey, Granules, Position};

use super::frames::Frame;
use crate::load::Source;
use crate::slab::{Fifo, RequestIndex, StretchIndex, TransferIndex, WaiterIndex};

/// The kind of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransferKind {
    /// Backing store to frames, or through a bounce frame to merge.
    Fetch,
    /// Backing store to frames, for the rest of a line that no client has requested.
    FetchLine,
    /// Flash to a frame, or through a bounce frame to merge; then the checksum.
    FlashRead { position: Position },
    /// A frame to the log.
    Append { valid: Granules, dirty: Granules },
    /// Flash to a bounce frame, in transit to the head of the log.
    CarryRead { position: Position },
    /// To the head of the log, replacing a record whose region is to be reused: the same data from
    /// a bounce frame or, without valid granules, a note that the dirty ones are lost.
    Carry { position: Position, valid: Granules, dirty: Granules },
    /// A frame to the backing store, bypassing flash: blocks whose dirty granules leave.
    Destage { rest: Granules },
    /// A record's dirty granules, already in memory, to the backing store.
    DestageRecord { rest: Granules, from: Frame, position: Position },
    /// Flash to a bounce frame, in transit to the backing store.
    DestageRead { position: Position },
    /// A request's bytes to the backing store.
    DirectWrite { request: RequestIndex, pieces: u32, keep: bool },
    /// Zeroes to the backing store, over a block with an entry.
    DirectZero { request: RequestIndex },
    /// Zeroes, or a request's bytes, to a range of the backing store without entries.
    Range { request: RequestIndex, pieces: u32, zero: bool },
    /// Backing store to a request's buffer; leaves nothing in the cache.
    DirectRead { request: RequestIndex, pieces: u32 },
    /// Waits for the durable mark of the block's extent. Without the mark, a direct write must not
    /// make a record stale (`poison`), and a frame must not be recorded as clean while its backing
    /// store has unsynced writes. A block that gets no mark, and has no record in the index any
    /// more, waits until the log has made its record void.
    Activate { poison: bool },
}

/// A transfer in progress on `count` consecutive blocks.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub kind: TransferKind,
    pub key: BlockKey,
    pub count: u32,
    /// Byte range on the volume, for transfers that move one.
    pub start: u64,
    pub end: u64,
    pub waiters: Fifo<WaiterIndex>,
    pub bounce: Option<Frame>,
    /// The stretch it belongs to, and the next transfer of the stretch or of the write that it has
    /// become.
    pub stretch: StretchIndex,
    pub next: TransferIndex,
}

impl TransferKind {
    /// Whether a transfer of this kind may have neither a frame nor a bounce frame. The number of
    /// such transfers is limited; there are never more transfers of the other kinds than frames.
    pub fn is_loose(self) -> bool {
        match self {
            TransferKind::DirectWrite { keep, .. } => !keep,
            TransferKind::Activate { poison } => poison,
            TransferKind::DirectZero { .. }
            | TransferKind::Range { .. }
            | TransferKind::DirectRead { .. } => true,
            TransferKind::Carry { valid, .. } => valid.is_empty(),
            TransferKind::Fetch
            | TransferKind::FetchLine
            | TransferKind::FlashRead { .. }
            | TransferKind::Append { .. }
            | TransferKind::CarryRead { .. }
            | TransferKind::Destage { .. }
            | TransferKind::DestageRecord { .. }
            | TransferKind::DestageRead { .. } => false,
        }
    }

    /// The device from which a transfer of this kind reads; none if it writes.
    pub fn source(self) -> Option<Source> {
        match self {
            TransferKind::Fetch | TransferKind::FetchLine | TransferKind::DirectRead { .. } => {
                Some(Source::Store)
            }
            TransferKind::FlashRead { .. }
            | TransferKind::DestageRead { .. }
            | TransferKind::CarryRead { .. } => Some(Source::Flash),
            TransferKind::Append { .. }
            | TransferKind::Carry { .. }
            | TransferKind::Destage { .. }
            | TransferKind::DestageRecord { .. }
            | TransferKind::DirectWrite { .. }
            | TransferKind::DirectZero { .. }
            | TransferKind::Range { .. }
            | TransferKind::Activate { .. } => None,
        }
    }

    /// Whether a transfer of this kind writes to the backing store bypassing the log. Its volume
    /// counts these transfers: `Transfers::start` notes each start, and `Shard::handle_completion`
    /// each end.
    pub fn is_direct(self) -> bool {
        match self {
            TransferKind::Destage { .. }
            | TransferKind::DirectWrite { .. }
            | TransferKind::DirectZero { .. }
            | TransferKind::Range { .. } => true,
            TransferKind::Fetch
            | TransferKind::FetchLine
            | TransferKind::FlashRead { .. }
            | TransferKind::Append { .. }
            | TransferKind::CarryRead { .. }
            | TransferKind::Carry { .. }
            | TransferKind::DestageRecord { .. }
            | TransferKind::DestageRead { .. }
            | TransferKind::DirectRead { .. }
            | TransferKind::Activate { .. } => false,
        }
    }

    /// The direction of transfers that are collected in runs.
    pub fn way(self) -> Way {
        match self {
            TransferKind::Fetch | TransferKind::FetchLine | TransferKind::DirectRead { .. } => {
                Way::In
            }
            TransferKind::DirectWrite { .. } | TransferKind::Range { .. } => Way::Direct,
            TransferKind::Destage { .. } => Way::Out,
            other => unreachable!("{other:?} cannot be part of a run"),
        }
    }
}

impl Transfer {
    pub fn covers(&self, key: BlockKey) -> bool {
        key.volume() == self.key.volume()
            && key.block() >= self.key.block()
            && key.block().0 - self.key.block().0 < u64::from(self.count)
    }
}

/// The direction of a run. Each direction has its own run: fetched blocks make dirty ones leave,
/// and neither run may cut the other short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// From the backing store.
    In,
    /// A request's bytes or zeroes, to the backing store.
    Direct,
    /// Dirty frames, to the backing store.
    Out,
}
