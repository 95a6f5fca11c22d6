//! The front: requests in flight.
//!
//! A request is split into pieces, one for each block, for a bounded number of blocks at a time.
//! The pieces go to shards, and the last piece to return ends the request. A request that promises
//! durability (FLUSH, FUA) then waits for the syncs it needs (`volumes.rs`).

use forebay_block::{Flags, Op, Request};
use forebay_effect::{Effect, EffectQueue, IoError, Outcome, RequestId};

use crate::cache::VOLUMES_MAX;
use crate::config::{Bypass, CacheConfig};
use crate::in_flight::{InFlight, RequestList, RequestPlace, RequestStage, RequestState};
use crate::slab::RequestIndex;
use crate::volume::VolumeState;
use crate::volumes::Volumes;

/// The identity of the cache's own requests, such as the flush of a clean stop.
pub(crate) const INTERNAL: RequestId = RequestId(u64::MAX);

/// The requests in flight; see the module documentation.
#[derive(Debug)]
pub(crate) struct Front {
    pub requests: InFlight,
    /// Requests that can hand out more blocks.
    pub running: RequestList,
    /// By shard: requests that wait for a place in the shard for their next block.
    pub blocked: Box<[RequestList]>,
    /// Largest number of outstanding pieces with which a request may take another step.
    pieces_left_max: u32,
    /// Bytes that a request hands out in one step.
    step_bytes: u64,
    /// Requests whose pieces have all returned.
    pub finished: RequestList,
    /// The cache's own flushes that have ended.
    pub internal_done: Vec<Outcome>,
}

impl Front {
    pub fn new(config: &CacheConfig) -> Self {
        Front {
            // The cache's own flushes, one a volume, always find a place.
            requests: InFlight::new(config.requests_max + VOLUMES_MAX as u32),
            running: RequestList::new(RequestPlace::Running),
            blocked: (0..config.shards).map(|_| RequestList::new(RequestPlace::Blocked)).collect(),
            pieces_left_max: config.request_blocks_max - config.step_blocks,
            step_bytes: u64::from(config.step_blocks) << config.block_size.shift(),
            finished: RequestList::new(RequestPlace::Finished),
            internal_done: Vec::new(),
        }
    }

    /// Registers a request, or returns the error with which to answer it at once.
    pub fn admit(
        &mut self,
        volumes: &mut Volumes,
        bypass: Bypass,
        id: RequestId,
        request: &Request,
    ) -> Result<RequestIndex, IoError> {
        let Request { volume, op, offset, length, .. } = *request;
        let state = volumes.get_mut(volume).ok_or(IoError::Invalid)?;
        let end = offset.checked_add(length).ok_or(IoError::Invalid)?;
        if op != Op::Flush && (end > state.size || (offset | length) & 511 != 0) {
            return Err(IoError::Invalid);
        }
        if op.modifies() && state.read_only {
            return Err(IoError::ReadOnly);
        }
        let bypass = state.is_streaming(op, (offset, length), bypass);
        // The counters include only requests of clients.
        if id != INTERNAL {
            let stats = &mut state.stats;
            match op {
                Op::Read if request.is_prefetch() => stats.prefetches += 1,
                Op::Read => {
                    stats.reads += 1;
                    stats.read_bytes += length;
                }
                Op::Write => {
                    stats.writes += 1;
                    stats.write_bytes += length;
                }
                Op::Trim | Op::WriteZeroes => stats.zeroes += 1,
                Op::Flush => stats.flushes += 1,
            }
            state.requests += 1;
        }
        Ok(self.requests.insert(RequestState::new(id, request, bypass)))
    }

    /// Notes that `count` pieces of a request have ended.
    pub fn pieces_done(
        &mut self,
        volumes: &mut Volumes,
        request: RequestIndex,
        count: u32,
        result: Outcome,
    ) {
        let state = &mut self.requests[request];
        assert!(state.outstanding >= count, "more pieces completed than were handed out");
        state.outstanding -= count;
        if state.stage == RequestStage::Pieces && state.op.modifies() {
            volumes.pieces_ended(state.volume, count);
        }
        if let Err(e) = result {
            state.error.get_or_insert(e);
        }
        match state.place() {
            RequestPlace::Paused if state.outstanding <= self.pieces_left_max => self.run(request),
            RequestPlace::Returning if state.outstanding == 0 => {
                self.requests.push(&mut self.finished, request);
            }
            _ => {}
        }
    }

