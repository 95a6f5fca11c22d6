//! The front: volumes, requests in flight, and the syncs that a reply waits for.
//!
//! A request is split into pieces, one for each block, for a bounded number
//! of blocks at a time. The pieces go to shards, and the last piece to return ends the request. A
//! request that promises durability (FLUSH, FUA) then waits for the syncs it needs. A sync covers
//! only writes that had completed when it was issued; all requests that wait meanwhile share the
//! next one.

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_effect::{Device, Effect, EffectQueue, IoError, Outcome, Owner, RequestId, Token};
use forebay_flash::sabotage::{Bug, Sabotage};

use crate::cache::VOLUMES_MAX;
use crate::config::{Bypass, CacheConfig, VolumeConfig};
use crate::load::{Loads, Source};
use crate::slab::{Fifo, Linked, RequestIndex, Slab};
use crate::stores::Shares;
use crate::volume::{SyncWaiter, VolumeState};
use crate::volume_set::VolumeSet;

/// The name of the cache's own requests, such as the flush of a clean stop.
pub(crate) const INTERNAL: RequestId = RequestId(u64::MAX);

/// A request in flight.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub id: RequestId,
    pub volume: u16,
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
    pub volumes: Vec<VolumeState>,
    pub shares: Shares,
    /// Volumes with a flush in progress.
    pub flushing: VolumeSet,
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
    /// Modifying requests that wait for the end of a change of policy, of a destage, or of dropping a
    /// volume's data; some have begun.
    pub held: Fifo<RequestIndex>,
    pub held_count: u32,
    /// Trims and zeroings that have not begun and wait for others of the same blocks.
    pub zeroings_waiting: u32,
    /// Modifying requests and flushes of clients in flight, including held ones.
    pub modifying: u32,
    /// The cache's own flushes that have ended.
    pub internal_done: Vec<Outcome>,
    /// Failed syncs, of any volume: data written before a failed sync may be lost, whatever a later
    /// sync reports.
    pub sync_failures: u64,
    /// Waiters other than requests whose sync has ended.
    pub synced: Vec<(u16, SyncWaiter, Outcome)>,
    /// Volumes for which [`Front::issue_syncs`] will request a sync.
    due: VolumeSet,
    /// log2 of the bytes of an extent.
    extent_shift: u32,
    pub sabotage: Sabotage,
    /// Blocks that are newer than the backing store, of all volumes.
    pub dirty_blocks: u64,
    /// Stores and flash take no time ([`Cache::without_time`](crate::Cache::without_time)).
    pub instant: bool,
    /// Which requests bypass the cache.
    pub bypass: Bypass,
    /// The latency of reads, if admission depends on it.
    pub loads: Option<Loads>,
    /// There are no bytes ([`Cache::without_bytes`](crate::Cache::without_bytes)).
    pub without_bytes: bool,
}

impl Front {
    /// A read begins.
    pub fn read_begins(&mut self, source: Source, now: Nanos) {
        if let Some(loads) = &mut self.loads {
            loads.begin(source, now);
        }
    }

    /// A read ends.
    pub fn read_ends(&mut self, source: Source, now: Nanos) {
        if let Some(loads) = &mut self.loads {
            loads.end(source, now);
        }
    }

    pub fn new(config: &CacheConfig) -> Self {
        Front {
            // The cache's own flushes, one a volume, always find a place.
            requests: Slab::new(config.requests_max + VOLUMES_MAX as u32),
            volumes: Vec::new(),
            shares: Shares::new(),
            flushing: VolumeSet::EMPTY,
            running: Fifo::EMPTY,
            blocked: (0..config.shards).map(|_| Fifo::EMPTY).collect(),
            blocked_count: 0,
            pieces_left_max: config.request_blocks_max - config.step_blocks,
            step_bytes: u64::from(config.step_blocks) << config.block_size.shift(),
            finished: Fifo::EMPTY,
            held: Fifo::EMPTY,
            held_count: 0,
            zeroings_waiting: 0,
            modifying: 0,
            internal_done: Vec::new(),
            synced: Vec::new(),
            due: VolumeSet::EMPTY,
            extent_shift: config.extent_shift,
            sabotage: Sabotage::default(),
            sync_failures: 0,
            dirty_blocks: 0,
            instant: false,
            bypass: config.bypass,
            loads: config
                .flash
                .as_ref()
                .and_then(|f| f.admission.kind().goes_by_load().then(Loads::default)),
            without_bytes: false,
        }
    }

