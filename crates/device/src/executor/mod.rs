//! The one executor of effects.
//!
//! It polls a machine's effects, performs the immediate ones in order, executes the device effects
//! through a [`Devices`] backend and returns the completions. Only the executor handles device
//! problems:
//!
//! | problem | response |
//! | --- | --- |
//! | short transfer | the rest is submitted again, from the last whole logical block |
//! | `EINTR`, `EAGAIN` | retried at most [`RetryLimits::again_max`] times |
//! | an I/O error of a read, write or zeroing | retried at most [`RetryLimits::error_max`] times, and counted |
//! | an error of a sync | **never** retried: the data may be gone from the cache that failed to write it |
//! | unaligned offset, length or memory | copied through an aligned buffer; a write reads the edge blocks first, and excludes other writers of those blocks meanwhile |
//! | zeroing that is not supported | zeroes are written |
//!
//! # Threads
//! The executor has no threads and no lock. A single-threaded driver calls [`run`](Executor::run)
//! after each call to the machine. If several threads use one machine, one lock protects both
//! machine and executor. A connection's thread submits its request and calls `run`. Another thread
//! waits on [`Devices::doorbell`] without the lock; when the bell rings, it takes the lock and
//! calls `run`. The executor sends replies through [`Requests::reply`].

mod memory;
mod steps;
mod transfer;

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_block::Nanos;
use forebay_effect::{Device, Effect, Frame, IoError, Machine, Outcome, Place, Segment};
use forebay_results::{ComponentRecorder, Operation};
use schemars::JsonSchema;
use serde::Serialize;

use crate::buffer::{AlignedBuffer, Arena, StagingPool};
use crate::devices::{Capabilities, Completion, Devices, MemorySlice, Verb};
use crate::loan::Loan;
use crate::published::Published;
use crate::requests::Requests;
use memory::Places;
use transfer::{Order, Transfer};

/// Maximum number of completions that one [`Executor::run`] reports, so that the caller can release
/// its lock: each completion may copy a block or more.
const FED_MAX: usize = 32;

/// How often an operation is retried before the machine has to handle its failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryLimits {
    /// After [`DeviceError::Again`](crate::DeviceError::Again), per operation.
    pub again_max: u32,
    /// After [`DeviceError::Io`](crate::DeviceError::Io), per operation; syncs are never retried.
    pub error_max: u32,
}

impl Default for RetryLimits {
    fn default() -> Self {
        RetryLimits { again_max: 64, error_max: 2 }
    }
}

/// The results of one call of [`Executor::run`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Effects performed or started.
    pub effects: u64,
    /// Replies sent.
    pub replies: u64,
    /// Completions reported to the machine.
    pub completions: u64,
    /// Completions may remain: call again (the bell may not ring for them).
    pub more: bool,
}

/// What an executor has seen since it was made, to be shown to users. A status has
/// what is not skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct ExecutorStats {
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Completed zeroings.
    pub zeroes: u64,
    /// Completed syncs.
    pub syncs: u64,
    /// Bytes read by successful reads.
    pub read_bytes: u64,
    /// Bytes written by successful writes.
    pub written_bytes: u64,
    /// Operations submitted to devices, retries included.
    #[serde(skip)]
    pub submitted: u64,
    /// Times a device was busy.
    #[serde(skip)]
    pub again: u64,
    /// Operations that were retried after an error.
    pub retries: u64,
    /// Transfers that came back short and were continued.
    #[serde(skip)]
    pub short: u64,
    /// Effects that went through an aligned buffer as a whole.
    #[serde(skip)]
    pub bounced: u64,
    /// Writes or zeroings that first read the blocks at their edges.
    #[serde(skip)]
    pub read_modify_writes: u64,
    /// Effects that waited for another's read-modify-write.
    #[serde(skip)]
    pub waited: u64,
    /// Zeroings that wrote zeroes because the device could not do better.
    #[serde(skip)]
    pub zeroes_by_writing: u64,
    /// Operations that ended in an error.
    pub errors: u64,
    /// Completions that belonged to nothing: a fault of the backend.
    #[serde(skip)]
    pub strays: u64,
    /// Staging buffers ever allocated.
    #[serde(skip)]
    pub staging_buffers: u64,
}

