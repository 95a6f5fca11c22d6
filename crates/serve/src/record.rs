//! Records the requests of clients as a trace in Forebay's format.
//!
//! A connection notes each answered request in its list. A thread collects the lists ten times a
//! second, sorts the requests by their arrival and writes them. Nothing is noted under the engine's
//! lock.
//!
//! With hashes, the connection's thread hashes each 4 KiB of a read's or write's data with
//! XXH3-128. This finds equal contents but does not protect against malice: anyone can construct
//! two blocks with one hash.
//!
//! For a sample, all requests are noted too: the thread counts them and the time between them, and
//! writes the part of each that the sampler of `forebay sample` keeps. Only that part is hashed.
//!
//! A failed recording ends and reports this ([`RecordingView`]); clients are still served.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_block::{Nanos, Request};
use forebay_effect::{IoError, Outcome};
use forebay_engine::{Clock as EngineClock, Done, VolumeDescription};
use forebay_trace::{
    Batch, Clock, HashInfo, Metadata, ParquetTraceWriter, Record, SampleInfo, SampleSpec, Sampler,
    TraceError, VolumeInfo,
};
use schemars::JsonSchema;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

/// Content that one hash stands for, bytes.
const UNIT_BYTES: usize = 4096;
/// Bytes of a hash.
const DIGEST_BYTES: usize = 16;
/// How often lists are collected.
const PERIOD: Duration = Duration::from_millis(100);
/// How long after its answer a connection may take to note a request. One that is later is
/// written late, with its predecessor's time.
const NOTED_WITHIN: Nanos = Nanos(200_000_000);
/// Requests that are held, because an earlier one is still in flight, at most.
const HELD_MAX: usize = 1 << 20;
/// Lists that are kept for connections to fill again, at most.
const EMPTY_MAX: usize = 64;
/// How often what was written is made safe.
const CHECKPOINT_PERIOD: Nanos = Nanos(60_000_000_000);

/// How to record.
#[derive(Clone, PartialEq, Debug)]
pub struct RecordOptions {
    /// The trace to write.
    pub path: PathBuf,
    /// Whether to hash contents.
    pub hash: bool,
    /// Which part to record, if not all. The rest is only counted.
    pub sample: Option<SampleSpec>,
}

/// What was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recorded {
    /// Requests that came. Of a sample, as many or fewer were written, or more where they were cut.
    pub requests: u64,
    /// What was written of them: all of them, or a sample's parts.
    pub kept: u64,
    /// Requests kept that were so slow that their time had to be their predecessor's.
    pub late: u64,
}

/// What operators see of a recording.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RecordingStatus {
    /// The file of the trace.
    pub path: PathBuf,
    /// Requests recorded so far.
    pub requests: u64,
    /// Why the recording failed, and which part of it remains; null while it continues.
    pub failure: Option<String>,
}

/// A view of a recording, for operators.
#[derive(Clone, Debug)]
pub(crate) struct RecordingView(Arc<Shared>);

impl RecordingView {
    /// How the recording failed, if it has.
    pub fn failure(&self) -> Option<&str> {
        self.0.failure.get().map(String::as_str)
    }

    /// What there is to say.
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

type List = Arc<Mutex<Vec<Entry>>>;

/// Where a connection notes its requests.
#[derive(Debug)]
pub(crate) struct Notes {
    list: List,
    shared: Arc<Shared>,
}

impl Notes {
    /// Whether it hashes data, which then has to be in the requests' buffers.
    pub fn hashes(&self) -> bool {
        self.shared.hash
    }

    /// Notes answered requests; their buffers still hold the data.
    pub fn note<'a>(&self, now: Nanos, done: impl Iterator<Item = &'a Done>) {
        if self.shared.failure.get().is_some() {
            // Nobody collects the lists any more.
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
        if hash {
            // Hashed before the list is locked.
            let entries: Vec<Entry> = done.map(entry).collect();
            self.list().extend(entries);
        } else {
            self.list().extend(done.map(entry));
        }
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A recording under way.
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
    /// Writing has failed, in this way.
    failure: OnceLock<String>,
}

/// The file of a recording, before there is something to record. It is removed when it is dropped.
pub(crate) struct RecordingFile<'a> {
    options: &'a RecordOptions,
    sampler: Option<Sampler>,
    writer: ParquetTraceWriter,
}

impl<'a> RecordingFile<'a> {
    /// Creates it.
    ///
    /// # Errors
    /// If it cannot be created, or there is no such sample.
    pub fn create(options: &'a RecordOptions) -> Result<Self, TraceError> {
        let sampler = options.sample.map(Sampler::new).transpose()?;
        let writer = ParquetTraceWriter::create_private(&options.path)?;
        Ok(RecordingFile { options, sampler, writer })
    }

