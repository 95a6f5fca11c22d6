//! Records the requests of clients as a trace in Forebay's format.
//!
//! A connection notes each answered request in its list, without holding the engine's lock. A
//! thread collects the lists ten times a second, sorts the requests by arrival time and writes
//! them.
//!
//! With hashes, the connection's thread hashes each 4 KiB of a read's or write's data with
//! XXH3-128. This finds equal contents but does not protect against malice: anyone can construct
//! two blocks with the same hash.
//!
//! To record a sample, connections still note all requests: the thread counts them and the time
//! between them, and writes the part of each that the sampler of `forebay sample` keeps. Only
//! requests that are kept whole are hashed.
//!
//! A recording that fails ends and reports the failure ([`RecordingView`]); clients are still
//! served. A file that accepts no data, such as one on a file system whose server does not answer,
//! blocks only the thread: the memory for noted requests is bounded, and so is the time that
//! [`Recording::finish`] waits.

mod scribe;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_block::{Nanos, Request};
use forebay_effect::{IoError, Outcome};
use forebay_engine::{Clock, Done, VolumeDescription};
use forebay_trace::{ParquetTraceWriter, SampleSpec, Sampler, TraceError};
use schemars::JsonSchema;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use scribe::Scribe;

/// Bytes of data that one hash covers.
const UNIT_BYTES: usize = 4096;
/// Bytes of a hash.
const DIGEST_BYTES: usize = 16;
/// Maximum size, in bytes, of the requests that are noted but not yet written. Beyond this, the
/// recording fails. The thread holds back at most half of it; the other half is for requests that
/// arrive while the thread writes.
const WAITING_BYTES_MAX: i64 = 2 * scribe::HELD_BYTES_MAX;
/// How long the file may take to accept the end of the trace.
const PATIENCE: Duration = Duration::from_secs(15);

/// How to record.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordOptions {
    /// The trace file to write.
    pub path: PathBuf,
    /// Whether to hash contents.
    pub hash: bool,
    /// The sample to record; `None` records all requests. Other requests are only counted.
    pub sample: Option<SampleSpec>,
}

/// What was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recorded {
    /// Requests received. If a sample was recorded, the number written can be smaller, or larger
    /// because the sampler splits requests.
    pub requests: u64,
    /// Requests written: all of them, or the parts that are in the sample.
    pub kept: u64,
    /// Requests that reached the thread after a later one had been written, so that they were given
    /// the time of their predecessor. This includes requests outside the sample.
    pub late: u64,
}

/// What operators see of a recording.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RecordingStatus {
    /// The trace file.
    pub path: PathBuf,
    /// Requests recorded so far.
    pub requests: u64,
    /// Why the recording failed, and which part of it was kept; null while it continues.
    pub failure: Option<String>,
}

/// A view of a recording, for operators.
#[derive(Clone, Debug)]
pub(crate) struct RecordingView(Arc<Shared>);

impl RecordingView {
    /// The message of the failure, if the recording has failed.
    pub fn failure(&self) -> Option<&str> {
        self.0.failure.get().map(String::as_str)
    }

    /// The status, for `GET /status`.
    pub fn status(&self) -> RecordingStatus {
        RecordingStatus {
            path: self.0.path.clone(),
            requests: self.0.requests.load(Ordering::Relaxed),
            failure: self.failure().map(str::to_owned),
        }
    }
}

/// An answered request.
#[derive(Clone, Debug)]
struct Entry {
    request: Request,
    latency: Nanos,
    result: u8,
    hashes: Box<[u8]>,
}

impl Entry {
    /// Memory that the entry takes, in bytes.
    fn bytes(&self) -> i64 {
        (size_of::<Entry>() + self.hashes.len()) as i64
    }
}

type List = Arc<Mutex<Vec<Entry>>>;

/// Where a connection notes its requests.
#[derive(Debug)]
pub(crate) struct Notes {
    list: List,
    shared: Arc<Shared>,
}

impl Notes {
    /// Whether the recording hashes data, which must then be in the requests' buffers.
    pub fn hashes(&self) -> bool {
        self.shared.hash
    }

