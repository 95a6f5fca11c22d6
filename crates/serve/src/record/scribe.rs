//! The thread of a recording: collects what connections have noted, and writes it in the order of arrival.

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
/// How long after its answer a connection may take to note a request. One that is later is
/// written late, with its predecessor's time.
const NOTED_WITHIN: Nanos = Nanos(200_000_000);
/// Bytes of requests that are held, because an earlier one is still in flight, at most: more than a million
/// requests without hashes.
pub(super) const HELD_BYTES_MAX: i64 = 128 << 20;
/// Lists that are kept for connections to fill again, at most.
const EMPTY_MAX: usize = 64;
/// How often what was written is made safe.
const CHECKPOINT_PERIOD: Nanos = Nanos(60_000_000_000);

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
pub(super) struct Scribe {
    shared: Arc<Shared>,
    clock: EngineClock,
    writer: ParquetTraceWriter,
    metadata: Metadata,
    oldest: Box<dyn Fn() -> Option<Nanos> + Send>,
    /// Collected and not all written, in the order of their collection.
    held: Vec<Run>,
    held_bytes: i64,
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
    /// `oldest` says when the oldest request in flight arrived.
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
        // (In any case the writer is gone afterwards, and has removed what is of no use.)
        let written = match worked {
            // Requests may be missing.
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
            self.held_bytes += entries.iter().map(Entry::bytes).sum::<i64>();
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
                let wanted = time < end || self.held_bytes > HELD_BYTES_MAX;
                // (At the same time as another run's, one at a time, the earlier run first.)
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

/// What the trace says about itself.
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
