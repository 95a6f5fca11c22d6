//! Pieces of requests that wait for a transfer, for room, or until records are void. Each transfer
//! has a list of its own. A piece is in one list at a time.

use core::mem;

use forebay_effect::{IoError, Outcome};

use super::{Piece, ShardContext};
use crate::slab::{Fifo, Linked, Slab, WaiterIndex};

/// The waiting pieces; see the module documentation.
#[derive(Debug)]
pub(super) struct WaitingPieces {
    waiters: Slab<WaiterIndex, Waiter>,
    /// Pieces that wait for room.
    starved: Fifo<WaiterIndex>,
    /// Pieces that wait until records are void.
    parked: Fifo<WaiterIndex>,
}

/// A waiting piece.
#[derive(Debug)]
struct Waiter {
    piece: Piece,
    /// Whether its data is in the frame, so that it is done when the current transfer is.
    applied: bool,
    next: WaiterIndex,
}

impl Linked<WaiterIndex> for Waiter {
    fn next(&mut self) -> &mut WaiterIndex {
        &mut self.next
    }
}

impl WaitingPieces {
    /// Has places for `waiters_max` pieces.
    pub fn new(waiters_max: u32) -> WaitingPieces {
        WaitingPieces { waiters: Slab::new(waiters_max), starved: Fifo::EMPTY, parked: Fifo::EMPTY }
    }

    pub fn memory_bytes(&self) -> u64 {
        self.waiters.memory_bytes()
    }

    /// Whether there is no place for another piece.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.waiters.is_full()
    }

    /// Number of pieces that wait.
    pub fn in_use(&self) -> usize {
        self.waiters.in_use()
    }

    #[inline]
    pub fn piece(&self, w: WaiterIndex) -> Piece {
        self.waiters[w].piece
    }

    /// Notes a piece that has to wait, as waiter `w` if it waited before. The caller then puts the
    /// waiter into a list. `applied`: the piece is done when the transfer is.
    #[inline]
    pub fn note(&mut self, w: Option<WaiterIndex>, piece: Piece, applied: bool) -> WaiterIndex {
        match w {
            Some(w) => {
                (self.waiters[w].piece, self.waiters[w].applied) = (piece, applied);
                w
            }
            None => self.waiters.insert(Waiter { piece, applied, next: WaiterIndex::NONE }),
        }
    }

    /// Removes a waiter that is in no list, and returns its piece.
    #[inline]
    pub fn remove(&mut self, w: WaiterIndex) -> Piece {
        self.waiters.remove(w).piece
    }

    // ---- lists ----

    #[inline]
    pub fn push_back(&mut self, list: &mut Fifo<WaiterIndex>, w: WaiterIndex) {
        self.waiters.push_back(list, w);
    }

    #[inline]
    pub fn pop_front(&mut self, list: &mut Fifo<WaiterIndex>) -> Option<WaiterIndex> {
        self.waiters.pop_front(list)
    }

    /// Ends the pieces of the request that waited first in this list, because the transfer has
    /// failed.
    pub fn fail_first(
        &mut self,
        list: &mut Fifo<WaiterIndex>,
        context: &mut ShardContext<'_>,
        error: IoError,
    ) {
        let mut culprit = None;
        let caused_it = |w: &Waiter| *culprit.get_or_insert(w.piece.request) == w.piece.request;
        self.end(list, context, caused_it, Err(error));
    }

    /// Ends the pieces of this list whose data the transfer has moved.
    pub fn end_applied(
        &mut self,
        list: &mut Fifo<WaiterIndex>,
        context: &mut ShardContext<'_>,
        result: Outcome,
    ) {
        self.end(list, context, |w| w.applied, result);
    }

    /// Ends the pieces of a list that `which` selects, in their order.
    fn end(
        &mut self,
        list: &mut Fifo<WaiterIndex>,
        context: &mut ShardContext<'_>,
        mut which: impl FnMut(&Waiter) -> bool,
        result: Outcome,
    ) {
        let mut all = mem::replace(list, Fifo::EMPTY);
        while let Some(w) = self.waiters.pop_front(&mut all) {
            if which(&self.waiters[w]) {
                let piece = self.remove(w);
                context.pieces_done(piece.request, 1, result);
            } else {
                self.waiters.push_back(list, w);
            }
        }
    }

    // ---- for room ----

    pub fn is_any_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Lets the waiter wait for room.
    pub fn starve(&mut self, w: WaiterIndex) {
        self.waiters.push_back(&mut self.starved, w);
    }

    /// Takes the pieces that wait for room, to try them again.
    pub fn take_starved(&mut self) -> Fifo<WaiterIndex> {
        mem::replace(&mut self.starved, Fifo::EMPTY)
    }

    /// The first piece found no room and waits again, alone; puts `rest` after it.
    pub fn starve_behind(&mut self, mut rest: Fifo<WaiterIndex>) {
        let last = self.waiters.pop_front(&mut self.starved).expect("the starved piece");
        self.waiters.push_front(&mut rest, last);
        self.starved = rest;
    }

    /// Makes these the only pieces that wait for room.
    pub fn put_back_starved(&mut self, starved: Fifo<WaiterIndex>) {
        self.starved = starved;
    }

    // ---- until records are void ----

    /// Lets the waiter wait until records are void.
    pub fn park(&mut self, w: WaiterIndex) {
        self.waiters.push_back(&mut self.parked, w);
    }

    /// Lets the pieces whose data is in a failed transfer to the log wait until records are void.
    pub fn park_applied(&mut self, list: &mut Fifo<WaiterIndex>) {
        let mut all = mem::replace(list, Fifo::EMPTY);
        while let Some(w) = self.waiters.pop_front(&mut all) {
            if mem::replace(&mut self.waiters[w].applied, false) {
                self.park(w);
            } else {
                self.waiters.push_back(list, w);
            }
        }
    }

    /// Takes the pieces that wait until records are void, to try them again.
    pub fn take_parked(&mut self) -> Fifo<WaiterIndex> {
        mem::replace(&mut self.parked, Fifo::EMPTY)
    }
}
