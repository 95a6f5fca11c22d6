//! The path of a request through the front: its blocks are given to shards, a bounded number at a
//! time and a bounded number in one turn, and the last block to return ends the request.
//!
//! A request that cannot continue is not on a list that every turn walks. It waits for what it
//! needs, the return of its pieces or a place in its shard, and is called when that is available.
//! So the cost of a turn does not depend on how many requests wait.

use forebay_block::{Op, Volume};
use forebay_effect::IoError;
use forebay_flash::BlockKey;

use crate::cleaner::Cleaner;
use crate::holds::HoldReason;
use crate::in_flight::{RequestPlace, RequestStage};
use crate::shard::{Evaluated, Tiers};
use crate::shard::{Once, Piece};
use crate::slab::RequestIndex;
use crate::stores::Stores;
use crate::world::{World, shard_context};

/// Why a request hands out no more blocks in this step.
#[must_use]
enum Halt {
    /// All blocks are handed out.
    AtEnd,
    /// The step has handed out as many blocks as it may.
    Paused,
    /// The volume's dirty blocks fill its share of flash.
    OverShare,
    /// The block has a record, and volumes are about to continue without flash.
    AwaitsVoid,
    /// This shard has no place for another piece that waits.
    Full(usize),
}

impl World {
    /// Whether any request could hand out more blocks now.
    #[inline]
    pub fn may_resume(&self) -> bool {
        let blocked = || self.front.blocked.iter().zip(&self.shards);
        !self.front.running.is_empty()
            || self.front.requests.count(RequestPlace::Blocked) != 0
                && blocked().any(|(list, shard)| !list.is_empty() && shard.has_place())
    }

    /// Lets each stopped request that can continue take one step.
    pub fn resume(&mut self, stores: &mut Stores, cleaner: &Cleaner) -> bool {
        let last = self.front.running.last();
        let mut any = false;
        for n in 0..self.shards.len() {
            let last = self.front.blocked[n].last();
            while self.shards[n].has_place()
                && let Some(request) = self.front.unblock(n)
            {
                any |= self.step(stores, cleaner, request);
                if Some(request) == last {
                    break;
                }
            }
        }
        if last.is_none() {
            return any;
        }
        while let Some(request) = self.front.pop_running() {
            any |= self.step(stores, cleaner, request);
            if Some(request) == last {
                break;
            }
        }
        any
    }

    /// Takes one step of a request; returns whether it did anything.
    fn step(&mut self, stores: &mut Stores, cleaner: &Cleaner, request: RequestIndex) -> bool {
        let (id, before) = (self.front.requests[request].id, self.front.requests[request].cursor);
        self.advance(stores, cleaner, request);
        let still = self.front.requests.get(request).filter(|r| r.id == id);
        still.is_none_or(|r| r.cursor != before)
    }

    /// Hands the next blocks of a request to their shards.
    pub fn advance(&mut self, stores: &mut Stores, cleaner: &Cleaner, request: RequestIndex) {
        let zeroes = zeroes(self.front.requests[request].op);
        if zeroes && !self.front.may_zero(&mut self.volumes, request) {
            self.stats.waits_zeroing += 1;
            return;
        }
        let mut last_shard = None;
        let halt = self.hand_out(request, &mut last_shard);
        if let Some(n) = last_shard {
            self.shards[n].end_turn(&mut shard_context!(self));
        }
        let r = &self.front.requests[request];
        debug_assert!(r.outstanding <= self.config.request_blocks_max);
        match halt {
            Halt::OverShare => {
                self.hold_for_share(request);
                stores.review_failing(self, cleaner);
            }
            Halt::AwaitsVoid => self.hold(request),
            // A request with many pieces in progress waits for them first.
            Halt::Full(n) if self.front.may_step(request) => {
                self.stats.waits_place += 1;
                self.front.block(request, n);
            }
            Halt::Full(_) | Halt::Paused => {
                self.stats.pauses += u64::from(self.front.go_on(request));
            }
            Halt::AtEnd if r.outstanding == 0 => self.finish(request),
            Halt::AtEnd => self.front.requests.enter(request, RequestPlace::Returning),
        }
    }