    /// Whether a request may hand out another step.
    pub fn may_step(&self, request: RequestIndex) -> bool {
        self.requests[request].outstanding <= self.pieces_left_max
    }

    /// A request has taken a step that was not its last. Its next step follows at once, or when
    /// enough of its pieces have returned; returns true in the second case.
    pub fn go_on(&mut self, request: RequestIndex) -> bool {
        let paused = !self.may_step(request);
        match paused {
            true => self.requests.enter(request, RequestPlace::Paused),
            false => self.run(request),
        }
        paused
    }

    /// Lets the request take its next step in the coming turn.
    pub fn run(&mut self, request: RequestIndex) {
        self.requests.push(&mut self.running, request);
    }

    /// Takes the request whose step is next.
    pub fn pop_running(&mut self) -> Option<RequestIndex> {
        self.requests.pop(&mut self.running)
    }

    /// Takes the next request whose pieces have all returned.
    pub fn pop_finished(&mut self) -> Option<RequestIndex> {
        self.requests.pop(&mut self.finished)
    }

    /// Lets the request wait for a place in a shard for its next piece.
    pub fn block(&mut self, request: RequestIndex, shard: usize) {
        self.requests.push(&mut self.blocked[shard], request);
    }

    /// Takes the request that has waited longest for a place in a shard.
    pub fn unblock(&mut self, shard: usize) -> Option<RequestIndex> {
        self.requests.pop(&mut self.blocked[shard])
    }

    /// Whether a trim or zeroing may hand out blocks. It may not while another one of its volume
    /// does so for overlapping blocks, or waits for that. One whose blocks are all handed out in
    /// one step always may.
    ///
    /// Two overlapping ones would wait for each other's ranges block by block, and would zero the
    /// store in as many small operations.
    pub fn may_zero(&mut self, volumes: &mut Volumes, request: RequestIndex) -> bool {
        let r = &self.requests[request];
        if r.zeroes || r.end - r.offset <= self.step_bytes {
            return true;
        }
        let volume = &mut volumes[r.volume];
        if volume.zeroings_waiting.is_empty() && !self.meets_a_zeroing(volume, request) {
            self.begin_zeroing(volume, request);
            return true;
        }
        self.requests.push(&mut volume.zeroings_waiting, request);
        false
    }

    fn begin_zeroing(&mut self, volume: &mut VolumeState, request: RequestIndex) {
        self.requests[request].zeroes = true;
        volume.zeroings.push(request);
    }

    fn meets_a_zeroing(&self, volume: &VolumeState, request: RequestIndex) -> bool {
        let r = &self.requests[request];
        volume.zeroings.iter().any(|&other| {
            let other = &self.requests[other];
            r.offset < other.end && other.offset < r.end
        })
    }

    /// Ends a zeroing of the volume: those that waited for it continue, in order.
    fn end_zeroing(&mut self, volume: &mut VolumeState, request: RequestIndex) {
        volume.zeroings.retain(|&other| other != request);
        while let Some(next) = volume.zeroings_waiting.first()
            && !self.meets_a_zeroing(volume, next)
        {
            self.requests.pop(&mut volume.zeroings_waiting);
            self.begin_zeroing(volume, next);
            self.run(next);
        }
    }

    /// Answers a request and forgets it.
    pub fn reply(
        &mut self,
        volumes: &mut Volumes,
        request: RequestIndex,
        effects: &mut EffectQueue,
    ) {
        let state = self.requests.remove(request);
        if state.zeroes {
            self.end_zeroing(&mut volumes[state.volume], request);
        }
        if !state.is_clients() {
            self.internal_done.push(state.error.map_or(Ok(()), Err));
            return;
        }
        volumes[state.volume].requests -= 1;
        if state.error.is_some() {
            volumes[state.volume].stats.errors += 1;
        }
        let result = state.error.map_or(Ok(()), Err);
        effects.push(Effect::Reply { request: state.id, result });
    }

    /// Whether a zeroing request allows a hole.
    pub fn may_punch(&self, request: RequestIndex) -> bool {
        let r = &self.requests[request];
        r.op == Op::Trim || !r.flags.contains(Flags::NO_HOLE)
    }
}