    /// Notes answered requests, whose buffers must still hold the data.
    pub fn note<'a>(&self, now: Nanos, done: impl Iterator<Item = &'a Done>) {
        if self.shared.failure.get().is_some() {
            // The thread no longer collects the lists.
            return;
        }
        let hash = self.shared.hash;
        let entry = |d: &Done| Entry {
            request: Request {
                time: d.arrived,
                volume: d.request.volume,
                op: d.request.op,
                flags: d.request.flags,
                offset: d.request.offset,
                length: d.request.length,
            },
            latency: now.saturating_sub(d.arrived),
            result: errno(d.result),
            hashes: if hash { self.shared.hashes(d) } else { Box::default() },
        };
        let mut bytes = 0;
        let entries = done.map(entry).inspect(|entry| bytes += entry.bytes());
        if hash {
            // Hash the data before locking the list.
            let entries: Vec<Entry> = entries.collect();
            self.list().extend(entries);
        } else {
            self.list().extend(entries);
        }
        // The count is negative for a moment if the thread has written the entries already.
        let waiting = self.shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if waiting > WAITING_BYTES_MAX {
            let path = self.shared.path.display();
            self.shared.give_up(
                &format!(
                    "the recording has failed, because writing to {path} is too slow: {} MiB of \
                     requests are waiting to be written",
                    waiting >> 20
                ),
                ". Clients are still being served",
            );
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A recording in progress.
#[derive(Debug)]
pub(crate) struct Recording {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Recorded>>>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    lists: Mutex<Vec<List>>,
    hash: bool,
    sampler: Option<Sampler>,
    over: AtomicBool,
    /// Requests recorded so far.
    requests: AtomicU64,
    /// Bytes of requests that are noted but not yet written.
    waiting_bytes: AtomicI64,
    /// Whether a checkpoint was written: the trace up to it stays readable whatever happens next.
    saved: AtomicBool,
    /// The message of the failure, once the recording has failed.
    failure: OnceLock<String>,
}

/// The file of a recording that has not started. Dropping this removes the file.
pub(crate) struct RecordingFile<'a> {
    options: &'a RecordOptions,
    sampler: Option<Sampler>,
    writer: ParquetTraceWriter,
}

impl<'a> RecordingFile<'a> {
    /// Creates the file.
    ///
    /// # Errors
    /// If the file cannot be created, or the parameters of the sample are invalid.
    pub fn create(options: &'a RecordOptions) -> Result<Self, TraceError> {
        let sampler = options.sample.map(Sampler::new).transpose()?;
        let writer = ParquetTraceWriter::create_recording(&options.path)?;
        Ok(RecordingFile { options, sampler, writer })
    }

    /// Starts the recording. `oldest` returns the arrival time of the oldest request in flight.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        self,
        clock: Clock,
        volumes: &[VolumeDescription],
        oldest: impl Fn() -> Option<Nanos> + Send + 'static,
    ) -> std::io::Result<Recording> {
        let RecordingFile { options, sampler, writer } = self;
        let metadata = scribe::metadata(options, volumes);
        let shared = Arc::new(Shared {
            path: options.path.clone(),
            lists: Mutex::default(),
            hash: options.hash,
            sampler,
            over: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            waiting_bytes: AtomicI64::new(0),
            saved: AtomicBool::new(false),
            failure: OnceLock::new(),
        });
        let scribe = Scribe::new(shared.clone(), clock, writer, metadata, Box::new(oldest));
        let thread = std::thread::Builder::new().name("forebay-record".into());
        let thread = thread.spawn(move || scribe.record());
        Ok(Recording { shared, thread: Mutex::new(Some(thread?)) })
    }
}

impl Recording {
    /// Creates the list for a new connection.
    pub fn notes(&self) -> Notes {
        let list = List::default();
        let mut lists = self.shared.lists();
        if self.shared.failure.get().is_none() {
            lists.push(list.clone());
        }
        drop(lists);
        Notes { list, shared: self.shared.clone() }
    }

    /// The message of the failure, if the recording has failed.
    pub fn failure(&self) -> Option<String> {
        self.shared.failure.get().cloned()
    }

    /// A view for operators.
    pub fn view(&self) -> RecordingView {
        RecordingView(self.shared.clone())
    }

