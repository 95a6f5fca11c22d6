//! The last stage of a request that promises durability: a flush, then syncs.
//!
//! A flush makes the dirty blocks of a volume durable, round by round. Requests that arrive during
//! a round join the next one.

use forebay_block::{Flags, Op, Request, Volume};
use forebay_flash::sabotage::Bug;

use crate::front::INTERNAL;
use crate::in_flight::{RequestPlace, RequestStage};
use crate::shard::flush::FlushState;
use crate::slab::RequestIndex;
use crate::ticket::Ticket;
use crate::volume::SyncWaiter;
use crate::world::{World, shard_context};

/// Number of blocks of a flush that a shard starts in one turn.
const FLUSH_BLOCKS: u32 = 64;

impl World {
    /// Begins the cache's own flush of each volume.
    pub fn flush_all(&mut self) {
        for volume in self.volumes.numbers() {
            let flush = Request::new(self.now, volume, Op::Flush, 0, 0);
            let flush = self.admit(INTERNAL, &flush);
            self.begin_flush(flush.expect("a flush of an attached volume"));
        }
    }

    /// Lets a flush request join the next round of its volume.
    pub fn begin_flush(&mut self, request: RequestIndex) {
        let volume = self.front.requests[request].volume;
        if !self.config.write_policy.write_back {
            return self.make_durable(request);
        }
        self.front.requests.enter(request, RequestPlace::Flushing);
        let flushing = &mut self.volumes[volume].flushing;
        flushing.next.push(request);
        if flushing.active.is_empty() {
            self.begin_flush_round(volume);
        }
    }

    fn begin_flush_round(&mut self, volume: Volume) {
        let flushing = &mut self.volumes[volume].flushing;
        core::mem::swap(&mut flushing.active, &mut flushing.next);
        (flushing.shards_left, flushing.failed) = (self.shards.len() as u32, false);
        for shard in &mut self.shards {
            let tiers = &mut shard.tiers;
            tiers.flushes.begin(&mut tiers.blocks, volume);
        }
        self.volumes.flushing.insert(volume);
        self.step_flushes();
    }

    pub fn step_flushes(&mut self) -> bool {
        let mut any = false;
        for volume in self.volumes.flushing.iter() {
            for n in 0..self.shards.len() {
                let tiers = &mut self.shards[n].tiers;
                let state = tiers.flush_step(&mut shard_context!(self), volume, FLUSH_BLOCKS);
                let flushing = &mut self.volumes[volume].flushing;
                match state {
                    FlushState::Done { failed } => {
                        flushing.shards_left -= 1;
                        flushing.failed |= failed;
                        any = true;
                    }
                    FlushState::More => any = true,
                    FlushState::Idle | FlushState::Waiting => {}
                }
            }
            if self.volumes[volume].flushing.shards_left == 0 {
                self.end_flush_round(volume);
                any = true;
            }
        }
        any
    }

    fn end_flush_round(&mut self, volume: Volume) {
        self.volumes.flushing.remove(volume);
        let flushing = &mut self.volumes[volume].flushing;
        let failed = flushing.failed;
        let mut active = core::mem::take(&mut flushing.active);
        for request in active.drain(..) {
            self.front.requests.enter(request, RequestPlace::InHand);
            if failed {
                let r = &mut self.front.requests[request];
                r.error.get_or_insert(forebay_effect::IoError::Device);
                if self.may_repeat(request) {
                    self.front.requests[request].error = None;
                    self.repeat_last_stage(request);
                } else {
                    self.reply(request);
                }
            } else {
                self.make_durable(request);
            }
        }
        let flushing = &mut self.volumes[volume].flushing;
        flushing.active = active;
        if !flushing.next.is_empty() {
            self.begin_flush_round(volume);
        }
    }

    /// Called when all pieces, or all syncs, of a request have returned.
    pub fn finish(&mut self, request: RequestIndex) {
        let r = &self.front.requests[request];
        let durable = r.op.modifies() && r.flags.contains(Flags::FUA);
        if r.stage == RequestStage::Pieces && durable && r.error.is_none() {
            return self.make_durable(request);
        }
        if r.again && r.error.is_none() {
            return self.repeat_last_stage(request);
        }
        self.reply(request);
    }

    /// Begins the last stage of a request that promises durability.
    pub fn make_durable(&mut self, request: RequestIndex) {
        let r = &mut self.front.requests[request];
        r.stage = RequestStage::Syncs;
        let volume = r.volume;
        // A failed log need not be synced for a volume whose store has all data.
        let without = self.flash.without().contains(volume)
            || self.flash.is_lost() && !self.volumes[volume].is_dirty();
        let logs = self.config.write_policy.write_back && !without;
        if let Some(log) = self.log.as_mut().filter(|_| logs) {
            self.front.requests[request].outstanding += 1;
            log.sync(Ticket::Request(request).encode());
        }
        if self.volumes[volume].owes_sync() && !self.mode.sabotage.is(Bug::BackingSyncSkipped) {
            self.front.requests[request].outstanding += 1;
            self.volumes.sync(volume, SyncWaiter::Request(request), &mut self.effects);
        }
        match self.front.requests[request].outstanding {
            0 => self.reply(request),
            _ => self.front.requests.enter(request, RequestPlace::Returning),
        }
    }

    /// Whether a request that the log could not make durable waits instead of failing.
    pub fn may_repeat(&self, request: RequestIndex) -> bool {
        self.flash.awaits_void && self.front.requests[request].id != INTERNAL
    }

    /// Lets the request repeat its last stage; if volumes are about to bypass flash, it waits until
    /// they do.
    pub fn repeat_last_stage(&mut self, request: RequestIndex) {
        let r = &mut self.front.requests[request];
        (r.again, r.stage) = (false, RequestStage::Pieces);
        let op = r.op;
        self.stats.waits_void += 1;
        match op {
            _ if self.flash.awaits_void => self.hold(request),
            Op::Flush => self.begin_flush(request),
            _ => self.front.run(request),
        }
    }
}
