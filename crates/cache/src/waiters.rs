//! Pieces of requests, one block each, that wait for a transfer or for room.

use crate::slab::Linked;

/// The part of a request that falls on one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The request, by the front's number.
    pub request: u32,
    /// The block within the request's volume.
    pub block: u64,
    /// First byte within the block.
    pub start: u32,
    /// Bytes.
    pub length: u32,
    /// Whether the access has been counted as a hit or a miss.
    pub counted: bool,
    /// Whether the replacement policy has been notified of it.
    pub told: bool,
    /// Whether a write bypasses flash, once the admission policy has been asked.
    pub around: Option<bool>,
}

/// A waiting piece.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub piece: Piece,
    /// Its data is in the frame: it is done when the current append is.
    pub applied: bool,
    pub next: u32,
}

impl Linked for Waiter {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}