    /// Begins to record. `oldest` says when the oldest request in flight arrived.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        self,
        clock: EngineClock,
        volumes: &[VolumeDescription],
        oldest: impl Fn() -> Option<Nanos> + Send + 'static,
    ) -> std::io::Result<Recording> {
        let RecordingFile { options, sampler, writer } = self;
        let metadata = metadata(options, volumes);
        let shared = Arc::new(Shared {
            path: options.path.clone(),
            lists: Mutex::default(),
            hash: options.hash,
            sampler,
            over: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            failure: OnceLock::new(),
        });
        let mut scribe = Scribe {
            shared: shared.clone(),
            clock,
            writer,
            metadata,
            oldest: Box::new(oldest),
            held: Vec::new(),
            held_requests: 0,
            empty: Vec::new(),
            first: None,
            last: Nanos(0),
            checkpoint_at: clock.now(),
            recorded: Recorded::default(),
            part: Batch::default(),
        };
        let thread = std::thread::Builder::new().name("forebay-record".into());
        let thread = thread.spawn(move || {
            let worked = scribe.work();
            let Scribe { shared, writer, metadata, recorded, .. } = scribe;
            // (Either way the writer is gone afterwards, and has removed what is of no use.)
            let written = match worked {
                Ok(()) => writer.finish(&metadata).map(drop),
                Err(error) => {
                    drop(writer);
                    Err(error)
                }
            };
            if let Err(error) = written {
                shared.fail(&error);
            }
            recorded
        });
        Ok(Recording { shared, thread: Mutex::new(Some(thread?)) })
    }
}

impl Recording {
    /// A list for a new connection.
    pub fn notes(&self) -> Notes {
        let list = List::default();
        let mut lists = self.shared.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.push(list.clone());
        Notes { list, shared: self.shared.clone() }
    }

    /// For operators.
    pub fn view(&self) -> RecordingView {
        RecordingView(self.shared.clone())
    }

    /// Writes what is left, and ends the trace. Returns what was recorded; of a recording that has
    /// failed, until then.
    pub fn finish(&self) -> Recorded {
        self.shared.over.store(true, Ordering::Release);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return Recorded::default() };
        thread.thread().unpark();
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.finish();
    }
}

/// What one connection has noted in one period, by time of arrival.
struct Run {
    entries: Vec<Entry>,
    /// Entries before this one are written.
    written: usize,
}

impl Run {
    /// When the next one arrived.
    fn next_time(&self) -> Nanos {
        self.entries[self.written].request.time
    }
}

/// The thread that writes.
struct Scribe {
    shared: Arc<Shared>,
    clock: EngineClock,
    writer: ParquetTraceWriter,
    metadata: Metadata,
    oldest: Box<dyn Fn() -> Option<Nanos> + Send>,
    /// Collected and not all written, in the order of their collection.
    held: Vec<Run>,
    held_requests: usize,
    /// Lists that were written, for connections to fill again.
    empty: Vec<Vec<Entry>>,
    first: Option<Nanos>,
    last: Nanos,
    checkpoint_at: Nanos,
    recorded: Recorded,
    /// What of a request is in the sample.
    part: Batch,
}

impl Scribe {
    fn work(&mut self) -> Result<(), TraceError> {
        loop {
            let over = self.shared.over.load(Ordering::Acquire);
            let now = self.clock.now();
            let oldest = (self.oldest)().unwrap_or(now).min(now);
            self.collect();
            let settled = oldest.saturating_sub(NOTED_WITHIN);
            self.write_until(if over { Nanos(u64::MAX) } else { settled })?;
            if over {
                return Ok(());
            }
            if now.saturating_sub(self.checkpoint_at) >= CHECKPOINT_PERIOD {
                self.checkpoint_at = now;
                self.writer.checkpoint(&self.metadata)?;
            }
            std::thread::park_timeout(PERIOD);
        }
    }

    fn collect(&mut self) {
        let mut lists = self.shared.lists.lock().unwrap_or_else(PoisonError::into_inner);
        // A list that only we know belongs to a connection that has ended: this is its last time.
        let mut ended = Vec::new();
        for (n, list) in lists.iter().enumerate() {
            if Arc::strong_count(list) == 1 {
                ended.push(n);
            }
            let mut entries = self.empty.pop().unwrap_or_default();
            std::mem::swap(&mut entries, &mut *list.lock().unwrap_or_else(PoisonError::into_inner));
            if entries.is_empty() {
                self.empty.push(entries);
                continue;
            }
            // Stable, and quick: the list is nearly sorted.
            entries.sort_by_key(|entry| entry.request.time);
            self.held_requests += entries.len();
            self.held.push(Run { entries, written: 0 });
        }
        for n in ended.into_iter().rev() {
            lists.swap_remove(n);
        }
        drop(lists);
        self.empty.truncate(EMPTY_MAX);
    }

