//! An export that several users share: one session, one thread.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_block::{Content, ContentRun, Flags, Op};
use forebay_effect::{IoError, Outcome};
use forebay_nbd::{NbdUri, StatusExtent, StatusFlags, TransmissionFlags};

use super::connection::{Connection, Ended, Job};
use super::error::NbdError;
use crate::buffer::AlignedBuffer;
use crate::devices::DeviceError;
use crate::doorbell::Doorbell;
use crate::holes::Holes;

/// Maximum number of requests in flight; further ones wait in `State::asked`.
const DEPTH_MAX: u32 = 128;
/// The smallest logical block in bytes: the smallest granule of the machine.
const SECTOR_BYTES: u32 = 512;

/// An open export of an NBD server. Dropping it ends the session when all requests have ended.
#[derive(Debug)]
pub struct Export {
    size: u64,
    logical_block: u32,
    transfer_bytes_max: u64,
    features: TransmissionFlags,
    has_allocation: bool,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the session's thread.
    wake: Doorbell,
}

#[derive(Debug, Default)]
struct State {
    asked: VecDeque<(Asker, Job)>,
    /// Ended jobs of the devices.
    ended: Vec<Ended>,
    /// Rings when a job is added to `ended`.
    bell: Option<Arc<Doorbell>>,
    /// Why the session failed.
    failure: Option<String>,
    /// The time at which the session fails if it has not ended before.
    give_up_at: Option<Instant>,
    quit: bool,
}

/// The recipient of a job's result.
#[derive(Debug)]
enum Asker {
    Devices,
    Caller(Sender<Ended>),
}

impl Export {
    /// Connects to `nbd://...` or `nbd+unix://...`. An export without flush can only be read: writes to
    /// it are refused here, so a sync has nothing to do.
    ///
    /// # Errors
    /// If the address is invalid, or the server cannot be reached, does not have the export,
    /// requires TLS, or offers no flush on a writable export.
    pub fn open(address: &str, read_only: bool) -> Result<Export, NbdError> {
        let uri: NbdUri = address
            .parse()
            .map_err(|source| NbdError::Uri { address: address.to_owned(), source })?;
        Export::over(Connection::open(&uri, DEPTH_MAX, true)?, address, read_only)
    }

    /// The export at the other end of a connection to `address`.
    pub(super) fn over(
        connection: Connection,
        address: &str,
        read_only: bool,
    ) -> Result<Export, NbdError> {
        let found = connection.export();
        let (size, features, sizes) = (found.size_bytes, found.features, found.block_sizes);
        let writable = !read_only && !features.contains(TransmissionFlags::READ_ONLY);
        if writable && !features.contains(TransmissionFlags::SEND_FLUSH) {
            return Err(NbdError::NoFlush(address.to_owned()));
        }
        let has_allocation = connection.has_allocation();
        let logical_block = sizes.minimum_bytes().max(SECTOR_BYTES);
        let longest = u64::from(sizes.payload_bytes_max()).min(32 << 20);
        let failed =
            |action| move |source| NbdError::System { address: address.to_owned(), action, source };
        let wake = Doorbell::new().map_err(failed("create an eventfd"))?;
        let shared = Arc::new(Shared { state: Mutex::default(), wake });
        let session = Session {
            address: address.to_owned(),
            connection,
            shared: shared.clone(),
            askers: HashMap::new(),
            next: 0,
        };
        let thread = std::thread::Builder::new()
            .name("forebay-nbd".into())
            .spawn(move || session.work())
            .map_err(failed("start a thread"))?;
        Ok(Export {
            size: size - size % u64::from(logical_block),
            logical_block,
            transfer_bytes_max: longest - longest % u64::from(logical_block),
            features,
            has_allocation,
            shared,
            thread: Some(thread),
        })
    }

    /// Size in bytes, rounded down to whole logical blocks.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The unit of offsets and lengths, in bytes.
    pub fn logical_block(&self) -> u32 {
        self.logical_block
    }

    /// The longest read or write, in bytes.
    pub fn transfer_bytes_max(&self) -> u64 {
        self.transfer_bytes_max
    }

    /// Whether the server refuses writes.
    pub fn is_read_only(&self) -> bool {
        self.features.contains(TransmissionFlags::READ_ONLY)
    }

    /// Whether writes can be made durable.
    pub fn can_flush(&self) -> bool {
        self.features.contains(TransmissionFlags::SEND_FLUSH)
    }

    /// Whether ranges can be zeroed.
    pub fn can_zero(&self) -> bool {
        self.features.contains(TransmissionFlags::SEND_WRITE_ZEROES)
    }

    /// Finds the holes that the server reports from byte `base` of the export on; `None` if the
    /// server does not report holes.
    pub fn holes(self: &Arc<Export>, base: u64) -> Option<Arc<dyn Holes>> {
        let export = self.clone();
        self.has_allocation.then(|| Arc::new(ExportHoles { export, base }) as Arc<dyn Holes>)
    }

    /// Why the session has failed, if it has: no operation will succeed any more.
    pub fn failure(&self) -> Option<String> {
        self.shared.state().failure.clone()
    }

