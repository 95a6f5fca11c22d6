//! Device effects in progress: planned as steps, submitted, continued, finished.

use std::time::Instant;

use forebay_effect::{Device, IoError, Machine, Outcome, Place, Segment, Token};

use super::Executor;
use super::memory::{Places, cut, push_joined, push_repeated};
use super::steps::{Action, Step, Steps, Target};
use crate::buffer::AlignedBuffer;
use crate::devices::{
    Capabilities, Completion, DeviceError, Devices, Io, IoTag, MemorySlice, Verb,
};
use crate::requests::Requests;

/// Transfers with more memory pieces than the kernel accepts in one operation (`IOV_MAX`) are
/// bounced.
const PIECES_MAX: usize = 1024;

/// Initial capacity of a transfer's lists, in memory pieces; lists that grow beyond it keep their
/// size.
const PIECES_USUAL: usize = 16;

/// Metadata pieces start at multiples of this in a staging buffer: sufficient for any alignment.
const PIECE_ALIGNMENT: usize = 4096;

/// A device effect as the machine requested it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub token: Token,
    pub device: Device,
    pub verb: Verb,
    pub offset: u64,
    pub length: u64,
}

/// A device effect in progress.
#[derive(Debug)]
pub(super) struct Transfer {
    pub active: bool,
    pub order: Order,
    generation: u32,
    started: bool,
    /// When the machine requested the effect, if latencies are measured.
    pub began: Option<Instant>,
    /// The result of an effect that has ended while it waits for earlier ones.
    pub outcome: Option<Outcome>,
    sequence: u64,
    capabilities: Capabilities,
    segments: Vec<Segment>,
    memory: Vec<MemorySlice>,
    staging: Option<AlignedBuffer>,
    steps: Steps,
    /// Bytes of the current step that are done.
    step_done: u64,
    again: u32,
    retries: u32,
}

