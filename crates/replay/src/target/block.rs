//! Files and block devices as targets, through the executor that also serves the cache. The
//! executor handles short transfers, retries, alignment and zeroing. A write that does not cover
//! whole blocks reads them first. As in the cache, an operation that a device could not accept is
//! retried after a pause.

use std::collections::VecDeque;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_block::{Flags, Nanos, Op, Volume};
use forebay_device::file::{DirectIo, Notice, OpenOptions, Target as File};
use forebay_device::{
    Arena, Backend, Devices, Doorbell, Executor, HugePages, Layer, Machine, MemorySlice, Pauses,
    RealDevices, Requests, precise_timers, uring,
};
use forebay_effect::{
    Device, Effect, EffectQueue, MetaBuffer, Outcome, Owner, Place, RequestId, Segment, Token,
};

use super::{Abilities, Done, Io, Limits, Target, TargetInfo, TargetVolume};
use crate::clock::SystemClock;
use crate::error::ReplayError;

/// Maximum number of requests in flight: many times what the kernel's queues hold.
const DEPTH_MAX: u32 = 4096;
/// The longest read or write in bytes. Longer requests are split.
const TRANSFER_BYTES_MAX: u64 = 64 << 20;

/// How to open files and block devices.
#[derive(Clone, Debug, Default)]
pub struct BlockOptions {
    /// The files and devices; each is one volume.
    pub paths: Vec<PathBuf>,
    /// Size in bytes of files to create; if `None`, all files must exist.
    pub create_bytes: Option<u64>,
    /// Open for reading only.
    pub read_only: bool,
    /// Whether to bypass the page cache.
    pub direct: DirectIo,
    /// The I/O backend.
    pub backend: Backend,
    /// Expected number of requests in flight.
    pub depth: u32,
}

/// Files and block devices as a target.
pub struct BlockTarget {
    queue: Queue<RealDevices>,
    volumes: Vec<TargetVolume>,
    notices: Vec<Notice>,
}

impl BlockTarget {
    /// Opens and locks all files and devices.
    ///
    /// # Errors
    /// If one of them does not exist, is in use or cannot be opened as requested, or if two paths
    /// lead to the same file. In that case nothing has been written, and created files are removed.
    pub fn open(options: &BlockOptions, clock: SystemClock) -> Result<BlockTarget, ReplayError> {
        let bell = Doorbell::new().map_err(|e| ReplayError::System("create an eventfd", e))?;
        let bell = Arc::new(bell);
        let entries = options.depth.clamp(8, DEPTH_MAX).next_power_of_two();
        let ring = uring::Options { entries, ..uring::Options::default() };
        let (mut devices, notice) = RealDevices::new(options.backend, ring, bell.clone())
            .map_err(|e| ReplayError::System("set up device I/O", e))?;
        let mut notices: Vec<Notice> = notice.into_iter().collect();
        check_distinct(&options.paths)?;
        let (mut volumes, mut files) = (Vec::new(), Vec::new());
        for (number, path) in options.paths.iter().enumerate() {
            let (file, opened) = File::open(&OpenOptions {
                create: options.create_bytes,
                read_only: options.read_only,
                direct: options.direct,
                ..OpenOptions::existing(path)
            })?;
            notices.extend(opened);
            volumes.push(TargetVolume {
                name: path.display().to_string(),
                size_bytes: file.size(),
                read_only: options.read_only,
                able: Abilities::ALL,
            });
            files.push((Device::Backing(Volume(number as u32)), file));
        }
        let arena = Arena::new(1, 4096, HugePages::Never)
            .map_err(|e| ReplayError::System("get memory", std::io::Error::other(e.to_string())))?;
        // Only now: until here, created files are removed again if a later file cannot be opened.
        for (device, mut file) in files {
            file.keep();
            devices.add(device, file);
        }
        for (number, volume) in volumes.iter_mut().enumerate() {
            // Where a trim would have to write zeroes, trims count as not supported.
            let capabilities = devices.capabilities(Device::Backing(Volume(number as u32)));
            volume.able.trim = capabilities.is_some_and(|able| able.zeroes);
        }
        precise_timers();
        Ok(BlockTarget { queue: Queue::new(devices, arena, bell, clock), volumes, notices })
    }

    /// What the user should know about the opened files and devices.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Describes the target for reports.
    pub fn info(&self) -> TargetInfo {
        let via = self.queue.executor.devices().inner().backend().to_owned();
        TargetInfo { kind: "block", via, volumes: self.volumes.clone() }
    }
}

/// The file or device that a path leads to.
#[derive(PartialEq)]
enum Destination {
    /// A file, by the device number of its file system and its inode number.
    File(u64, u64),
    /// A block device, by its device number.
    Device(u64),
    /// A file that does not exist yet, by its path.
    New(PathBuf),
}

