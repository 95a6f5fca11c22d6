//! A piece: the part of a request that falls on one block.

use forebay_block::BlockIndex;
use forebay_effect::Place;

use super::ShardContext;
use crate::slab::RequestIndex;

/// The part of a request that falls on one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The request, as numbered by the front.
    pub request: RequestIndex,
    /// The block within the request's volume.
    pub block: u64,
    /// First byte within the block.
    pub start: u32,
    /// Number of bytes.
    pub length: u32,
    /// Whether the access has been counted as a hit or a miss.
    pub counted: bool,
    /// Whether the replacement policy has been notified of it.
    pub told: bool,
    /// Events that have been counted for it.
    pub once: Once,
    /// Whether a write bypasses flash, once the admission policy has been asked; or `Some(false)`
    /// if a write through to the backing store is to bypass the cache but found its block there.
    pub around: Option<bool>,
}

impl Piece {
    /// The place of its bytes in the request's buffer.
    pub fn place(&self, context: &ShardContext<'_>) -> Place {
        let r = &context.front.requests[self.request];
        let block = context.config.block_size.offset_of(BlockIndex(self.block));
        let offset = block + u64::from(self.start) - r.offset;
        Place::Request { request: r.id, offset: offset as u32 }
    }
}

/// Events that count once for a piece, however often it is evaluated.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Once(u8);

impl Once {
    /// The piece waited for room.
    pub const WAITED_FOR_ROOM: u8 = 1;
    /// The piece needed the rest of a granule.
    pub const NEEDED_REST: u8 = 2;

    /// Returns 1 the first time for this event, then 0.
    pub fn count(&mut self, event: u8) -> u64 {
        let first = self.0 & event == 0;
        self.0 |= event;
        u64::from(first)
    }
}
