//! What a transfer is: a device operation under way on a block, or on consecutive ones.

use forebay_flash::{BlockKey, Position};

use crate::frames::Frame;
use crate::slab::Fifo;

/// What a transfer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Backing store to frames, or by way of a bounce frame to merge.
    Fetch,
    /// Backing store to frames, of the rest of a line, which nobody has asked for.
    FetchLine,
    /// Flash to a frame, or by way of a bounce frame to merge; then the checksum.
    FlashRead { position: Position },
    /// A frame to the log.
    Append { valid: u16, dirty: u16 },
    /// Flash to a bounce frame, on the way to the head of the log.
    CarryRead { position: Position },
    /// To the head of the log, in the place of a record whose region is to be used again: the same
    /// from a bounce frame or, without valid granules, that the dirty ones are lost.
    Carry { position: Position, valid: u16, dirty: u16 },
    /// A frame to the backing store, without flash or past it: blocks whose dirty granules leave.
    Destage { rest: u16 },
    /// A record's dirty granules, already in memory, to the backing store.
    DestageRecord { rest: u16, from: Frame, position: Position },
    /// Flash to a bounce frame, on the way to the backing store.
    DestageRead { position: Position },
    /// A request's bytes to the backing store.
    DirectWrite { request: u32, pieces: u32, keep: bool },
    /// Zeroes to the backing store, over a block with an entry.
    DirectZero { request: u32 },
    /// Zeroes, or a request's bytes, to a range of the backing store without entries.
    Range { request: u32, pieces: u32, zero: bool },
    /// Backing store to a request's buffer; leaves nothing in the cache.
    DirectRead { request: u32, pieces: u32 },
    /// The durable mark without which a record must not be outdated by a direct write
    /// (`poison`), nor a frame be recorded as clean while its backing store owes a sync.
    Activate { poison: bool },
}

/// A transfer under way on `count` consecutive blocks.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub kind: Kind,
    pub key: BlockKey,
    pub count: u32,
    /// Byte range on the volume, for transfers that move one.
    pub start: u64,
    pub end: u64,
    pub waiters: Fifo,
    pub bounce: Option<Frame>,
    /// The stretch it belongs to, and the next transfer of that, of the write that it has become.
    pub stretch: u32,
    pub next: u32,
}

impl Kind {
    /// Whether a transfer of this kind may have neither a frame nor a bounce frame of its own. Of all
    /// others there are never more than there are frames; of these, as many as were allowed for.
    pub fn is_loose(self) -> bool {
        match self {
            Kind::DirectWrite { keep, .. } => !keep,
            Kind::Activate { poison } => poison,
            Kind::DirectZero { .. }
            | Kind::Range { .. }
            | Kind::DirectRead { .. }
            | Kind::Carry { valid: 0, .. } => true,
            _ => false,
        }
    }

    /// Where it goes, of those that are collected in runs.
    pub fn way(self) -> Way {
        match self {
            Kind::Fetch | Kind::FetchLine | Kind::DirectRead { .. } => Way::In,
            Kind::DirectWrite { .. } | Kind::Range { .. } => Way::Past,
            Kind::Destage { .. } => Way::Out,
            other => unreachable!("no run of {other:?}"),
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

/// Where a run goes. Each way has its own: blocks that are fetched make dirty ones leave, and
/// neither run may be cut short by the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// From the backing store.
    In,
    /// A request's bytes or zeroes, to the backing store.
    Past,
    /// Dirty frames, to the backing store.
    Out,
}