/// Executes the effects of one machine over one set of devices.
#[derive(Debug)]
pub struct Executor<D> {
    // The first field, so that the devices are dropped before any memory they may still use.
    devices: D,
    arena: Arena,
    zeroes: AlignedBuffer,
    trash: AlignedBuffer,
    staging: StagingPool,
    table: Vec<Transfer>,
    free: Vec<u32>,
    waiting: VecDeque<u32>,
    /// Number of transfers, started or waiting, that exclude others from their range.
    exclusive: u32,
    in_flight: u32,
    ended: VecDeque<(u32, Outcome)>,
    /// Completions that have arrived but not been processed yet.
    done: VecDeque<Completion>,
    arrived: Vec<Completion>,
    segments: Vec<Segment>,
    scratch: Vec<MemorySlice>,
    order: u64,
    limits: RetryLimits,
    stats: ExecutorStats,
    /// The effects in progress in the order in which they began, if they must end in that order.
    in_order: Option<VecDeque<u32>>,
    /// The latency of device effects, if it is measured.
    latencies: Option<ComponentRecorder>,
    /// Kinds of zeroing that a device has refused: zeroes are written from then on.
    unable_to_zero: Vec<(Device, Verb)>,
}

impl<D: Devices> Executor<D> {
    /// An executor whose DRAM frames are `arena`.
    pub fn new(mut devices: D, arena: Arena) -> Executor<D> {
        // SAFETY: the arena lives in the executor and is dropped after the devices.
        unsafe { devices.register(arena.memory()) };
        Executor {
            devices,
            arena,
            zeroes: AlignedBuffer::new(memory::VOID_BYTES),
            trash: AlignedBuffer::new(memory::VOID_BYTES),
            staging: StagingPool::default(),
            table: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            exclusive: 0,
            in_flight: 0,
            ended: VecDeque::new(),
            done: VecDeque::new(),
            arrived: Vec::new(),
            segments: Vec::new(),
            scratch: Vec::new(),
            order: 0,
            limits: RetryLimits::default(),
            stats: ExecutorStats::default(),
            in_order: None,
            latencies: None,
            unable_to_zero: Vec::new(),
        }
    }

    /// Changes how often operations are retried.
    pub fn set_limits(&mut self, limits: RetryLimits) {
        self.limits = limits;
    }

    /// The devices.
    pub fn devices(&self) -> &D {
        &self.devices
    }

    /// The devices, for their own controls.
    pub fn devices_mut(&mut self) -> &mut D {
        &mut self.devices
    }

    /// The counters so far.
    pub fn stats(&self) -> ExecutorStats {
        ExecutorStats { staging_buffers: self.staging.allocated(), ..self.stats }
    }

    /// Makes the executor report the completions of device effects in the order in which the
    /// machine requested them, whatever the order in which the devices complete them; an effect
    /// that ends early waits. The machine then makes the same decisions on any devices that do not
    /// fail. Panics if a device effect is in flight.
    pub fn end_in_order(&mut self) {
        assert_eq!(self.in_flight, 0, "the order of effects in flight is unknown");
        self.in_order = Some(VecDeque::new());
    }

    /// Starts measuring how long device effects take, from the machine's request to the end,
    /// including waiting and retries. Costs two clock readings per effect.
    pub fn measure(&mut self) {
        self.latencies = Some(ComponentRecorder::default());
    }

    /// The measurements, if [`measure`](Executor::measure) was called.
    pub fn latencies(&self) -> Option<&ComponentRecorder> {
        self.latencies.as_ref()
    }

    /// The measurements, so that the caller can drop some.
    pub fn latencies_mut(&mut self) -> Option<&mut ComponentRecorder> {
        self.latencies.as_mut()
    }

    /// Whether the device itself can zero a range of `device`, as far as is known: otherwise the
    /// executor must write zeroes. `punch` says whether the zeroing may release space.
    pub fn zeroes_cheaply(&self, device: Device, punch: bool) -> bool {
        let refused = self.unable_to_zero.contains(&(device, Verb::WriteZeroes { punch }));
        self.devices.capabilities(device).is_some_and(|able| able.zeroes) && !refused
    }

    /// Number of device effects that have begun and not ended.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Lends bytes of a frame in place of a copy; `None` if too much is lent already.
    pub fn lend(&mut self, frame: Frame, offset: u32, length: u32) -> Option<Loan> {
        self.arena.lend(frame.0, offset, length)
    }

    /// Publishes a frame under a key, for reads without the executor; see [`Published`].
    pub fn publish(&mut self, key: u64, frame: Frame) {
        self.arena.publish(key, frame.0);
    }

    /// The published frames; `None` if the arena cannot publish frames.
    pub fn published(&self) -> Option<Arc<Published>> {
        self.arena.published()
    }

    /// Copies bytes of a frame to the start of `target`.
    ///
    /// # Panics
    /// If `target` has no room for them.
    pub fn copy_out(&self, frame: Frame, offset: u32, length: u32, target: &mut [u8]) {
        let source = self.arena.slice(frame.0, offset, length);
        let target = &mut target[..source.length];
        // SAFETY: live memory of the arena, which does not overlap what the caller lends us.
        unsafe { source.pointer.copy_to_nonoverlapping(target.as_mut_ptr(), target.len()) };
    }