    /// Writes what arrived before `end`, and more where too much is held, in the order of
    /// arrival.
    fn write_until(&mut self, end: Nanos) -> Result<(), TraceError> {
        let mut held = std::mem::take(&mut self.held);
        let mut result = Ok(());
        while let Some(first) = (0..held.len()).min_by_key(|&n| held[n].next_time()) {
            // Several are written in one go: those before the first of every other run.
            let others = (0..held.len()).filter(|&n| n != first);
            let until = others.map(|n| held[n].next_time()).min().unwrap_or(Nanos(u64::MAX));
            let run = &mut held[first];
            let start = run.written;
            for entry in &run.entries[start..] {
                let time = entry.request.time;
                let wanted = time < end || self.held_requests > HELD_MAX;
                // (At the same time as another run's, one at a time, the earlier run first.)
                if !wanted || (run.written > start && time >= until) {
                    break;
                }
                result = result.and(self.write(entry));
                run.written += 1;
                self.held_requests -= 1;
            }
            if result.is_err() || run.written == start {
                break;
            }
            if run.written == run.entries.len() {
                let mut entries = held.remove(first).entries;
                entries.clear();
                self.empty.push(entries);
            }
        }
        self.held = held;
        result
    }

    fn write(&mut self, entry: &Entry) -> Result<(), TraceError> {
        if self.first.is_none() {
            self.first = Some(entry.request.time);
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let ago = self.clock.now().saturating_sub(entry.request.time);
            self.metadata.clock = Clock::Unix;
            self.metadata.epoch_ns = Some((unix.as_nanos() as u64).saturating_sub(ago.0));
        }
        let first = self.first.unwrap_or_default();
        if entry.request.time < self.last {
            self.recorded.late += 1;
        }
        let before = self.last.max(first);
        self.last = before.max(entry.request.time);
        self.recorded.requests += 1;
        self.shared.requests.store(self.recorded.requests, Ordering::Relaxed);
        let record = Record {
            request: Request { time: self.last.saturating_sub(first), ..entry.request },
            latency: Some(entry.latency),
            result: Some(entry.result),
            gap: None,
            hashes: &entry.hashes,
        };
        let (Some(sampler), Some(sample)) = (&self.shared.sampler, &mut self.metadata.sample)
        else {
            self.recorded.kept += 1;
            return self.writer.push(record);
        };
        let gap = self.last.saturating_sub(before);
        sample.requests += 1;
        sample.whole.add(&record.request, gap);
        self.part.clear();
        sampler.sample(&record, gap, &mut self.part);
        self.recorded.kept += self.part.len() as u64;
        (0..self.part.len()).try_for_each(|i| self.writer.push(self.part.record(i)))
    }
}

fn metadata(options: &RecordOptions, volumes: &[VolumeDescription]) -> Metadata {
    let mut infos = vec![VolumeInfo::default(); volumes.len()];
    for v in volumes {
        infos[v.volume.0 as usize] = VolumeInfo { name: v.name.clone(), bytes: Some(v.size_bytes) };
    }
    let name = options.path.file_stem().unwrap_or_else(|| Path::new("trace").as_os_str());
    Metadata {
        format: "forebay".to_owned(),
        name: name.to_string_lossy().into_owned(),
        clock: Clock::Unix,
        volumes: infos,
        names_volumes: true,
        hashes: options.hash.then(|| HashInfo {
            algorithm: "xxh3-128".to_owned(),
            unit_bytes: UNIT_BYTES as u32,
            digest_bytes: DIGEST_BYTES as u32,
        }),
        sample: options.sample.map(|spec| SampleInfo {
            rate: spec.rate,
            bits: spec.bits,
            seed: spec.seed,
            ..SampleInfo::default()
        }),
        provenance: vec![format!("recorded by forebay {} serve", env!("CARGO_PKG_VERSION"))],
        ..Metadata::default()
    }
}

impl Shared {
    /// Says how writing has failed, once the writer is gone.
    fn fail(&self, error: &TraceError) {
        let mut partial = self.path.clone().into_os_string();
        partial.push(".partial");
        let partial = Path::new(&partial);
        let kept = match partial.exists() {
            true => format!(
                "{} contains all requests except those of about the last minute",
                partial.display()
            ),
            false => "nothing was kept".to_owned(),
        };
        let message =
            format!("the recording has failed: {error}; {kept}. Clients are still served");
        // It fails once.
        let _ = self.failure.set(message);
    }

    /// The hashes that the trace keeps: a sample has those of the requests that are wholly in it.
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

/// The hashes of a request's data, where it covers whole units.
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
        file.start(EngineClock::start(), &volumes, || None).unwrap()
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

    /// More requests than the writer keeps to itself.
    const MANY: usize = 300_000;

    #[test]
    fn a_recording_that_fails_says_so_while_it_is_under_way_and_takes_no_more() {
        let path = PathBuf::from("/dev/full");
        let recording = start_with(RecordOptions { path, hash: false, sample: None });
        let (notes, view, one) = (recording.notes(), recording.view(), done(100, Op::Read, 1));
        assert_eq!(view.failure(), None);
        notes.note(Nanos(500), std::iter::repeat_n(&one, MANY));
        // (What arrived within the last `NOTED_WITHIN` is not written yet.)
        while view.failure().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let failure = view.failure().unwrap();
        let words = ["/dev/full", "No space left", "nothing was kept", "still served"];
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
