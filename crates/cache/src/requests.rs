//! The way of a request through the front: its blocks are handed to shards, a bounded number in
//! one go and a bounded number at a time, and the last that comes back ends it.
//!
//! A request that cannot go on is on no list that every turn goes through. It waits for what it
//! needs (the return of its own pieces, or a place in its shard) and is called when that is there:
//! what a turn costs does not depend on how many wait.

use forebay_block::{Flags, Op};
use forebay_flash::BlockKey;
use forebay_flash::sabotage::Bug;

use crate::cache::Cache;
use crate::front::{Front, Stage};
use crate::shard::{Access, ShardContext};
use crate::slab::{Fifo, NONE};
use crate::volume::SyncWaiter;
use crate::waiters::Piece;
use crate::world::around;

impl Cache {
    /// Whether there are requests that could hand out further blocks now.
    #[inline]
    pub(crate) fn may_resume(&self) -> bool {
        let blocked = || self.world.front.blocked.iter().zip(&self.world.shards);
        !self.world.front.running.is_empty()
            || self.world.front.blocked_count != 0
                && blocked().any(|(list, shard)| !list.is_empty() && shard.has_place())
    }

    /// Requests that stopped half-way and can go on, each one step.
    pub(crate) fn resume(&mut self) -> bool {
        let last = self.world.front.running.tail;
        let mut any = false;
        for n in 0..self.world.shards.len() {
            let last = self.world.front.blocked[n].tail;
            while self.world.shards[n].has_place()
                && let Some(request) = self.world.front.unblock(n)
            {
                any |= self.step(request);
                if request == last {
                    break;
                }
            }
        }
        if last == NONE {
            return any;
        }
        while let Some(request) = Self::pop(&mut self.world.front, |f| &mut f.running) {
            any |= self.step(request);
            if request == last {
                break;
            }
        }
        any
    }

    /// One step of a request; whether that came to anything.
    fn step(&mut self, request: u32) -> bool {
        let (id, before) =
            (self.world.front.requests[request].id, self.world.front.requests[request].cursor);
        self.advance(request);
        let still = self.world.front.requests.get(request).filter(|r| r.id == id);
        still.is_none_or(|r| r.cursor != before)
    }

    /// Hands the next blocks of a request to their shards.
    pub(crate) fn advance(&mut self, request: u32) {
        let zeroes = matches!(self.world.front.requests[request].op, Op::Trim | Op::WriteZeroes);
        if zeroes && !self.world.front.may_zero(request) {
            self.world.stats.waits_zeroing += 1;
            return;
        }
        let size = self.world.config.block_size;
        let (mut last_shard, mut full, mut held) = (None, false, false);
        let mut held_for_void = false;
        let mut left = self.world.config.step_blocks;
        while left > 0 {
            left -= 1;
            let r = &mut self.world.front.requests[request];
            if r.cursor == r.end {
                break;
            }
            let (modifies, v) = (r.op.modifies(), usize::from(r.volume));
            held = modifies && self.is_over_share(v);
            if held {
                break;
            }
            let r = &mut self.world.front.requests[request];
            let start = size.within(r.cursor);
            let length = (size.bytes() - start).min(r.end - r.cursor);
            let piece = Piece {
                request,
                block: size.index_of(r.cursor).0,
                start: start as u32,
                length: length as u32,
                counted: false,
                told: false,
                around: None,
            };
            let (volume, cursor) = (r.volume, r.cursor);
            r.outstanding += 1;
            let n = self.shard_of(volume, cursor);
            if modifies && self.holds_for_void() {
                let key = BlockKey::new(volume, size.index_of(cursor).0);
                if self.world.shards[n].awaits_void(key) {
                    self.world.front.requests[request].outstanding -= 1;
                    self.world.stats.waits_void += 1;
                    held_for_void = true;
                    break;
                }
            }
            let mut around = around!(self.world);
            if let Some(last) = last_shard.replace(n)
                && last != n
            {
                self.world.shards[last].close_runs(&mut around);
            }
            let access = self.world.shards[n].access(&mut around, piece);
            let r = &mut self.world.front.requests[request];
            match access {
                Access::Pending => {
                    r.cursor += length;
                    let further = if zeroes { self.zero_further(request, n, left) } else { 0 };
                    left -= further;
                    if modifies {
                        self.world.front.volumes[usize::from(volume)].pieces += 1 + further;
                    }
                }
                Access::Done(result) => {
                    r.outstanding -= 1;
                    r.cursor += length;
                    if let Err(e) = result {
                        r.error.get_or_insert(e);
                    }
                }
                Access::Full => {
                    r.outstanding -= 1;
                    full = true;
                    break;
                }
            }
        }
        if let Some(n) = last_shard {
            self.world.shards[n].close_runs(&mut around!(self.world));
        }
        let r = &self.world.front.requests[request];
        debug_assert!(r.outstanding <= self.world.config.request_blocks_max);
        if held {
            self.hold_for_share(request);
        } else if held_for_void {
            self.hold(request);
        } else if r.cursor < r.end {
            match last_shard {
                // One with much under way waits for its own pieces first.
                Some(n) if full && self.world.front.may_step(request) => {
                    self.world.stats.waits_place += 1;
                    self.world.front.block(request, n);
                }
                _ => self.world.stats.pauses += u64::from(self.world.front.go_on(request)),
            }
        } else if r.outstanding == 0 {
            self.finish(request);
        }
    }