impl Destination {
    fn of(path: &Path) -> Destination {
        match path.metadata() {
            Ok(meta) if meta.file_type().is_block_device() => Destination::Device(meta.rdev()),
            Ok(meta) => Destination::File(meta.dev(), meta.ino()),
            Err(_) => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let directory = parent.unwrap_or(Path::new(".")).canonicalize();
                let name = directory.ok().zip(path.file_name());
                Destination::New(name.map_or_else(|| path.to_owned(), |(at, name)| at.join(name)))
            }
        }
    }
}

/// Rejects paths that lead to the same file or device: its volumes would overwrite each other.
fn check_distinct(paths: &[PathBuf]) -> Result<(), ReplayError> {
    let mut seen: Vec<(Destination, &PathBuf)> = Vec::new();
    for path in paths {
        let place = Destination::of(path);
        if let Some((_, first)) = seen.iter().find(|(other, _)| *other == place) {
            let [first, second] = [first, &path].map(|path| path.display().to_string());
            return Err(ReplayError::SameTarget { first, second });
        }
        seen.push((place, path));
    }
    Ok(())
}

impl Target for BlockTarget {
    fn volumes(&self) -> &[TargetVolume] {
        &self.volumes
    }

    fn limits(&self) -> Limits {
        Limits {
            alignment_bytes: 1,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            zero_bytes_max: 1 << 40,
            depth_max: DEPTH_MAX,
        }
    }

    fn submit(&mut self, io: Io, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        let device = Device::Backing(Volume(io.volume));
        // (Whether a device supports trims may only become known when it receives one.)
        let empty = io.op == Op::Trim && !self.queue.executor.zeroes_cheaply(device, true);
        if empty || (io.op != Op::Flush && io.length == 0) {
            done.push(Done { io, result: Ok(()) });
            return Ok(());
        }
        self.queue.start(io);
        Ok(())
    }

    fn flush(&mut self, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        self.queue.run(done);
        Ok(())
    }

    fn wait(&mut self, until: Nanos, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        self.queue.wait(until, done);
        Ok(())
    }
}

/// The requests in flight on a set of devices.
struct Queue<D: Devices> {
    // First, and so dropped first: nothing is in flight when the table with the buffers is dropped.
    executor: Executor<Pauses<D>>,
    machine: PassThrough,
    table: Table,
    bell: Arc<Doorbell>,
    clock: SystemClock,
}

impl<D: Devices> Queue<D> {
    /// `bell` must be the doorbell of `devices`.
    fn new(devices: D, arena: Arena, bell: Arc<Doorbell>, clock: SystemClock) -> Queue<D> {
        let executor = Executor::new(Pauses::new(devices), arena);
        let (machine, table) = (PassThrough::default(), Table::default());
        Queue { executor, machine, table, bell, clock }
    }

    fn start(&mut self, io: Io) {
        self.machine.start(&mut self.table, io);
    }

    /// Performs all operations that are possible now, and appends completed requests to `done`.
    fn run(&mut self, done: &mut Vec<Done>) {
        while self.executor.run(&mut self.machine, &mut self.table).more {}
        done.append(&mut self.table.done);
    }

    /// Like [`run`](Self::run); but if no request has completed, waits once until one may have, a
    /// retry is due, or the clock shows `until`.
    fn wait(&mut self, until: Nanos, done: &mut Vec<Done>) {
        let before = done.len();
        self.run(done);
        if done.len() == before {
            let due = self.executor.devices().next_due();
            let until = due.into_iter().chain([self.clock.instant(until)]).min();
            self.bell.wait(until);
            self.run(done);
        }
    }
}

/// A machine that makes no decisions: each request is one operation, followed by a sync for FUA.
#[derive(Debug, Default)]
struct PassThrough {
    effects: EffectQueue,
    ended: VecDeque<(u32, Outcome)>,
    /// For each request in flight: the device to sync after the operation, if any.
    sync_after: Vec<Option<Device>>,
}

impl PassThrough {
    fn start(&mut self, table: &mut Table, io: Io) {
        let device = Device::Backing(Volume(io.volume));
        let (op, offset, length) = (io.op, io.offset, io.length);
        let fua = io.flags.contains(Flags::FUA);
        let no_hole = io.flags.contains(Flags::NO_HOLE);
        let index = table.enter(io);
        let token = token(index);
        if self.sync_after.len() <= index as usize {
            self.sync_after.resize(index as usize + 1, None);
        }
        self.sync_after[index as usize] = (fua && op.modifies()).then_some(device);
        let bytes = length as u32;
        let place = Place::Request { request: RequestId(index.into()), offset: 0 };
        let data = [Segment { place, length: bytes }];
        match op {
            Op::Read => {
                self.effects.push_with(Effect::Read { token, device, offset, length: bytes }, data)
            }
            Op::Write => {
                self.effects.push_with(Effect::Write { token, device, offset, length: bytes }, data)
            }
            Op::Trim | Op::WriteZeroes => {
                let punch = op == Op::Trim || !no_hole;
                self.effects.push(Effect::WriteZeroes { token, device, offset, length, punch });
            }
            Op::Flush => self.effects.push(Effect::Sync { token, device }),
        }
    }
}

