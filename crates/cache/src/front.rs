//! The front: requests in flight.
//!
//! A request is split into pieces, one for each block, for a bounded number
//! of blocks at a time. The pieces go to shards, and the last piece to return ends the request. A
//! request that promises durability (FLUSH, FUA) then waits for the syncs it needs (`volumes.rs`).

use forebay_block::{Flags, Op, Request, Volume};
use forebay_effect::{Effect, EffectQueue, IoError, Outcome, RequestId};

use crate::cache::VOLUMES_MAX;
use crate::config::{Bypass, CacheConfig};
use crate::slab::{Fifo, Linked, RequestIndex, Slab};
use crate::volume::VolumeState;
use crate::volumes::Volumes;

/// The name of the cache's own requests, such as the flush of a clean stop.
pub(crate) const INTERNAL: RequestId = RequestId(u64::MAX);

/// A request in flight.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub id: RequestId,
    pub volume: Volume,
    pub op: Op,
    pub flags: Flags,
    pub offset: u64,
    pub end: u64,
    /// First byte not yet handed to a shard.
    pub cursor: u64,
    /// Pieces handed out and not returned; for a request in its last stage, syncs it waits for.
    pub outstanding: u32,
    pub error: Option<IoError>,
    pub stage: RequestStage,
    /// It continues when enough of its pieces have returned.
    paused: bool,
    /// The log failed before the request was durable: it repeats its last stage.
    pub again: bool,
    /// It is one of its volume's [`zeroings`](VolumeState::zeroings).
    zeroes: bool,
    /// It bypasses the cache, as part of a sequential stream.
    pub bypass: bool,
    next: RequestIndex,
}

/// The stage of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestStage {
    /// Its pieces are in progress.
    Pieces,
    /// A flush waits for dirty blocks to leave DRAM.
    Flushing,
    /// It waits for syncs.
    Syncing,
}

impl RequestState {
    /// Whether all of it has been handed to shards.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.cursor == self.end
    }
}