impl<D: Devices> Executor<D> {
    pub(super) fn allocate(&mut self, order: Order, segments: &[Segment]) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(Transfer::unused(order));
            self.table.len() as u32 - 1
        });
        let transfer = &mut self.table[index as usize];
        transfer.active = true;
        transfer.started = false;
        transfer.began = self.latencies.is_some().then(Instant::now);
        transfer.order = order;
        transfer.outcome = None;
        if let Some(in_order) = &mut self.in_order {
            in_order.push_back(index);
        }
        transfer.segments.clear();
        transfer.segments.extend_from_slice(segments);
        transfer.steps = Steps::default();
        (transfer.again, transfer.retries) = (0, 0);
        self.in_flight += 1;
        index
    }

    /// Plans the transfer, copies the bytes to be written out of metadata buffers, and starts it
    /// unless it has to wait for another.
    pub(super) fn begin<M, R>(
        &mut self,
        index: u32,
        capabilities: Capabilities,
        machine: &mut M,
        requests: &mut R,
    ) where
        M: Machine + ?Sized,
        R: Requests + ?Sized,
    {
        let order = self.table[index as usize].order;
        let has_memory = matches!(order.verb, Verb::Read | Verb::Write);
        let direct = !has_memory || self.map_direct(index, capabilities, machine, requests);
        let can_zero = capabilities.zeroes && self.may_zero(order.device, order.verb);
        let steps = Steps::plan(&order, capabilities.logical_block, direct, can_zero);
        let transfer = &mut self.table[index as usize];
        transfer.capabilities = capabilities;
        transfer.sequence = self.order;
        self.order += 1;
        transfer.steps = steps;
        if let Some(bytes) = steps.staging_bytes() {
            let staging = self.staging.take(bytes);
            self.table[index as usize].staging = Some(staging);
            if has_memory {
                self.stats.bounced += 1;
            }
            if order.verb == Verb::Write {
                self.take_out(index, machine, requests);
            }
        }
        if steps.exclusive() {
            self.exclusive += 1;
            self.stats.read_modify_writes += 1;
        }
        if self.must_wait(index) {
            self.stats.waited += 1;
            self.waiting.push_back(index);
        } else {
            self.start(index);
        }
    }

    /// Handles a completion. Returns the transfer if it has ended.
    pub(super) fn advance(&mut self, completion: Completion) -> Option<(u32, Outcome)> {
        let index = completion.tag.0 as u32;
        let generation = (completion.tag.0 >> 32) as u32;
        let known = self.table.get(index as usize).is_some_and(|transfer| {
            transfer.active && transfer.started && transfer.generation == generation
        });
        if !known {
            self.stats.strays += 1;
            return None;
        }
        match completion.result {
            Ok(bytes) => self.advance_by(index, bytes),
            Err(error) => self.retry(index, error),
        }
    }

    fn advance_by(&mut self, index: u32, bytes: u64) -> Option<(u32, Outcome)> {
        let transfer = &mut self.table[index as usize];
        let step = *transfer.steps.current()?;
        if step.action != Action::Sync {
            let left = step.length - transfer.step_done;
            let asked = step.submitted_length(transfer.step_done);
            let whole = if bytes < asked {
                // Continue after the last whole block; bytes beyond it are transferred twice.
                bytes - bytes % u64::from(transfer.capabilities.logical_block)
            } else {
                asked
            };
            transfer.step_done += whole;
            if whole < left {
                if bytes < asked {
                    self.stats.short += 1;
                    transfer.retries += u32::from(whole == 0);
                    if transfer.retries > self.limits.error_max {
                        // A device that transfers nothing and reports no error does not have these
                        // bytes: for example, a file that has been truncated.
                        return Some((index, Err(IoError::Device)));
                    }
                }
                self.submit(index);
                return None;
            }
        }
        let staging = transfer.staging.as_mut().map(|buffer| &mut buffer[..]);
        transfer.steps.step_done(staging);
        transfer.step_done = 0;
        if transfer.steps.current().is_none() {
            return Some((index, Ok(())));
        }
        self.submit(index);
        None
    }

    fn retry(&mut self, index: u32, error: DeviceError) -> Option<(u32, Outcome)> {
        let transfer = &mut self.table[index as usize];
        let action = transfer.steps.current().map(|step| step.action);
        let again = match (error, action) {
            // Never retry, whatever the error: the kernel may have dropped data that the sync
            // should have covered, and the next sync would succeed.
            (_, Some(Action::Sync)) => false,
            (DeviceError::Again, _) => {
                transfer.again += 1;
                self.stats.again += 1;
                transfer.again <= self.limits.again_max
            }
            // A sandbox can forbid the system call that zeroes, which looks like a read-only
            // device. A device that really refuses writes refuses the zeroes, too.
            (
                DeviceError::Unsupported | DeviceError::Invalid | DeviceError::ReadOnly,
                Some(Action::Zero),
            ) => {
                transfer.steps.write_zeroes_instead();
                self.stats.zeroes_by_writing += 1;
                let refused = (transfer.order.device, transfer.order.verb);
                if !self.unable_to_zero.contains(&refused) {
                    self.unable_to_zero.push(refused);
                }
                true
            }
            (DeviceError::Io, _) if transfer.retries < self.limits.error_max => {
                transfer.retries += 1;
                self.stats.retries += 1;
                true
            }
            _ => false,
        };
        if !again {
            return Some((index, Err(error.into())));
        }
        self.submit(index);
        None
    }

    /// Copies the bytes of a finished read from its staging buffer to their places.
    pub(super) fn bring_in<M, R>(&mut self, index: u32, machine: &mut M, requests: &mut R)
    where
        M: Machine + ?Sized,
        R: Requests + ?Sized,
    {
        let mut transfer = self.table[index as usize].take_lists();
        if transfer.verb == Verb::Read
            && let Some(staging) = &transfer.staging
        {
            let mut places = self.places(machine, requests);
            match transfer.bounce {
                Some(at) => places.scatter(&staging[at..], &transfer.segments),
                None => {
                    for_each_piece(&transfer.segments, |segment, at| {
                        places.scatter(&staging[at..], std::slice::from_ref(segment));
                    });
                }
            }
        }
        self.table[index as usize].put_lists(&mut transfer);
    }

    pub(super) fn release(&mut self, index: u32) {
        let transfer = &mut self.table[index as usize];
        if let Some(staging) = transfer.staging.take() {
            self.staging.give(staging);
        }
        transfer.active = false;
        transfer.generation = transfer.generation.wrapping_add(1);
        if transfer.steps.exclusive() {
            self.exclusive -= 1;
        }
        self.in_flight -= 1;
        self.free.push(index);
    }

    /// Starts the waiting transfers whose range is now free.
    pub(super) fn start_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(index) = self.waiting.pop_front() else { return };
            if self.must_wait(index) {
                self.waiting.push_back(index);
            } else {
                self.start(index);
            }
        }
    }

    fn may_zero(&self, device: Device, verb: Verb) -> bool {
        !self.unable_to_zero.contains(&(device, verb))
    }

    /// Whether an earlier, unfinished transfer excludes this one: both write, they share a logical
    /// block, and one of them reads before it writes.
    fn must_wait(&self, index: u32) -> bool {
        let this = &self.table[index as usize];
        if self.exclusive == 0 || !this.writes() {
            return false;
        }
        self.table.iter().any(|other| {
            other.active
                && other.steps.current().is_some()
                && other.writes()
                && other.sequence < this.sequence
                && other.order.device == this.order.device
                && (other.steps.exclusive() || this.steps.exclusive())
                && other.blocks().0 < this.blocks().1
                && this.blocks().0 < other.blocks().1
        })
    }

    fn start(&mut self, index: u32) {
        let transfer = &mut self.table[index as usize];
        transfer.started = true;
        transfer.step_done = 0;
        let by_writing = matches!(transfer.order.verb, Verb::WriteZeroes { .. })
            && transfer.steps.writes_zeroes();
        self.stats.zeroes_by_writing += u64::from(by_writing);
        self.submit(index);
    }

    /// Submits the rest of the current step.
    fn submit(&mut self, index: u32) {
        let transfer = &self.table[index as usize];
        let Some(&step) = transfer.steps.current() else { return };
        let done = transfer.step_done;
        let length = step.submitted_length(done);
        let staged = |at: usize, length: u64| {
            let staging = transfer.staging.as_ref().expect("a staged step has a buffer");
            assert!(at + length as usize <= staging.len());
            MemorySlice { pointer: staging.pointer().wrapping_add(at), length: length as usize }
        };
        self.scratch.clear();
        match step.target {
            Target::None => {}
            Target::Memory => cut(&transfer.memory, done, length, &mut self.scratch),
            Target::Staging(at) => self.scratch.push(staged(at + done as usize, length)),
            Target::Zeroes => push_repeated(&mut self.scratch, &self.zeroes, length as usize),
        }
        let verb = match (step.action, transfer.order.verb) {
            (Action::Read, _) => Verb::Read,
            (Action::Write, _) => Verb::Write,
            (Action::Sync, _) => Verb::Sync,
            (Action::Zero, verb) => verb,
        };
        let io = Io {
            tag: IoTag(u64::from(transfer.generation) << 32 | u64::from(index)),
            device: transfer.order.device,
            verb,
            offset: step.offset + done,
            length,
            memory: &self.scratch,
        };
        self.stats.submitted += 1;
        // SAFETY: frames and shared buffers live as long as the executor; staging buffers until
        // `release`, after the completion; request buffers by the contract of `Requests`.
        unsafe { self.devices.submit(io) };
    }

    /// Lists the addresses that the device can use directly, with metadata in a staging buffer.
    /// Returns false if the transfer has to be bounced as a whole.
    fn map_direct<M, R>(
        &mut self,
        index: u32,
        capabilities: Capabilities,
        machine: &mut M,
        requests: &mut R,
    ) -> bool
    where
        M: Machine + ?Sized,
        R: Requests + ?Sized,
    {
        let mut lists = self.table[index as usize].take_lists();
        lists.memory.clear();
        let bytes = for_each_piece(&lists.segments, |_, _| ());
        if bytes > 0 {
            lists.staging = Some(self.staging.take(bytes));
        }
        let mut metadata_at = 0;
        let (zeroes, trash) = (&self.zeroes, &self.trash);
        let mut places = Places { arena: &mut self.arena, zeroes, machine, requests };
        if lists.verb == Verb::Read {
            places.make_writable(&lists.segments);
        }
        for segment in &lists.segments {
            let length = segment.length as usize;
            match (segment.place, &mut lists.staging) {
                (Place::Meta { .. }, Some(staging)) => {
                    if lists.verb == Verb::Write {
                        let target = &mut staging[metadata_at..metadata_at + length];
                        places.gather(std::slice::from_ref(segment), target);
                    }
                    let pointer = staging.pointer().wrapping_add(metadata_at);
                    push_joined(&mut lists.memory, MemorySlice { pointer, length });
                    metadata_at += length.next_multiple_of(PIECE_ALIGNMENT);
                }
                _ => match places.address(segment.place, segment.length) {
                    Some(slice) => push_joined(&mut lists.memory, slice),
                    None if lists.verb == Verb::Write => {
                        push_repeated(&mut lists.memory, zeroes, length);
                    }
                    None => push_repeated(&mut lists.memory, trash, length),
                },
            }
        }
        let block = u64::from(capabilities.logical_block);
        let order = self.table[index as usize].order;
        let direct = lists.memory.len() <= PIECES_MAX
            && order.offset.is_multiple_of(block)
            && lists.memory.iter().all(|slice| {
                (slice.pointer as usize).is_multiple_of(capabilities.memory_alignment as usize)
                    && (slice.length as u64).is_multiple_of(block)
            });
        if !direct && let Some(staging) = lists.staging.take() {
            self.staging.give(staging);
        }
        self.table[index as usize].put_lists(&mut lists);
        direct
    }

    /// Copies the data of a bounced write into its staging buffer.
    fn take_out<M, R>(&mut self, index: u32, machine: &mut M, requests: &mut R)
    where
        M: Machine + ?Sized,
        R: Requests + ?Sized,
    {
        let mut lists = self.table[index as usize].take_lists();
        if let (Some(at), Some(staging)) = (lists.bounce, &mut lists.staging) {
            self.places(machine, requests).gather(&lists.segments, &mut staging[at..]);
        }
        self.table[index as usize].put_lists(&mut lists);
    }
}