    /// Writes the remaining requests and ends the trace. Returns what was recorded, up to the
    /// failure if the recording has failed. The recording also fails if its file does not accept
    /// the remaining requests in time.
    pub fn finish(&self) -> Recorded {
        self.finish_within(PATIENCE)
    }

    fn finish_within(&self, patience: Duration) -> Recorded {
        self.shared.over.store(true, Ordering::Release);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Recorded::default() };
        thread.thread().unpark();
        let until = Instant::now() + patience;
        let failed = || self.shared.failure.get().is_some();
        while !thread.is_finished() && !failed() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            return thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        // The thread may be blocked in the kernel forever. It ends with the process.
        let path = self.shared.path.display();
        self.shared.give_up(
            &format!(
                "the recording is incomplete: the last requests could not be written to {path} \
                 within {} s",
                patience.as_secs()
            ),
            "",
        );
        Recorded { requests: self.shared.requests.load(Ordering::Relaxed), ..Recorded::default() }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    fn lists(&self) -> MutexGuard<'_, Vec<List>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a recording after a write error. The writer must be dropped first, so that a partial
    /// file exists only if it is worth keeping.
    fn fail(&self, error: &TraceError) {
        let partial = self.partial();
        let kept = match partial.exists() {
            true => format!("{} contains all requests up to the last save", partial.display()),
            false => "nothing was kept".to_owned(),
        };
        self.end(format!(
            "the recording has failed: {error}; {kept}. Clients are still being served"
        ));
    }

    /// Ends a recording whose thread may be blocked. The message consists of `why`, what is kept,
    /// and `then`.
    fn give_up(&self, why: &str, then: &str) {
        let partial = self.partial();
        let kept = match self.saved.load(Ordering::Acquire) && partial.exists() {
            true => format!("{} contains all requests up to the last save", partial.display()),
            false => "nothing was kept".to_owned(),
        };
        self.end(format!("{why}; {kept}{then}"));
    }

    /// Sets the message of the failure and drops all lists. From now on, requests are no longer
    /// noted.
    fn end(&self, message: String) {
        // Only the first failure counts.
        let _ = self.failure.set(message);
        for list in self.lists().drain(..) {
            *list.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
        }
    }

    /// The name of the file until it is complete.
    fn partial(&self) -> PathBuf {
        let mut partial = self.path.clone().into_os_string();
        partial.push(".partial");
        partial.into()
    }

    /// The hashes of a request for the trace. In a sample, only requests that are kept whole have
    /// hashes.
    fn hashes(&self, done: &Done) -> Box<[u8]> {
        let submitted = &done.request;
        let request = Request {
            time: done.arrived,
            volume: submitted.volume,
            op: submitted.op,
            flags: submitted.flags,
            offset: submitted.offset,
            length: submitted.length,
        };
        match &self.sampler {
            Some(sampler) if !sampler.keeps_whole(&request) => Box::default(),
            _ => hashes(done),
        }
    }
}

/// Hashes the data of a successful request that covers whole units. Empty for any other request.
fn hashes(done: &Done) -> Box<[u8]> {
    let request = &done.request;
    let whole = (request.offset | request.length).is_multiple_of(UNIT_BYTES as u64);
    match &request.buffer {
        Some(buffer) if whole && done.result.is_ok() => buffer[..request.length as usize]
            .chunks_exact(UNIT_BYTES)
            .flat_map(|unit| xxh3_128(unit).to_be_bytes())
            .collect(),
        _ => Box::default(),
    }
}