    /// Hands out blocks of a request until something stops it. `last_shard` is the shard that has
    /// received the last of these blocks, and whose runs are open.
    fn hand_out(&mut self, request: RequestIndex, last_shard: &mut Option<usize>) -> Halt {
        let r = &self.front.requests[request];
        let (modifies, zeroes, volume) = (r.op.modifies(), zeroes(r.op), r.volume);
        let mut left = self.config.step_blocks;
        while left > 0 && !self.front.requests[request].is_at_end() {
            left -= 1;
            if modifies && self.is_over_share(volume) {
                return Halt::OverShare;
            }
            let (n, piece) = self.next_piece(request);
            let length = u64::from(piece.length);
            let key = BlockKey::new(volume, piece.block);
            if modifies && self.flash.awaits_void && self.shards[n].awaits_void(key) {
                self.stats.waits_void += 1;
                return Halt::AwaitsVoid;
            }
            self.front.requests[request].outstanding += 1;
            let mut context = shard_context!(self);
            if let Some(last) = last_shard.replace(n)
                && last != n
            {
                self.shards[last].end_turn(&mut context);
            }
            let access = self.shards[n].access(&mut context, piece);
            let r = &mut self.front.requests[request];
            match access {
                Evaluated::Pending => {
                    r.cursor += length;
                    let further = if zeroes { self.zero_further(request, n, left) } else { 0 };
                    left -= further;
                    if modifies {
                        self.volumes.pieces_begun(volume, 1 + further);
                    }
                }
                Evaluated::Done(result) => {
                    r.outstanding -= 1;
                    r.cursor += length;
                    if let Err(e) = result {
                        r.error.get_or_insert(e);
                    }
                }
                Evaluated::Full => {
                    r.outstanding -= 1;
                    return Halt::Full(n);
                }
            }
        }
        match self.front.requests[request].is_at_end() {
            true => Halt::AtEnd,
            false => Halt::Paused,
        }
    }

    /// The shard of a request's next block, and the part of the request that lies in that block.
    #[inline]
    fn next_piece(&self, request: RequestIndex) -> (usize, Piece) {
        let (r, size) = (&self.front.requests[request], self.config.block_size);
        let start = size.within(r.cursor);
        let piece = Piece {
            request,
            block: size.index_of(r.cursor).0,
            start: start as u32,
            length: (size.bytes() - start).min(r.end - r.cursor) as u32,
            counted: false,
            told: false,
            once: Once::default(),
            around: None,
        };
        (self.shard_of(r.volume, r.cursor), piece)
    }

    /// Hands out the next blocks of a zeroing request that can be zeroed as one range with the
    /// previous block: at most `blocks`, and none beyond the stripe, so that they belong to the
    /// same shard. A stripe of which nothing is cached costs two steps, not one for each block.
    fn zero_further(&mut self, request: RequestIndex, shard: usize, blocks: u32) -> u32 {
        let size = self.config.block_size;
        let r = &self.front.requests[request];
        let shift = self.config.stripe_shift;
        let stripe_end = (((r.cursor - 1) >> shift) + 1) << shift;
        let bytes = r.end.min(stripe_end).saturating_sub(r.cursor);
        let blocks = u64::from(blocks).min(bytes >> size.shift()) as u32;
        if blocks == 0 {
            return 0;
        }
        let key = BlockKey::new(r.volume, size.index_of(r.cursor).0);
        let Tiers { transfers, blocks: known, .. } = &mut self.shards[shard].tiers;
        let more = transfers.zero_further(known, &mut shard_context!(self), key, request, blocks);
        let r = &mut self.front.requests[request];
        r.outstanding += more;
        r.cursor += u64::from(more) << size.shift();
        more
    }

    /// Holds a request until no reason to hold it is left.
    pub fn hold(&mut self, request: RequestIndex) {
        self.holds.push(&mut self.front.requests, request);
    }

    /// Removes a procedure's reason to hold requests: requests that nothing else holds continue.
    pub fn unhold(&mut self, reason: HoldReason) {
        if self.holds.remove(reason) {
            self.release_held();
        }
    }

    /// Lets held requests continue, except those that must still be held.
    pub fn release_held(&mut self) {
        let mut held = self.holds.take_requests();
        while let Some(request) = self.front.requests.pop(&mut held) {
            let op = self.front.requests[request].op;
            if self.is_held(op) {
                self.hold(request);
            } else if op == Op::Flush {
                self.begin_flush(request);
            } else {
                // Some of its pieces may be in progress.
                self.front.go_on(request);
            }
        }
    }

    /// Whether another modifying piece has to wait for the volume's share.
    #[inline]
    pub fn is_over_share(&self, volume: Volume) -> bool {
        self.volumes.shares.is_over(self.volumes[volume].on_flash_or_coming())
            && self.config.write_policy.write_back
            && self.lifecycle.is_ready()
            && !self.flash.is_lost()
    }