/// The lists of a transfer, taken out of it while the executor is borrowed.
struct Lists {
    verb: Verb,
    bounce: Option<usize>,
    segments: Vec<Segment>,
    memory: Vec<MemorySlice>,
    staging: Option<AlignedBuffer>,
}

impl Transfer {
    fn unused(order: Order) -> Transfer {
        Transfer {
            active: false,
            order,
            generation: 0,
            started: false,
            began: None,
            outcome: None,
            sequence: 0,
            capabilities: Capabilities {
                size: 0,
                logical_block: 1,
                memory_alignment: 1,
                zeroes: false,
                punches: false,
            },
            segments: Vec::with_capacity(PIECES_USUAL),
            memory: Vec::with_capacity(PIECES_USUAL),
            staging: None,
            steps: Steps::default(),
            step_done: 0,
            again: 0,
            retries: 0,
        }
    }

    fn writes(&self) -> bool {
        matches!(self.order.verb, Verb::Write | Verb::WriteZeroes { .. })
    }

    /// First byte and end of the whole blocks that the transfer covers.
    fn blocks(&self) -> (u64, u64) {
        let block = u64::from(self.capabilities.logical_block);
        let end = self.order.offset + self.order.length;
        (self.order.offset - self.order.offset % block, end.next_multiple_of(block))
    }