    /// Does all work that is possible now: performs effects, reports completions that have arrived,
    /// and performs the effects that follow from them. Afterwards either there is nothing to do but
    /// wait, or [`Progress::more`] says that completions may remain. A run reports at most 32
    /// completions to the machine, and at least one before [`Machine::should_pause`] ends it, so
    /// that its caller can release a lock in between.
    ///
    /// # Panics
    /// If the machine names a place that does not exist: that is a bug, and continuing would put
    /// one block's bytes into another's place.
    pub fn run<M, R>(&mut self, machine: &mut M, requests: &mut R) -> Progress
    where
        M: Machine + ?Sized,
        R: Requests + ?Sized,
    {
        let mut progress = Progress::default();
        let mut left = FED_MAX;
        while left > 0 {
            self.perform_effects(machine, requests, &mut progress);
            self.devices.flush();
            if !self.feed(machine, requests, &mut progress, &mut left) {
                return progress;
            }
            if machine.should_pause() {
                break;
            }
        }
        self.devices.flush();
        progress.more = true;
        progress
    }

    /// Drops everything in flight and withdraws all published frames, as a crash does. Frames keep
    /// their contents; see [`scribble`](Executor::scribble). Drop the machine and its requests
    /// afterwards; the devices are unchanged.
    pub fn reset(&mut self) {
        self.devices.abandon();
        for index in 0..self.table.len() as u32 {
            if self.table[index as usize].active {
                self.release(index);
            }
        }
        self.waiting.clear();
        self.in_order.iter_mut().for_each(VecDeque::clear);
        self.ended.clear();
        self.done.clear();
        if let Some(published) = self.arena.published() {
            published.withdraw_all();
        }
        // SAFETY: as in `new`.
        unsafe { self.devices.register(self.arena.memory()) };
    }

    /// Overwrites the start of each sector of all frames, as a power loss would. For tests, which
    /// must not find old contents of memory again. Panics if a device effect is in flight.
    pub fn scribble(&mut self, byte: u8) {
        assert_eq!(self.in_flight(), 0, "frames are in use");
        self.arena.scribble(byte);
    }

    /// Abandons all operations in flight and returns the devices.
    pub fn into_devices(mut self) -> D {
        self.devices.abandon();
        self.devices
    }

    fn perform_effects<M, R>(&mut self, machine: &mut M, requests: &mut R, progress: &mut Progress)
    where
        M: Machine + ?Sized,
        R: Requests + ?Sized,
    {
        let mut segments = std::mem::take(&mut self.segments);
        while let Some(effect) = machine.poll_effect(&mut segments) {
            progress.effects += 1;
            self.perform(effect, &segments, machine, requests, progress);
        }
        self.segments = segments;
    }

    fn perform<M, R>(
        &mut self,
        effect: Effect,
        segments: &[Segment],
        machine: &mut M,
        requests: &mut R,
        progress: &mut Progress,
    ) where
        M: Machine + ?Sized,
        R: Requests + ?Sized,
    {
        let (token, device, verb, offset, length) = match effect {
            Effect::Copy { from, to, length } => {
                if let (Place::Frame { frame, offset }, Place::Request { request, offset: at }) =
                    (from, to)
                    && requests.borrows(request, at)
                    && let Some(loan) = self.arena.lend(frame.0, offset, length)
                {
                    return requests.borrow(request, loan);
                }
                return self.places(machine, requests).copy(from, to, length);
            }
            Effect::Zero { to, length } => {
                return self.places(machine, requests).zero(to, length);
            }
            Effect::Checksum { token, seed } => {
                let value = self.places(machine, requests).checksum(seed, segments);
                return machine.handle_checksum(token, value);
            }
            Effect::Reply { request, result } => {
                progress.replies += 1;
                return requests.reply(request, result);
            }
            Effect::Read { token, device, offset, length } => {
                (token, device, Verb::Read, offset, length.into())
            }
            Effect::Write { token, device, offset, length } => {
                (token, device, Verb::Write, offset, length.into())
            }
            Effect::WriteZeroes { token, device, offset, length, punch } => {
                (token, device, Verb::WriteZeroes { punch }, offset, length)
            }
            Effect::Sync { token, device } => (token, device, Verb::Sync, 0, 0),
        };
        let order = Order { token, device, verb, offset, length };
        let index = self.allocate(order, segments);
        match self.admit(&order, segments) {
            Ok(Some(capabilities)) => self.begin(index, capabilities, machine, requests),
            Ok(None) => self.ended.push_back((index, Ok(()))),
            Err(error) => self.ended.push_back((index, Err(error))),
        }
    }

