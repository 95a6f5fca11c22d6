//! Pieces that wait for room, and how that ends if there is none for long.

use forebay_effect::IoError;

use super::{DESTAGES_FAILED_MAX, Shard, ShardContext};
use crate::slab::Fifo;
use crate::volume::Past;

impl Shard {
    /// Whether there are waiting pieces for which there may now be room.
    #[inline]
    pub fn may_serve(&self) -> bool {
        self.room && self.waiting.is_any_starved()
    }

    /// Evaluates waiting pieces for which there may now be room. Bounded: each is tried once.
    pub fn serve_starved(&mut self, context: &mut ShardContext<'_>) -> bool {
        if !core::mem::take(&mut self.room) || !self.waiting.is_any_starved() {
            return false;
        }
        let mut starved = self.waiting.take_starved();
        while let Some(w) = self.waiting.pop_front(&mut starved) {
            if !self.try_again(context, w) {
                // Still no room: it keeps its place before the rest.
                self.waiting.starve_behind(starved);
                // What its attempt took and gave back is no room for it.
                self.room = false;
                break;
            }
        }
        self.transfers.close_runs(context);
        true
    }

    /// Who waits may try again.
    pub fn call_starved(&mut self) {
        self.room = true;
    }

    /// Only stores that fail can make room (or not any more), which may be `hopeless`.
    pub fn set_jam(&mut self, jam: bool, hopeless: bool) {
        self.room |= self.flash.set_jam(jam, hopeless);
    }

    /// Tells pieces that modify, and wait for room, that they wait in vain, unless they can go past flash.
    pub fn refuse_starved(&mut self, context: &mut ShardContext<'_>) {
        if !self.flash.is_hopeless(&self.blocks, context) {
            return;
        }
        let mut starved = self.waiting.take_starved();
        let mut others = Fifo::EMPTY;
        while let Some(w) = self.waiting.pop_front(&mut starved) {
            let request = self.waiting.piece(w).request;
            let r = &context.front.requests[request];
            if r.op.modifies() {
                let volume = usize::from(r.volume);
                if !self.try_again(context, w) {
                    // (It went back to the starved, of whom there are no others now.)
                    self.waiting.take_starved();
                    if context.front.volumes[volume].past == Past::Opening {
                        // It may, when that is noted.
                        self.waiting.push_back(&mut others, w);
                        continue;
                    }
                    self.waiting.remove(w);
                    context.front.pieces_done(request, 1, Err(IoError::Device));
                }
            } else {
                self.waiting.push_back(&mut others, w);
            }
        }
        self.waiting.put_back_starved(others);
        self.transfers.close_runs(context);
    }

    /// Whether pieces wait for an index entry.
    pub fn waits_for_an_entry(&self) -> bool {
        self.waiting.is_any_starved() && self.blocks.is_full()
    }

    /// No transfer is under way that could make room, and flash takes no more.
    pub(super) fn is_stuck(&self, context: &ShardContext<'_>) -> bool {
        let cannot_leave = self.flash.log_failed() && !self.flash.is_all_past()
            || self.destages_failed >= DESTAGES_FAILED_MAX
            || self.flash.is_hopeless(&self.blocks, context);
        cannot_leave && self.transfers.in_use() == 0
    }
}