    /// Fills `into` with the bytes from `offset` on, blocking.
    ///
    /// # Errors
    /// If the server or the session fails.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        let piece = usize::try_from(self.transfer_bytes_max).unwrap_or(usize::MAX);
        for (n, into) in into.chunks_mut(piece).enumerate() {
            let buffer = Some(AlignedBuffer::new(into.len()));
            let at = offset + (n * piece) as u64;
            let ended = self.perform(job(Op::Read, at, into.len() as u64, buffer))?;
            if let Some(buffer) = ended.buffer {
                into.copy_from_slice(&buffer[..into.len()]);
            }
        }
        Ok(())
    }

    /// Writes `from` at `offset`, blocking.
    ///
    /// # Errors
    /// If the server or the session fails.
    pub fn write_at(&self, from: &[u8], offset: u64) -> Result<(), DeviceError> {
        let piece = usize::try_from(self.transfer_bytes_max).unwrap_or(usize::MAX);
        for (n, from) in from.chunks(piece).enumerate() {
            let mut buffer = AlignedBuffer::new(from.len());
            buffer[..from.len()].copy_from_slice(from);
            let at = offset + (n * piece) as u64;
            self.perform(job(Op::Write, at, from.len() as u64, Some(buffer)))?;
        }
        Ok(())
    }

    /// Makes all writes durable, blocking.
    ///
    /// # Errors
    /// If the server or the session fails.
    pub fn sync(&self) -> Result<(), DeviceError> {
        self.perform(job(Op::Flush, 0, 0, None)).map(|_| ())
    }

    /// Asks the server for the block status of a range of whole logical blocks, blocking. The
    /// answer may cover only the start of the range.
    fn status(&self, offset: u64, length: u64) -> Result<Vec<StatusExtent>, DeviceError> {
        let status = Some(Vec::new());
        let ended = self.perform(Job { status, ..job(Op::Read, offset, length, None) })?;
        Ok(ended.status.unwrap_or_default())
    }

    fn perform(&self, job: Job) -> Result<Job, DeviceError> {
        let (sender, receiver) = channel();
        self.ask(Asker::Caller(sender), job);
        // A thread that has exited has dropped the sender.
        let ended = receiver.recv().map_err(|_| DeviceError::Gone)?;
        ended.result.map_err(device_error)?;
        Ok(ended.job)
    }

    /// Rings `bell` when jobs of [`begin`](Export::begin) end.
    pub(super) fn ring(&self, bell: Arc<Doorbell>) {
        self.shared.state().bell = Some(bell);
    }

    /// Submits a job.
    pub(super) fn begin(&self, job: Job) {
        self.ask(Asker::Devices, job);
    }

    /// Appends the ended jobs to `into`.
    pub(super) fn take_ended(&self, into: &mut Vec<Ended>) {
        into.append(&mut self.shared.state().ended);
    }

    /// Fails the operations that do not end before `at`, and all that begin later. Whether the
    /// server executes them is unknown. If an earlier time was set before, it stays.
    pub fn give_up_at(&self, at: Instant) {
        let mut state = self.shared.state();
        let earlier = state.give_up_at.filter(|&earlier| earlier <= at);
        state.give_up_at = Some(earlier.unwrap_or(at));
        drop(state);
        self.shared.wake.ring();
    }

    fn ask(&self, asker: Asker, job: Job) {
        self.shared.state().asked.push_back((asker, job));
        self.shared.wake.ring();
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.shared.state().quit = true;
        self.shared.wake.ring();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already reported it.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock; if something did, the lists of jobs would still be valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The holes of a part of an export.
#[derive(Debug)]
struct ExportHoles {
    export: Arc<Export>,
    base: u64,
}

/// Maximum length of one block status query in bytes; it must fit in 32 bits.
const STATUS_BYTES_MAX: u64 = 1 << 31;

impl Holes for ExportHoles {
    fn find(&self, offset: u64, length: u64, found: &mut Vec<ContentRun>) {
        let block = u64::from(self.export.logical_block);
        let offset = self.base + offset;
        let mut lead = offset % block;
        let length = (lead + length).next_multiple_of(block).min(STATUS_BYTES_MAX);
        // If the server or the session fails, no holes are known.
        let extents = self.export.status(offset - lead, length).unwrap_or_default();
        for StatusExtent { length, flags } in extents {
            let before = lead.min(length);
            lead -= before;
            // A hole without the flag for zeroes may hold anything.
            let content = match flags.0 & StatusFlags::HOLE_ZERO.0 {
                3 => Content::Hole,
                2 => Content::Zeroes,
                _ => Content::Data,
            };
            found.push(ContentRun { content, length: length - before });
        }
    }
}

/// The state of the session's thread.
struct Session {
    address: String,
    connection: Connection,
    shared: Arc<Shared>,
    /// The asker of each job and the asker's tag for it, by the tag in the session.
    askers: HashMap<u64, (Asker, u64)>,
    next: u64,
}

impl Session {
    fn work(mut self) {
        let mut ended = Vec::new();
        let mut readable = false;
        loop {
            let passed = self.pass(readable, &mut ended);
            self.deliver(&mut ended);
            let more = match passed {
                Ok(more) => more,
                Err(error) => return self.fail(&error),
            };
            let state = self.shared.state();
            if state.quit && state.asked.is_empty() && self.connection.in_flight() == 0 {
                return;
            }
            let room = !state.asked.is_empty() && !self.connection.is_full();
            let left = state.give_up_at.map(|at| at.saturating_duration_since(Instant::now()));
            drop(state);
            if left.is_some_and(|left| left.is_zero()) {
                let error = NbdError::GivenUp(self.address.clone());
                return self.fail(&error);
            }
            let check = self.connection.check_due();
            readable = match room || more {
                true => self.connection.in_flight() > 0,
                false => self.wait(left.into_iter().chain(check).min()),
            };
        }
    }

    /// Sends what is possible now and receives a limited amount. Returns whether there may be more
    /// to receive.
    fn pass(&mut self, readable: bool, ended: &mut Vec<Ended>) -> Result<bool, NbdError> {
        self.connection.check()?;
        while !self.connection.is_full() {
            let Some((asker, mut job)) = self.shared.state().asked.pop_front() else { break };
            self.askers.insert(self.next, (asker, job.tag));
            job.tag = self.next;
            self.next += 1;
            match self.answer_without_flush(job.op) {
                Some(result) => ended.push(Ended { job, result }),
                None => self.connection.submit(job, ended)?,
            }
        }
        self.connection.send()?;
        if !readable {
            return Ok(false);
        }
        let more = self.connection.receive(ended)?;
        self.connection.send()?;
        Ok(more)
    }

    /// The result of an operation that is not sent to an export without flush: writes are refused,
    /// because they could not be made durable, and a flush has nothing to do.
    fn answer_without_flush(&self, op: Op) -> Option<Outcome> {
        if self.connection.export().features.contains(TransmissionFlags::SEND_FLUSH) {
            return None;
        }
        match op {
            Op::Read => None,
            Op::Flush => Some(Ok(())),
            Op::Write | Op::Trim | Op::WriteZeroes => Some(Err(IoError::ReadOnly)),
        }
    }

    fn deliver(&mut self, ended: &mut Vec<Ended>) {
        let mut bell = None;
        for mut ended in ended.drain(..) {
            let Some((asker, tag)) = self.askers.remove(&ended.job.tag) else { continue };
            ended.job.tag = tag;
            match asker {
                Asker::Devices => {
                    let mut state = self.shared.state();
                    state.ended.push(ended);
                    bell.clone_from(&state.bell);
                }
                // A caller that no longer waits does not need the result.
                Asker::Caller(sender) => drop(sender.send(ended)),
            }
        }
        if let Some(bell) = bell {
            bell.ring();
        }
    }

    /// Ends the session: all present and future jobs fail.
    fn fail(mut self, error: &NbdError) {
        self.shared.state().failure = Some(error.to_string());
        let lost = |job| Ended { job, result: Err(IoError::Shutdown) };
        let mut ended: Vec<Ended> = self.connection.abandon().map(lost).collect();
        self.deliver(&mut ended);
        loop {
            let mut state = self.shared.state();
            let asked: Vec<_> = state.asked.drain(..).collect();
            let quit = state.quit;
            drop(state);
            for (asker, job) in asked {
                self.askers.insert(self.next, (asker, job.tag));
                ended.push(lost(Job { tag: self.next, ..job }));
                self.next += 1;
            }
            self.deliver(&mut ended);
            if quit {
                return;
            }
            self.shared.wake.wait(None);
        }
    }

    /// Waits for the socket or for jobs, for at most `left` (`None`: without limit). Returns
    /// whether the socket may be ready.
    fn wait(&self, left: Option<Duration>) -> bool {
        let writes = if self.connection.wants_to_write() { libc::POLLOUT } else { 0 };
        let mut polled = [
            libc::pollfd {
                fd: self.connection.as_raw_fd(),
                events: libc::POLLIN | writes,
                revents: 0,
            },
            libc::pollfd { fd: self.shared.wake.as_raw_fd(), events: libc::POLLIN, revents: 0 },
        ];
        // (Rounded up, so that the time has passed when the wait ends.)
        let milliseconds = left.map_or(-1, |left| left.as_millis().min(1 << 30) as i32 + 1);
        // SAFETY: the list outlives the call.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), 2, milliseconds) };
        if polled[1].revents != 0 {
            self.shared.wake.clear();
        }
        ready < 0 || polled[0].revents & !libc::POLLOUT != 0
    }
}

fn job(op: Op, offset: u64, length: u64, buffer: Option<AlignedBuffer>) -> Job {
    Job { tag: 0, op, flags: Flags::NONE, offset, length, buffer, status: None }
}

/// Converts an error to the one that devices report.
pub(super) fn device_error(error: IoError) -> DeviceError {
    match error {
        IoError::NoSpace => DeviceError::NoSpace,
        IoError::ReadOnly => DeviceError::ReadOnly,
        IoError::Unsupported => DeviceError::Unsupported,
        IoError::Invalid => DeviceError::Invalid,
        IoError::Shutdown => DeviceError::Gone,
        _ => DeviceError::Io,
    }
}