    /// Checks an order: returns the device's capabilities, or `None` if there is nothing to do.
    fn admit(&self, order: &Order, segments: &[Segment]) -> Result<Option<Capabilities>, IoError> {
        let capabilities = self.devices.capabilities(order.device).ok_or(IoError::Invalid)?;
        let end = order.offset.checked_add(order.length).ok_or(IoError::Invalid)?;
        if end > capabilities.size {
            return Err(IoError::Invalid);
        }
        if matches!(order.verb, Verb::Read | Verb::Write) {
            let sum: u64 = segments.iter().map(|segment| u64::from(segment.length)).sum();
            assert_eq!(sum, order.length, "the segments of {order:?} do not add up");
        }
        Ok((order.length > 0 || order.verb == Verb::Sync).then_some(capabilities))
    }

    /// Reports completions to the machine, at most `left` of them, each followed by the effects it
    /// causes. Returns whether there were any.
    fn feed<M, R>(
        &mut self,
        machine: &mut M,
        requests: &mut R,
        progress: &mut Progress,
        left: &mut usize,
    ) -> bool
    where
        M: Machine + ?Sized,
        R: Requests + ?Sized,
    {
        self.devices.reap(&mut self.arrived);
        self.done.extend(self.arrived.drain(..));
        let mut any = false;
        while *left > 0
            && !(any && machine.should_pause())
            && let Some(completion) = self.done.pop_front()
        {
            (any, *left) = (true, *left - 1);
            if let Some((index, outcome)) = self.advance(completion) {
                self.end(index, outcome, machine, requests, progress);
            }
        }
        while *left > 0
            && !(any && machine.should_pause())
            && let Some((index, outcome)) = self.ended.pop_front()
        {
            (any, *left) = (true, *left - 1);
            self.end(index, outcome, machine, requests, progress);
        }
        any
    }

    /// Reports the end of an effect to the machine: at once, or, after
    /// [`end_in_order`](Executor::end_in_order), when all earlier effects have ended.
    fn end<M, R>(
        &mut self,
        index: u32,
        outcome: Outcome,
        machine: &mut M,
        requests: &mut R,
        progress: &mut Progress,
    ) where
        M: Machine + ?Sized,
        R: Requests + ?Sized,
    {
        if self.in_order.is_none() {
            return self.finish(index, outcome, machine, requests, progress);
        }
        self.table[index as usize].outcome = Some(outcome);
        while let Some(&first) = self.in_order.as_ref().and_then(VecDeque::front)
            && let Some(outcome) = self.table[first as usize].outcome.take()
        {
            self.in_order.as_mut().and_then(VecDeque::pop_front);
            self.finish(first, outcome, machine, requests, progress);
        }
    }

    fn finish<M, R>(
        &mut self,
        index: u32,
        outcome: Outcome,
        machine: &mut M,
        requests: &mut R,
        progress: &mut Progress,
    ) where
        M: Machine + ?Sized,
        R: Requests + ?Sized,
    {
        if outcome.is_ok() {
            self.bring_in(index, machine, requests);
        }
        let order = self.table[index as usize].order;
        self.count(&order, outcome);
        if let (Some(latencies), Some(began)) =
            (&mut self.latencies, self.table[index as usize].began)
        {
            let operation = match order.verb {
                Verb::Read => Operation::Read,
                Verb::Write | Verb::WriteZeroes { .. } => Operation::Write,
                Verb::Sync => Operation::Sync,
            };
            let latency = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            latencies.record(order.device, operation, Nanos(latency));
        }
        self.release(index);
        self.start_waiting();
        progress.completions += 1;
        machine.handle_completion(order.token, outcome);
        self.perform_effects(machine, requests, progress);
    }

    fn count(&mut self, order: &Order, outcome: Outcome) {
        let stats = &mut self.stats;
        let (operations, bytes) = match order.verb {
            Verb::Read => (&mut stats.reads, Some(&mut stats.read_bytes)),
            Verb::Write => (&mut stats.writes, Some(&mut stats.written_bytes)),
            Verb::WriteZeroes { .. } => (&mut stats.zeroes, None),
            Verb::Sync => (&mut stats.syncs, None),
        };
        *operations += 1;
        match (outcome, bytes) {
            (Ok(()), Some(bytes)) => *bytes += order.length,
            (Ok(()), None) => {}
            (Err(_), _) => stats.errors += 1,
        }
    }

    fn places<'a, M: ?Sized, R: ?Sized>(
        &'a mut self,
        machine: &'a mut M,
        requests: &'a mut R,
    ) -> Places<'a, M, R> {
        Places { arena: &mut self.arena, zeroes: &self.zeroes, machine, requests }
    }
}

#[cfg(test)]
mod tests;