    pub fn attach(&mut self, config: VolumeConfig) -> Volume {
        let max = self.requests_capacity();
        self.volumes.push(VolumeState::new(config, max));
        Volume(self.volumes.len() as u32 - 1)
    }

    fn requests_capacity(&self) -> usize {
        // Slab capacity; queues of requests never hold more.
        self.requests.capacity()
    }

    /// Registers a request; `Err` is the reply to send at once.
    pub fn admit(&mut self, id: RequestId, request: &Request) -> Result<RequestIndex, IoError> {
        let Request { volume, op, flags, offset, length, .. } = *request;
        let state = self.volumes.get_mut(volume.0 as usize).ok_or(IoError::Invalid)?;
        let end = offset.checked_add(length).ok_or(IoError::Invalid)?;
        if op != Op::Flush && (end > state.size || (offset | length) & 511 != 0) {
            return Err(IoError::Invalid);
        }
        if op.modifies() && state.read_only {
            return Err(IoError::ReadOnly);
        }
        let bypass = state.is_streaming(op, (offset, length), self.bypass);
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
            volume: volume.0 as u16,
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
    pub fn pieces_done(&mut self, request: RequestIndex, count: u32, result: Outcome) {
        let state = &mut self.requests[request];
        debug_assert!(state.outstanding >= count, "more pieces completed than were handed out");
        state.outstanding -= count;
        if state.stage == RequestStage::Pieces && state.op.modifies() {
            self.volumes[usize::from(state.volume)].pieces -= count;
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
    pub fn may_zero(&mut self, request: RequestIndex) -> bool {
        let r = &self.requests[request];
        if r.zeroes || r.end - r.offset <= self.step_bytes {
            return true;
        }
        let volume = usize::from(r.volume);
        let v = &mut self.volumes[volume];
        if v.zeroings_waiting.is_empty() && !self.meets_a_zeroing(request) {
            self.begin_zeroing(request);
            return true;
        }
        self.requests.push_back(&mut self.volumes[volume].zeroings_waiting, request);
        self.zeroings_waiting += 1;
        false
    }

    fn begin_zeroing(&mut self, request: RequestIndex) {
        let r = &mut self.requests[request];
        r.zeroes = true;
        self.volumes[usize::from(r.volume)].zeroings.push(request);
    }

    fn meets_a_zeroing(&self, request: RequestIndex) -> bool {
        let r = &self.requests[request];
        self.volumes[usize::from(r.volume)].zeroings.iter().any(|&other| {
            let other = &self.requests[other];
            r.offset < other.end && other.offset < r.end
        })
    }

    /// A zeroing of the volume has ended: those that waited for it continue, in order.
    fn end_zeroing(&mut self, request: RequestIndex, volume: usize) {
        self.volumes[volume].zeroings.retain(|&other| other != request);
        while let Some(next) = self.volumes[volume].zeroings_waiting.first()
            && !self.meets_a_zeroing(next)
        {
            self.requests.pop_front(&mut self.volumes[volume].zeroings_waiting);
            self.zeroings_waiting -= 1;
            self.begin_zeroing(next);
            self.run(next);
        }
    }

    /// Answers a request and forgets it.
    pub fn reply(&mut self, request: RequestIndex, effects: &mut EffectQueue) {
        let state = self.requests.remove(request);
        if state.zeroes {
            self.end_zeroing(request, usize::from(state.volume));
        }
        if state.id == INTERNAL {
            self.internal_done.push(state.error.map_or(Ok(()), Err));
            return;
        }
        self.volumes[usize::from(state.volume)].requests -= 1;
        self.modifying -= u32::from(state.op != Op::Read);
        if state.error.is_some() {
            self.volumes[state.volume as usize].stats.errors += 1;
        }
        let result = state.error.map_or(Ok(()), Err);
        effects.push(Effect::Reply { request: state.id, result });
    }

    /// Whether a zeroing request allows a hole.
    pub fn may_punch(&self, request: RequestIndex) -> bool {
        let r = &self.requests[request];
        r.op == Op::Trim || !r.flags.contains(Flags::NO_HOLE)
    }

    /// A write or zeroing of bytes of the backing store that bypassed the log has
    /// completed.
    pub fn direct_written(&mut self, volume: u16, start: u64, end: u64) {
        self.volumes[volume as usize].direct_written(start, end, self.extent_shift);
    }

    /// Whether completed direct writes of the volume are not yet durable.
    pub fn owes_sync(&self, volume: u16) -> bool {
        self.volumes[volume as usize].owes_sync()
    }

    /// Whether completed direct writes to the extent of a byte are not yet durable. It may also return true when there
    /// are none.
    pub fn owes_sync_at(&self, volume: u16, offset: u64) -> bool {
        self.volumes[volume as usize].owes_sync_at(offset >> self.extent_shift)
    }

    /// Like [`Front::sync`], but [`Front::issue_syncs`] requests the sync together with others.
    pub fn sync_together(&mut self, volume: u16, waiter: SyncWaiter) {
        self.volumes[volume as usize].wait_for_sync(waiter);
        self.due.insert(usize::from(volume));
    }

    pub fn issue_syncs(&mut self, effects: &mut EffectQueue) {
        while let Some(volume) = self.due.first() {
            self.due.remove(volume);
            self.issue_sync(volume as u16, effects);
        }
    }

    /// Notifies `waiter` when everything that has completed on the volume's backing store until now
    /// is durable.
    pub fn sync(&mut self, volume: u16, waiter: SyncWaiter, effects: &mut EffectQueue) {
        self.volumes[volume as usize].wait_for_sync(waiter);
        self.issue_sync(volume, effects);
    }

    fn issue_sync(&mut self, volume: u16, effects: &mut EffectQueue) {
        if self.volumes[volume as usize].begin_sync() {
            let token = Token { owner: Owner::Front, index: u32::from(volume) };
            effects.push(Effect::Sync { token, device: Device::Backing(Volume(volume.into())) });
        }
    }

    /// The volumes whose sync has failed since the count of failures was `count`.
    pub fn failed_since(&self, count: u64) -> VolumeSet {
        let failed = self.volumes.iter().enumerate().filter(|(_, v)| v.sync_failed_since(count));
        failed.map(|(n, _)| n).collect()
    }

    /// Whether a sync of the volume has failed: its data are no longer assumed to be durable.
    pub fn has_failed(&self, volume: usize) -> bool {
        self.volumes[volume].sync_failed()
    }

    /// The sync of a volume ended.
    pub fn handle_sync(&mut self, volume: u16, result: Outcome, effects: &mut EffectQueue) {
        let result = if self.sabotage.is(Bug::SyncFailureIgnored) { Ok(()) } else { result };
        let v = &mut self.volumes[volume as usize];
        let mut waiters = v.end_sync(result, &mut self.sync_failures);
        let for_requests = if v.sync_failed() { Err(IoError::Device) } else { Ok(()) };
        for waiter in waiters.drain(..) {
            match waiter {
                SyncWaiter::Request(request) => self.pieces_done(request, 1, for_requests),
                other => self.synced.push((volume, other, result)),
            }
        }
        self.volumes[volume as usize].keep_waiters(waiters);
        self.issue_sync(volume, effects);
    }
}