    /// Hands out the next blocks of a zeroing request, as many as are zeroed as a range with the one
    /// before; at most `blocks`, and none beyond the extent, so that they belong to the same shard.
    /// An extent of which nothing is cached costs two steps and not one a block.
    fn zero_further(&mut self, request: u32, shard: usize, blocks: u32) -> u32 {
        let size = self.world.config.block_size;
        let r = &self.world.front.requests[request];
        let shift = self.world.config.extent_shift;
        let extent_end = (((r.cursor - 1) >> shift) + 1) << shift;
        let bytes = r.end.min(extent_end).saturating_sub(r.cursor);
        let blocks = u64::from(blocks).min(bytes >> size.shift()) as u32;
        if blocks == 0 {
            return 0;
        }
        let key = BlockKey::new(r.volume, size.index_of(r.cursor).0);
        let shard = &mut self.world.shards[shard];
        let more = shard.zero_further(&mut around!(self.world), key, request, blocks);
        let r = &mut self.world.front.requests[request];
        r.outstanding += more;
        r.cursor += u64::from(more) << size.shift();
        more
    }

    /// All pieces, or all syncs, of a request are back.
    pub(crate) fn finish(&mut self, request: u32) {
        let r = &self.world.front.requests[request];
        let durable = r.op.modifies() && r.flags.contains(Flags::FUA);
        if r.stage == Stage::Pieces && durable && r.error.is_none() {
            return self.make_durable(request);
        }
        if r.again && r.error.is_none() {
            return self.repeat_last_stage(request);
        }
        self.world.front.reply(request, &mut self.world.effects);
    }

    /// The last stage of a request that promises durability.
    pub(crate) fn make_durable(&mut self, request: u32) {
        let r = &mut self.world.front.requests[request];
        r.stage = Stage::Syncing;
        let volume = r.volume;
        let v = usize::from(volume);
        // Of a log that has failed nothing is needed where all is on the store.
        let without =
            self.goes_past(v) || self.world.log_lost && !self.world.front.volumes[v].is_dirty();
        let logs = self.world.config.write_policy.write_back && !without;
        if let Some(log) = self.world.log.as_mut().filter(|_| logs) {
            self.world.front.requests[request].outstanding += 1;
            log.sync(u64::from(request));
        }
        if self.world.front.owes_sync(volume)
            && !self.world.front.sabotage.is(Bug::BackingSyncSkipped)
        {
            self.world.front.requests[request].outstanding += 1;
            self.world.front.sync(volume, SyncWaiter::Request(request), &mut self.world.effects);
        }
        if self.world.front.requests[request].outstanding == 0 {
            self.world.front.reply(request, &mut self.world.effects);
        }
    }

    /// Takes the first of a list of requests.
    pub(crate) fn pop(front: &mut Front, list: fn(&mut Front) -> &mut Fifo) -> Option<u32> {
        let mut fifo = *list(front);
        let request = front.requests.pop_front(&mut fifo);
        *list(front) = fifo;
        request
    }
}