    /// Holds the rest of a request until its volume has fewer dirty blocks than its share.
    pub fn hold_for_share(&mut self, request: RequestIndex) {
        let volume = self.front.requests[request].volume;
        self.front.requests.push(&mut self.volumes[volume].share_waiters, request);
        self.stats.waits_share += 1;
    }

    /// Lets requests continue that wait for their volume's share: one of each volume under its
    /// share. Returns whether there was any.
    pub fn release_under_share(&mut self) -> bool {
        let mut any = false;
        if self.front.requests.count(RequestPlace::OverShare) > 0 {
            for volume in self.volumes.numbers() {
                any |= !self.is_over_share(volume) && self.release_one(volume);
            }
        }
        any
    }

    /// Lets the first request that waits for the volume's share continue.
    fn release_one(&mut self, volume: Volume) -> bool {
        let held = &mut self.volumes[volume].share_waiters;
        let Some(request) = self.front.requests.pop(held) else { return false };
        if self.is_held(self.front.requests[request].op) {
            self.hold(request);
        } else {
            self.front.go_on(request);
        }
        true
    }

    /// Fails everything that waits for room on flash, of all volumes: appends that are in no batch
    /// yet, and pieces of requests that cannot bypass flash.
    pub fn refuse_starved(&mut self) {
        if self.somebody_waits() {
            self.stats.jams += 1;
            if let Some(log) = &mut self.log {
                log.take_back();
            }
        }
        for n in 0..self.shards.len() {
            self.shards[n].refuse_starved(&mut shard_context!(self));
        }
    }

    /// Ends all requests that wait for the volume's share of flash with an error.
    pub fn refuse_held(&mut self, volume: Volume, error: IoError) {
        let mut held = self.volumes[volume].share_waiters.take();
        while let Some(request) = self.front.requests.pop(&mut held) {
            let r = &mut self.front.requests[request];
            (r.error, r.cursor) = (Some(error), r.end);
            // Its pieces in progress end first.
            match r.outstanding {
                0 => self.reply(request),
                _ => self.front.requests.enter(request, RequestPlace::Returning),
            }
        }
    }

    /// Checks, between calls, that where each request is agrees with the lists and with all counts.
    ///
    /// # Panics
    /// If they disagree.
    pub fn check_requests(&self) {
        let World { front, volumes, holds, .. } = self;
        let lists = [&front.running, &front.finished, holds.requests()].into_iter();
        let of_volumes = volumes.iter().flat_map(|(_, v)| [&v.share_waiters, &v.zeroings_waiting]);
        let flushing =
            volumes.iter().flat_map(|(_, v)| v.flushing.active.iter().chain(&v.flushing.next));
        front.requests.check(lists.chain(&front.blocked).chain(of_volumes), flushing.copied());
        for (volume, v) in volumes.iter() {
            let (mut clients, mut pieces, mut zeroings) = (0, 0, 0);
            for (request, r) in front.requests.iter().filter(|(_, r)| r.volume == volume) {
                clients += u32::from(r.is_clients());
                let counts = r.op.modifies() && r.stage == RequestStage::Pieces;
                pieces += if counts { r.outstanding } else { 0 };
                zeroings += u32::from(r.zeroes);
                assert!(
                    !r.zeroes || v.zeroings.contains(&request),
                    "not among the zeroings: {r:?}"
                );
                let fits = match r.place() {
                    RequestPlace::Paused => !front.may_step(request),
                    RequestPlace::Running | RequestPlace::Blocked => front.may_step(request),
                    _ => true,
                };
                assert!(fits, "more or fewer pieces are out than should be: {r:?}");
            }
            let zeroings_known = v.zeroings.len() as u32;
            assert_eq!((clients, pieces, zeroings), (v.requests, v.pieces, zeroings_known));
        }
        volumes.shares.check(volumes.iter().map(|(_, v)| v.on_flash_or_coming()));
        for (n, list) in front.blocked.iter().enumerate() {
            let first = list.first().map(|request| self.next_piece(request).0);
            assert!(first.is_none_or(|shard| shard == n), "blocked by another shard");
        }
    }
}

/// Whether an operation makes its range read as zeroes.
fn zeroes(op: Op) -> bool {
    matches!(op, Op::Trim | Op::WriteZeroes)
}