fn errno(result: Outcome) -> u8 {
    let number = match result {
        Ok(()) => 0,
        Err(IoError::NoSpace) => libc::ENOSPC,
        Err(IoError::ReadOnly) => libc::EPERM,
        Err(IoError::Invalid) => libc::EINVAL,
        Err(IoError::Unsupported) => libc::EOPNOTSUPP,
        Err(IoError::Shutdown) => libc::ESHUTDOWN,
        Err(_) => libc::EIO,
    };
    number as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::{Flags, Op, Volume};
    use forebay_device::AlignedBuffer;
    use forebay_engine::{Loans, Submission};
    use forebay_trace::Batch;
    use std::io::{PipeReader, PipeWriter, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::path::Path;

    fn done(time: u64, op: Op, byte: u8) -> Done {
        let mut buffer = AlignedBuffer::new(8192);
        buffer.fill(byte);
        Done {
            request: Submission {
                tag: 0,
                volume: Volume(0),
                op,
                flags: Flags::FUA,
                offset: 4096,
                length: 8192,
                buffer: Some(buffer),
            },
            result: Ok(()),
            arrived: Nanos(time),
            lent: Loans::new(),
        }
    }

    fn start(path: &Path, sample: Option<SampleSpec>) -> Recording {
        start_with(RecordOptions { path: path.to_owned(), hash: true, sample })
    }

    fn start_with(options: RecordOptions) -> Recording {
        let volumes = [VolumeDescription {
            name: "vm1".into(),
            volume: Volume(0),
            size_bytes: 1 << 20,
            read_only: false,
        }];
        let file = RecordingFile::create(&options).unwrap();
        file.start(Clock::start(), &volumes, || None).unwrap()
    }

    #[test]
    fn a_recorded_sample_is_the_sample_of_what_is_recorded() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let spec = SampleSpec { rate: 0.3, bits: 1, seed: 0, number: 0 };
        for (name, sample) in [("all.parquet", None), ("sample.parquet", Some(spec))] {
            let recording = start(&path(name), sample);
            let notes = recording.notes();
            for n in 0..500u64 {
                let op = if n % 3 == 0 { Op::Write } else { Op::Read };
                let mut done = done(100 + n * n, op, n as u8);
                done.request.offset = n % 70 * 4096;
                notes.note(Nanos(1 << 20), [done].iter());
            }
            assert_eq!(recording.finish().requests, 500);
        }
        let read = |name: &str| {
            let mut trace = forebay_trace::open(path(name), &Default::default()).unwrap();
            let mut batch = Batch::default();
            trace.read_batch(&mut batch).unwrap();
            (batch, trace.metadata().sample)
        };
        let ((all, none), (sample, info)) = (read("all.parquet"), read("sample.parquet"));
        let (mut expected, mut whole) = (Batch::default(), forebay_trace::Moments::default());
        let sampler = Sampler::new(spec).unwrap();
        for n in 0..all.len() {
            let gap = Nanos(all.time_ns[n] - all.time_ns[n.saturating_sub(1)]);
            whole.add(&all.request(n), gap);
            sampler.sample(&all.record(n), gap, &mut expected);
        }
        assert!((50..450).contains(&sample.len()), "{}", sample.len());
        assert_eq!(sample.len(), expected.len());
        for n in 0..sample.len() {
            assert_eq!(sample.record(n), expected.record(n), "request {n}");
        }
        let info = info.unwrap();
        assert_eq!((none, info.requests, info.whole), (None, 500, whole));
        assert_eq!((info.rate, info.bits), (0.3, 1));
    }

    /// More requests than the writer buffers.
    const MANY: usize = 300_000;

    #[test]
    fn a_recording_that_fails_says_so_while_it_is_under_way_and_takes_no_more() {
        let path = PathBuf::from("/dev/full");
        let recording = start_with(RecordOptions { path, hash: false, sample: None });
        let (notes, view, one) = (recording.notes(), recording.view(), done(100, Op::Read, 1));
        assert_eq!(view.failure(), None);
        notes.note(Nanos(500), std::iter::repeat_n(&one, MANY));
        // Requests that arrived within the last `NOTED_WITHIN` are not written yet.
        while view.failure().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let failure = view.failure().unwrap();
        let words = ["/dev/full", "No space left", "nothing was kept", "still being served"];
        assert!(words.iter().all(|word| failure.contains(word)), "{failure}");
        notes.note(Nanos(500), [&one].into_iter());
        assert!(notes.list().is_empty(), "nobody would collect it");
        assert!(recording.finish().requests <= MANY as u64);
    }

    #[test]
    fn a_recording_that_cannot_be_ended_has_failed() {
        let recording = start(Path::new("/dev/full"), None);
        recording.notes().note(Nanos(500), [done(100, Op::Read, 1)].iter());
        assert_eq!(recording.finish().requests, 1);
        let status = recording.view().status();
        assert!(status.failure.is_some_and(|failure| failure.contains("No space left")));
        assert_eq!((status.requests, status.path), (1, PathBuf::from("/dev/full")));
    }

    #[test]
    fn a_failure_names_what_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let recording = start(&directory.path().join("x.parquet"), None);
        let error = || TraceError::Options("no room".to_owned());
        // As after a checkpoint: the partial file of this recording is still there.
        recording.shared.fail(&error());
        let view = recording.view();
        let failure = view.failure().unwrap();
        assert!(failure.contains("x.parquet.partial"), "{failure}");
    }

    /// A recording to a pipe that accepts no more data, and the pipe.
    fn start_stalled() -> (Recording, PipeReader, PipeWriter) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
        let recording = start_with(RecordOptions { path, hash: false, sample: None });
        // Fill the pipe.
        writer.write_all(&[0; 64 << 10]).unwrap();
        (recording, reader, writer)
    }

    #[test]
    fn the_end_of_a_recording_does_not_wait_for_a_file_that_accepts_no_data() {
        let (recording, reader, writer) = start_stalled();
        recording.notes().note(Nanos(500), [done(100, Op::Read, 1)].iter());
        let began = Instant::now();
        assert_eq!(recording.finish_within(Duration::from_secs(1)).kept, 0);
        assert!(began.elapsed() < Duration::from_secs(20));
        let failure = recording.failure().unwrap();
        let words = ["incomplete", "/proc/self/fd", "within 1 s", "nothing was kept"];
        assert!(words.iter().all(|word| failure.contains(word)), "{failure}");
        // The thread ends: its writes fail.
        drop((reader, writer));
    }

    #[test]
    fn a_recording_that_lags_behind_too_far_fails_and_takes_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.parquet");
        let recording = start(&path, None);
        let (shared, notes) = (recording.shared.clone(), recording.notes());
        let one = done(100, Op::Read, 1);
        // As if this much were waiting already.
        shared.waiting_bytes.fetch_add(WAITING_BYTES_MAX, Ordering::Relaxed);
        notes.note(Nanos(500), [&one].into_iter());
        let failure = recording.failure().unwrap();
        let words = ["x.parquet", "256 MiB", "nothing was kept", "still being served"];
        assert!(words.iter().all(|word| failure.contains(word)), "{failure}");
        notes.note(Nanos(500), [&one].into_iter());
        assert!(notes.list().is_empty(), "nobody would collect it");
        // Lists of later connections are not kept either.
        (0..10).for_each(|_| drop(recording.notes()));
        assert!(shared.lists().is_empty());
        recording.finish();
        drop(recording);
        while Arc::strong_count(&shared) > 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!path.exists(), "what is cut short has a name");
    }

    #[test]
    fn what_is_written_no_longer_waits() {
        let directory = tempfile::tempdir().unwrap();
        let recording = start(&directory.path().join("x.parquet"), None);
        let all: Vec<Done> = (0..100).map(|n| done(n, Op::Write, n as u8)).collect();
        recording.notes().note(Nanos(500), all.iter());
        assert_eq!(recording.finish().requests, 100);
        assert_eq!(recording.shared.waiting_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn requests_of_all_connections_are_recorded_in_the_order_of_arrival() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.parquet");
        let recording = start(&path, None);
        let (a, b) = (recording.notes(), recording.notes());
        a.note(Nanos(500), [done(100, Op::Read, 1), done(300, Op::Write, 2)].iter());
        b.note(Nanos(600), [done(200, Op::Write, 1)].iter());
        drop((a, b));
        assert_eq!(recording.finish(), Recorded { requests: 3, kept: 3, late: 0 });

        let mut trace = forebay_trace::open(&path, &Default::default()).unwrap();
        let mut batch = forebay_trace::Batch::default();
        assert_eq!(trace.read_batch(&mut batch).unwrap(), 3);
        assert_eq!(batch.time_ns, [0, 100, 200]);
        assert_eq!(batch.op, [Op::Read, Op::Write, Op::Write]);
        assert_eq!(batch.latency(1), Some(Nanos(400)));
        assert_eq!(batch.flags[0], Flags::FUA);
        assert_eq!(batch.hashes(0), batch.hashes(1), "equal contents");
        assert_ne!(batch.hashes(0), batch.hashes(2));
        assert_eq!(batch.hashes(0).len(), 2 * DIGEST_BYTES);
        assert_eq!(trace.metadata().volumes[0].name, "vm1");
    }
}