    fn take_lists(&mut self) -> Lists {
        Lists {
            verb: self.order.verb,
            bounce: self.steps.bounce(),
            segments: std::mem::take(&mut self.segments),
            memory: std::mem::take(&mut self.memory),
            staging: self.staging.take(),
        }
    }

    fn put_lists(&mut self, lists: &mut Lists) {
        self.segments = std::mem::take(&mut lists.segments);
        self.memory = std::mem::take(&mut lists.memory);
        self.staging = lists.staging.take();
    }
}

/// Calls `f` with each metadata segment and its offset in a staging buffer; returns the size that
/// such a buffer needs.
fn for_each_piece(segments: &[Segment], mut f: impl FnMut(&Segment, usize)) -> usize {
    let mut at = 0;
    for segment in segments {
        if matches!(segment.place, Place::Meta { .. }) {
            f(segment, at);
            at += (segment.length as usize).next_multiple_of(PIECE_ALIGNMENT);
        }
    }
    at
}

/// The parameters of a step that are known when it is submitted.
impl Step {
    /// Bytes of the next submission when `done` bytes of the step are done.
    fn submitted_length(&self, done: u64) -> u64 {
        let left = self.length - done;
        if self.target == Target::Zeroes { left.min(super::steps::ZERO_CHUNK_BYTES) } else { left }
    }
}
