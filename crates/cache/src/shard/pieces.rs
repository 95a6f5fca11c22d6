//! Pieces of requests. Each is evaluated. If it has to wait, it is evaluated again when the wait
//! ends, or when there may be room for it.

use forebay_effect::IoError;
use forebay_flash::BlockKey;
use forebay_flash::sabotage::Bug;

use super::tiers::PieceStep;
use super::transfer::TransferKind;
use super::{Once, Piece};
use super::{Shard, ShardContext};
use crate::slab::{Fifo, TransferIndex, WaiterIndex};
use crate::volume::LogBypass;

/// The result of an evaluation of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Evaluated {
    /// Done, successfully or not.
    Done(Result<(), IoError>),
    /// The piece waits, or a transfer will answer it.
    Pending,
    /// Nothing has happened: there is no room for a waiter. Retry later.
    Full,
}

impl Shard {
    /// Prefetches the data that the end of a transfer will need, first or (`near`) next.
    pub fn prefetch_transfer(&self, t: TransferIndex, near: bool) {
        if let Some(transfer) = self.tiers.transfers.get(t) {
            match near {
                true => _ = self.tiers.blocks.prefetch_entry(transfer.key),
                false => self.tiers.blocks.prefetch(transfer.key),
            }
        }
    }

    /// The shard has evaluated all pieces of a turn: gives the runs being collected to the driver,
    /// fetches the lines that are wanted, and takes the next steps of queues.
    pub fn end_turn(&mut self, context: &mut ShardContext<'_>) {
        self.close_runs(context);
        self.tiers.step_queues(context);
    }

    /// Gives the runs being collected to the driver, and fetches the lines that are wanted.
    pub(super) fn close_runs(&mut self, context: &mut ShardContext<'_>) {
        self.tiers.transfers.close_runs(context);
        self.tiers.fetch_lines(context);
    }

    /// Whether there is a place for another waiting piece.
    #[inline]
    pub fn has_place(&self) -> bool {
        !self.waiting.is_full()
    }

    /// Counts a request of a client.
    #[inline]
    pub fn count_request(&mut self) {
        if let Some(queues) = self.tiers.flash.queues() {
            queues.count_request();
        }
    }

    /// Evaluates a piece of a request that has arrived. The caller ends its calls with
    /// [`Shard::end_turn`].
    pub fn access(&mut self, context: &mut ShardContext<'_>, piece: Piece) -> Evaluated {
        if self.waiting.is_full() {
            return Evaluated::Full;
        }
        let mut piece = piece;
        let step = self.tiers.evaluate(context, &mut piece);
        self.end_or_wait(context, piece, step, None)
    }

    /// Evaluates a waiter again. Returns false if it returned to the list of starved pieces.
    pub(super) fn try_again(
        &mut self,
        context: &mut ShardContext<'_>,
        waiter: WaiterIndex,
    ) -> bool {
        let mut piece = self.waiting.piece(waiter);
        let step = self.tiers.evaluate(context, &mut piece);
        let starved = matches!(step, PieceStep::NoRoom);
        if let Evaluated::Done(result) = self.end_or_wait(context, piece, step, Some(waiter)) {
            context.pieces_done(piece.request, 1, result);
            return true;
        }
        !starved
    }

    fn end_or_wait(
        &mut self,
        context: &mut ShardContext<'_>,
        mut piece: Piece,
        step: PieceStep,
        waiter: Option<WaiterIndex>,
    ) -> Evaluated {
        let applied = matches!(step, PieceStep::Applied(_));
        let list = match step {
            PieceStep::Again => unreachable!("an evaluation repeats until its step is not Again"),
            PieceStep::Done(_) | PieceStep::Joined => {
                if let Some(w) = waiter {
                    self.waiting.remove(w);
                }
                return match step {
                    PieceStep::Done(result) => Evaluated::Done(result),
                    _ => Evaluated::Pending,
                };
            }
            PieceStep::Wait(t) | PieceStep::Applied(t) => {
                context.stats.waits_block += u64::from(!applied);
                let appending = matches!(self.tiers.transfers[t].kind, TransferKind::Append { .. });
                if let (true, false, Some(log)) = (appending, applied, context.log.get_mut()) {
                    // A piece waits for a block in an open batch.
                    log.close_batch();
                }
                Some(t)
            }
            PieceStep::Parked => {
                context.stats.waits_void += 1;
                let w = self.waiting.note(waiter, piece, false);
                self.waiting.park(w);
                return Evaluated::Pending;
            }
            PieceStep::NoRoom => {
                if self.tiers.is_stuck(context) && !context.flash.awaits_void {
                    // No transfer is in progress and no block can leave: the piece fails instead of
                    // waiting forever.
                    if let Some(w) = waiter {
                        self.waiting.remove(w);
                    }
                    self.tiers.room.forget_failed_destages();
                    return Evaluated::Done(Err(IoError::Device));
                }
                context.stats.waits_room += piece.once.count(Once::WAITED_FOR_ROOM);
                if let Some(log) = context.log.get_mut() {
                    log.close_batch();
                    if self.tiers.blocks.is_full() {
                        log.reclaim();
                    }
                }
                None
            }
        };
        let w = self.waiting.note(waiter, piece, applied);
        match list {
            Some(t) => self.waiting.push_back(&mut self.tiers.transfers[t].waiters, w),
            None => {
                // Room that was free before did not help this piece.
                if !self.waiting.is_any_starved() {
                    self.tiers.room.take();
                }
                self.waiting.starve(w);
            }
        }
        Evaluated::Pending
    }