fn token(index: u32) -> Token {
    Token { owner: Owner::Front, index }
}

impl Machine for PassThrough {
    fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        if let Some((index, result)) = self.ended.pop_front() {
            segments.clear();
            return Some(Effect::Reply { request: RequestId(index.into()), result });
        }
        self.effects.pop(segments)
    }

    fn handle_completion(&mut self, token: Token, outcome: Outcome) {
        match (self.sync_after[token.index as usize].take(), outcome) {
            (Some(device), Ok(())) => self.effects.push(Effect::Sync { token, device }),
            _ => self.ended.push_back((token.index, outcome)),
        }
    }

    fn handle_checksum(&mut self, _: Token, _: u32) {}

    fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8] {
        unreachable!("there is no metadata buffer {buffer:?}")
    }
}

/// Requests in flight, with their buffers.
#[derive(Debug, Default)]
struct Table {
    entries: Vec<Option<Io>>,
    free: Vec<u32>,
    done: Vec<Done>,
}

impl Table {
    /// Adds a request and returns its index.
    ///
    /// # Panics
    /// If the buffer is missing or too small, because the device would then access memory that does
    /// not belong to the request.
    fn enter(&mut self, io: Io) -> u32 {
        if matches!(io.op, Op::Read | Op::Write) {
            let room = io.buffer.as_ref().map_or(0, |b| b.len() as u64);
            assert!(room >= io.length, "the buffer of the request is too small");
        }
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(io);
                index
            }
            None => {
                self.entries.push(Some(io));
                self.entries.len() as u32 - 1
            }
        }
    }
}

// SAFETY: the memory belongs to the `AlignedBuffer` of an entry, which is on the heap, is not
// touched while the entry exists, and leaves the entry only in `reply`. A target drops its executor
// before its table.
unsafe impl Requests for Table {
    fn data(&mut self, request: RequestId) -> MemorySlice {
        let entry = self.entries[request.0 as usize].as_ref();
        let buffer = entry.and_then(|io| io.buffer.as_ref()).expect("the request is in flight");
        MemorySlice { pointer: buffer.pointer(), length: buffer.len() }
    }

    fn reply(&mut self, request: RequestId, result: Outcome) {
        let io = self.entries[request.0 as usize].take().expect("the request is in flight");
        self.free.push(request.0 as u32);
        self.done.push(Done { io, result });
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use forebay_device::{AlignedBuffer, Capabilities, Completion, DeviceError, Io as DeviceIo};

    use super::*;
    use crate::clock::Clock;

    /// A device that accepts no operation before `until`, as when the kernel is short of memory.
    struct Busy {
        bell: Arc<Doorbell>,
        until: Instant,
        attempts: u32,
        ended: Vec<Completion>,
    }

    impl Devices for Busy {
        fn capabilities(&self, _: Device) -> Option<Capabilities> {
            Some(Capabilities {
                size: 4096,
                logical_block: 512,
                memory_alignment: 1,
                zeroes: false,
                punches: false,
            })
        }

        unsafe fn submit(&mut self, io: DeviceIo<'_>) {
            self.attempts += 1;
            let busy = Instant::now() < self.until;
            let result = if busy { Err(DeviceError::Again) } else { Ok(io.length) };
            self.ended.push(Completion { tag: io.tag, result });
            self.bell.ring();
        }

        fn reap(&mut self, done: &mut Vec<Completion>) {
            done.append(&mut self.ended);
        }

        fn abandon(&mut self) {
            self.ended.clear();
        }

        fn doorbell(&self) -> Option<Arc<Doorbell>> {
            Some(self.bell.clone())
        }
    }

    /// Without pauses, all attempts would fail within microseconds.
    #[test]
    fn a_request_outlasts_a_device_that_accepts_nothing_for_a_moment() {
        let (bell, clock) = (Arc::new(Doorbell::new().unwrap()), SystemClock::start());
        let until = Instant::now() + Duration::from_millis(50);
        let busy = Busy { bell: bell.clone(), until, attempts: 0, ended: Vec::new() };
        let arena = Arena::new(1, 4096, HugePages::Never).unwrap();
        let mut queue = Queue::new(busy, arena, bell, clock);
        let (op, flags, buffer) = (Op::Read, Flags::NONE, Some(AlignedBuffer::new(512)));
        queue.start(Io { tag: 1, volume: 0, op, flags, offset: 0, length: 512, buffer });
        let (mut done, far) = (Vec::new(), Nanos(clock.now().0 + 60_000_000_000));
        while done.is_empty() {
            queue.wait(far, &mut done);
        }
        assert_eq!(done[0].result, Ok(()));
        assert!(clock.now() < far, "a wait did not end when the pause was over");
        let attempts = queue.executor.devices().inner().attempts;
        assert!(attempts < 64, "{attempts} attempts");
    }
}