impl Linked<RequestIndex> for RequestState {
    fn next(&mut self) -> &mut RequestIndex {
        &mut self.next
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Front {
    pub requests: Slab<RequestIndex, RequestState>,
    /// Requests that can hand out more blocks.
    pub running: Fifo<RequestIndex>,
    /// By shard: requests that wait for a place in the shard for their next block.
    pub blocked: Box<[Fifo<RequestIndex>]>,
    /// Their number.
    pub blocked_count: u32,
    /// Most pieces that a request may have out when it takes another step.
    pieces_left_max: u32,
    /// Bytes that a request hands out in one step.
    step_bytes: u64,
    /// Requests whose pieces have all returned.
    pub finished: Fifo<RequestIndex>,
    /// Trims and zeroings that have not begun and wait for others of the same blocks.
    pub zeroings_waiting: u32,
    /// Modifying requests and flushes of clients in flight, including held ones.
    pub modifying: u32,
    /// The cache's own flushes that have ended.
    pub internal_done: Vec<Outcome>,
}

impl Front {
    pub fn new(config: &CacheConfig) -> Self {
        Front {
            // The cache's own flushes, one a volume, always find a place.
            requests: Slab::new(config.requests_max + VOLUMES_MAX as u32),
            running: Fifo::EMPTY,
            blocked: (0..config.shards).map(|_| Fifo::EMPTY).collect(),
            blocked_count: 0,
            pieces_left_max: config.request_blocks_max - config.step_blocks,
            step_bytes: u64::from(config.step_blocks) << config.block_size.shift(),
            finished: Fifo::EMPTY,
            zeroings_waiting: 0,
            modifying: 0,
            internal_done: Vec::new(),
        }
    }

    /// Most requests in flight, including the cache's own: queues of requests never hold more.
    pub fn capacity(&self) -> usize {
        self.requests.capacity()
    }

    /// Registers a request; `Err` is the reply to send at once.
    pub fn admit(
        &mut self,
        volumes: &mut Volumes,
        bypass: Bypass,
        id: RequestId,
        request: &Request,
    ) -> Result<RequestIndex, IoError> {
        let Request { volume, op, flags, offset, length, .. } = *request;
        let state = volumes.get_mut(volume).ok_or(IoError::Invalid)?;
        let end = offset.checked_add(length).ok_or(IoError::Invalid)?;
        if op != Op::Flush && (end > state.size || (offset | length) & 511 != 0) {
            return Err(IoError::Invalid);
        }
        if op.modifies() && state.read_only {
            return Err(IoError::ReadOnly);
        }
        let bypass = state.is_streaming(op, (offset, length), bypass);
        // The counters are about clients.
        if id != INTERNAL {
            let stats = &mut state.stats;
            match op {
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
            self.modifying += u32::from(op != Op::Read);
        }
        let (offset, end) = if op == Op::Flush { (0, 0) } else { (offset, end) };
        Ok(self.requests.insert(RequestState {
            id,
            volume,
            op,
            flags,
            offset,
            end,
            cursor: offset,
            outstanding: 0,
            error: None,
            stage: RequestStage::Pieces,
            paused: false,
            again: false,
            zeroes: false,
            bypass,
            next: RequestIndex::NONE,
        }))
    }

    /// `count` pieces of a request came back.
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
            volumes[state.volume].pieces -= count;
        }
        if let Err(e) = result {
            state.error.get_or_insert(e);
        }
        if state.paused && state.outstanding <= self.pieces_left_max {
            state.paused = false;
            self.run(request);
        } else if state.outstanding == 0 && state.cursor == state.end {
            self.requests.push_back(&mut self.finished, request);
        }
    }

    /// Whether a request may hand out another step.
    pub fn may_step(&self, request: RequestIndex) -> bool {
        self.requests[request].outstanding <= self.pieces_left_max
    }

    /// A request has taken a step that was not its last. Another follows, at once or when enough of
    /// its pieces have returned; returns true in the second case.
    pub fn go_on(&mut self, request: RequestIndex) -> bool {
        let state = &mut self.requests[request];
        state.paused = state.outstanding > self.pieces_left_max;
        let paused = state.paused;
        if !paused {
            self.run(request);
        }
        paused
    }

    /// The request takes its next step in the turn to come.
    pub fn run(&mut self, request: RequestIndex) {
        self.requests.push_back(&mut self.running, request);
    }

    /// Takes the request whose step is next.
    pub fn pop_running(&mut self) -> Option<RequestIndex> {
        self.requests.pop_front(&mut self.running)
    }

    /// Takes the next request whose pieces have all returned.
    pub fn pop_finished(&mut self) -> Option<RequestIndex> {
        self.requests.pop_front(&mut self.finished)
    }

    /// A shard had no place for the request's next piece.
    pub fn block(&mut self, request: RequestIndex, shard: usize) {
        self.requests.push_back(&mut self.blocked[shard], request);
        self.blocked_count += 1;
    }

    /// Takes the request that has waited longest for a place in a shard.
    pub fn unblock(&mut self, shard: usize) -> Option<RequestIndex> {
        let request = self.requests.pop_front(&mut self.blocked[shard])?;
        self.blocked_count -= 1;
        Some(request)
    }

    /// Whether a trim or zeroing may hand out blocks. It may not while another one of its volume
    /// does so for overlapping blocks, or waits for that. One whose blocks are all handed out in
    /// one step always may.
    ///
    /// Two overlapping ones would wait for each other's ranges block by block, and would zero the
    /// store that way.
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
        self.requests.push_back(&mut volume.zeroings_waiting, request);
        self.zeroings_waiting += 1;
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

    /// A zeroing of the volume has ended: those that waited for it continue, in order.
    fn end_zeroing(&mut self, volume: &mut VolumeState, request: RequestIndex) {
        volume.zeroings.retain(|&other| other != request);
        while let Some(next) = volume.zeroings_waiting.first()
            && !self.meets_a_zeroing(volume, next)
        {
            self.requests.pop_front(&mut volume.zeroings_waiting);
            self.zeroings_waiting -= 1;
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
        if state.id == INTERNAL {
            self.internal_done.push(state.error.map_or(Ok(()), Err));
            return;
        }
        volumes[state.volume].requests -= 1;
        self.modifying -= u32::from(state.op != Op::Read);
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
