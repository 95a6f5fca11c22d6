//! The thread of a recording: collects the requests that connections have noted, and writes them in
//! order of arrival.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_block::{Nanos, Request};
use forebay_engine::{Clock as EngineClock, VolumeDescription};
use forebay_trace::{
    Batch, Clock, HashInfo, Metadata, ParquetTraceWriter, Record, SampleInfo, TraceError,
    VolumeInfo,
};

use super::{DIGEST_BYTES, Entry, RecordOptions, Recorded, Shared, UNIT_BYTES};

/// How often lists are collected.
const PERIOD: Duration = Duration::from_millis(100);
/// How long a connection may take to note a request after answering it. A request noted later than
/// this may be written late, with the time of its predecessor.
const NOTED_WITHIN: Nanos = Nanos(200_000_000);
/// Maximum size, in bytes, of the requests held back because an earlier one is still in flight:
/// more than a million requests without hashes.
pub(super) const HELD_BYTES_MAX: i64 = 128 << 20;
/// Maximum number of empty lists kept for connections to fill again.
const EMPTY_MAX: usize = 64;
/// How often a checkpoint makes the trace written so far safe against a crash.
const CHECKPOINT_PERIOD: Nanos = Nanos(60_000_000_000);

/// The requests that one connection noted in one period, sorted by arrival time.
struct Run {
    entries: Vec<Entry>,
    /// Entries before this index are written.
    written: usize,
}

impl Run {
    /// Arrival time of the next entry to write.
    fn next_time(&self) -> Nanos {
        self.entries[self.written].request.time
    }
}

/// The state of the thread that writes.
pub(super) struct Scribe {
    shared: Arc<Shared>,
    clock: EngineClock,
    writer: ParquetTraceWriter,
    metadata: Metadata,
    oldest: Box<dyn Fn() -> Option<Nanos> + Send>,
    /// Runs that are not written completely, in the order in which they were collected.
    held: Vec<Run>,
    held_bytes: i64,
    /// Empty lists, for connections to fill again.
    empty: Vec<Vec<Entry>>,
    first: Option<Nanos>,
    last: Nanos,
    checkpoint_at: Nanos,
    recorded: Recorded,
    /// The parts of a request that are in the sample.
    part: Batch,
}

impl Scribe {
    /// Prepares to write. `oldest` returns the arrival time of the oldest request in flight.
    pub fn new(
        shared: Arc<Shared>,
        clock: EngineClock,
        writer: ParquetTraceWriter,
        metadata: Metadata,
        oldest: Box<dyn Fn() -> Option<Nanos> + Send>,
    ) -> Scribe {
        Scribe {
            shared,
            clock,
            writer,
            metadata,
            oldest,
            held: Vec::new(),
            held_bytes: 0,
            empty: Vec::new(),
            first: None,
            last: Nanos(0),
            checkpoint_at: clock.now(),
            recorded: Recorded::default(),
            part: Batch::default(),
        }
    }

    /// Writes until the recording is over, has failed, or was given up.
    pub fn record(mut self) -> Recorded {
        let worked = self.work();
        let Scribe { shared, writer, metadata, recorded, .. } = self;
        // In every case, the writer is gone afterwards and has removed a useless partial file.
        let written = match worked {
            // The recording was given up, so requests may be missing.
            Ok(()) if shared.failure.get().is_some() => {
                drop(writer);
                Ok(())
            }
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
    }

    fn work(&mut self) -> Result<(), TraceError> {
        loop {
            let over = self.shared.over.load(Ordering::Acquire);
            let now = self.clock.now();
            let oldest = (self.oldest)().unwrap_or(now).min(now);
            self.collect();
            let settled = oldest.saturating_sub(NOTED_WITHIN);
            self.write_until(if over { Nanos(u64::MAX) } else { settled })?;
            if over || self.shared.failure.get().is_some() {
                return Ok(());
            }
            if now.saturating_sub(self.checkpoint_at) >= CHECKPOINT_PERIOD {
                self.checkpoint_at = now;
                self.writer.checkpoint(&self.metadata)?;
                self.shared.saved.store(true, Ordering::Release);
            }
            std::thread::park_timeout(PERIOD);
        }
    }

    fn collect(&mut self) {
        let mut lists = self.shared.lists();
        // The connection of a list that is referenced only here has ended: collect this list for
        // the last time.
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
            // This sort is stable, and fast because the list is nearly sorted.
            entries.sort_by_key(|entry| entry.request.time);
            self.held_bytes += entries.iter().map(Entry::bytes).sum::<i64>();
            self.held.push(Run { entries, written: 0 });
        }
        for n in ended.into_iter().rev() {
            lists.swap_remove(n);
        }
        drop(lists);
        self.empty.truncate(EMPTY_MAX);
    }

    /// Writes the requests that arrived before `end`, in order of arrival. Writes later ones too
    /// while more than [`HELD_BYTES_MAX`] is held.
    fn write_until(&mut self, end: Nanos) -> Result<(), TraceError> {
        let mut held = std::mem::take(&mut self.held);
        let mut result = Ok(());
        while let Some(first) = (0..held.len()).min_by_key(|&n| held[n].next_time()) {
            // Write several entries at once: all that arrived before the next entry of every other
            // run.
            let others = (0..held.len()).filter(|&n| n != first);
            let until = others.map(|n| held[n].next_time()).min().unwrap_or(Nanos(u64::MAX));
            let run = &mut held[first];
            let start = run.written;
            for entry in &run.entries[start..] {
                let time = entry.request.time;
                let wanted = time < end || self.held_bytes > HELD_BYTES_MAX;
                // Entries with equal times are written one at a time, the one in the earlier run
                // first.
                if !wanted || (run.written > start && time >= until) {
                    break;
                }
                result = result.and(self.write(entry));
                run.written += 1;
                self.held_bytes -= entry.bytes();
                self.shared.waiting_bytes.fetch_sub(entry.bytes(), Ordering::Relaxed);
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

/// The metadata of the trace.
pub(super) fn metadata(options: &RecordOptions, volumes: &[VolumeDescription]) -> Metadata {
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