    // ---- for room ----

    /// Whether there may now be room for waiting pieces.
    #[inline]
    pub fn may_serve(&self) -> bool {
        self.tiers.room.is_new() && self.waiting.is_any_starved()
    }

    /// Evaluates waiting pieces for which there may now be room. Bounded: each is tried once.
    pub fn serve_starved(&mut self, context: &mut ShardContext<'_>) -> bool {
        if !self.tiers.room.take() || !self.waiting.is_any_starved() {
            return false;
        }
        let mut starved = self.waiting.take_starved();
        while let Some(w) = self.waiting.pop_front(&mut starved) {
            if !self.try_again(context, w) {
                // Still no room: it keeps its place before the rest.
                self.waiting.starve_behind(starved);
                // Room that its attempt took and gave back is not new room for it.
                self.tiers.room.take();
                break;
            }
        }
        self.close_runs(context);
        true
    }

    /// Lets the pieces that wait for room try again.
    pub fn call_starved(&mut self) {
        self.tiers.room.note();
    }

    /// Called when all shards have forgotten a region. Pieces that wait for an index entry try
    /// again, even if the region had no record of this shard; otherwise the next region would not
    /// be requested.
    pub fn region_forgotten(&mut self, context: &ShardContext<'_>) {
        if self.waits_for_an_entry() && !context.mode.sabotage.is(Bug::EntryWaiterForgotten) {
            self.tiers.room.note();
        }
    }

    /// Fails the modifying pieces that wait for room, except those that can bypass flash.
    pub fn refuse_starved(&mut self, context: &mut ShardContext<'_>) {
        if !self.tiers.is_hopeless(context) {
            return;
        }
        let mut starved = self.waiting.take_starved();
        let mut others = Fifo::EMPTY;
        while let Some(w) = self.waiting.pop_front(&mut starved) {
            let request = self.waiting.piece(w).request;
            let r = &context.front.requests[request];
            if r.op.modifies() {
                let volume = r.volume;
                if !self.try_again(context, w) {
                    // It is back in the list of starved pieces, alone; that list is emptied again.
                    self.waiting.take_starved();
                    if context.volumes[volume].log_bypass == LogBypass::Requested {
                        // It may bypass flash as soon as the log has noted that.
                        self.waiting.push_back(&mut others, w);
                        continue;
                    }
                    self.waiting.remove(w);
                    context.pieces_done(request, 1, Err(IoError::Device));
                }
            } else {
                self.waiting.push_back(&mut others, w);
            }
        }
        self.waiting.put_back_starved(others);
        self.close_runs(context);
    }

    /// Whether pieces wait for an index entry.
    pub fn waits_for_an_entry(&self) -> bool {
        self.waiting.is_any_starved() && self.tiers.blocks.is_full()
    }

    // ---- until records are void ----

    /// Whether a write to the block waits for records to be void.
    pub fn awaits_void(&self, key: BlockKey) -> bool {
        // The log has not yet reported that it could not append the block, or could not make its
        // record void.
        let logs = |t: TransferIndex| {
            let kind = self.tiers.transfers[t].kind;
            matches!(kind, TransferKind::Append { .. } | TransferKind::Activate { poison: true })
        };
        self.tiers.blocks.find(key).is_some_and(|id| {
            self.tiers.blocks[id].is_bound() || self.tiers.blocks[id].transfer().is_some_and(logs)
        })
    }

    /// Evaluates the writes that waited for records to be void.
    pub fn release_parked(&mut self, context: &mut ShardContext<'_>) {
        let mut parked = self.waiting.take_parked();
        while let Some(w) = self.waiting.pop_front(&mut parked) {
            self.try_again(context, w);
        }
        self.close_runs(context);
    }
}
