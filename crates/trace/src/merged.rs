//! Merges several traces into one, in order of time.

use std::collections::HashMap;

use crate::{
    Align, Batch, Clock, Counters, Metadata, Progress, Result, TraceError, TraceReader, VolumeInfo,
    formats::text::TIME_NS_MAX, reader::BATCH_REQUESTS,
};

/// Several traces merged by time; requests with equal times come in the order of the traces.
///
/// **Volumes.** Traces that name their volumes share the volumes with equal names. The volumes of a
/// trace that does not name them are its own and are named after its file. Traces merged with
/// [`Merged::apart`] share no volumes.
///
/// **Times.** If every trace records dates, the traces keep their distances in time and the
/// earliest starts at 0. Otherwise, or with [`Align::Start`], all traces start at 0.
pub struct Merged<R> {
    inputs: Vec<Input<R>>,
    metadata: Metadata,
    volumes: HashMap<String, u32>,
    apart: bool,
}

struct Input<R> {
    reader: R,
    batch: Batch,
    next: usize,
    /// Subtracted from the times of this trace: the time of its first request if all traces start
    /// together, otherwise 0.
    start_ns: u64,
    /// Added to the times of this trace.
    shift_ns: u64,
    /// The merged times of the first and the last request taken from this trace so far.
    span_ns: Option<(u64, u64)>,
    /// The merged number of each volume of this trace.
    volumes: Vec<u32>,
    /// The error that ended reading; it is reported after the requests before it.
    error: Option<TraceError>,
    ended: bool,
}

impl<R: TraceReader> Merged<R> {
    /// Merges `readers`.
    ///
    /// # Errors
    /// If the first requests of a trace cannot be read, or the content hashes of the traces cannot
    /// be compared.
    pub fn new(readers: Vec<R>, align: Align) -> Result<Self> {
        Self::merge(readers, align, false)
    }

    /// Merges `readers` as unrelated traces: each has its own volumes, even if names are equal.
    /// [`Metadata::volume_traces`] gives the trace of each volume.
    ///
    /// # Errors
    /// As [`Merged::new`].
    pub fn apart(readers: Vec<R>, align: Align) -> Result<Self> {
        Self::merge(readers, align, true)
    }

    fn merge(readers: Vec<R>, align: Align, apart: bool) -> Result<Self> {
        let mut inputs = Vec::with_capacity(readers.len());
        for reader in readers {
            let (batch, volumes) = (Batch::default(), Vec::new());
            let mut input = Input {
                reader,
                batch,
                next: 0,
                start_ns: 0,
                shift_ns: 0,
                span_ns: None,
                volumes,
                error: None,
                ended: false,
            };
            input.refill()?;
            inputs.push(input);
        }
        let (metadata, volumes) = (Metadata::default(), HashMap::new());
        let mut merged = Merged { inputs, metadata, volumes, apart };
        merged.align(align);
        merged.describe()?;
        for i in 0..merged.inputs.len() {
            merged.map_volumes(i);
        }
        Ok(merged)
    }

    fn align(&mut self, align: Align) {
        let dated = |i: &Input<R>| i.batch.is_empty() || i.reader.metadata().clock == Clock::Unix;
        let epochs = || {
            let with_requests = self.inputs.iter().filter(|i| !i.batch.is_empty());
            with_requests.filter_map(|i| i.reader.metadata().epoch_ns)
        };
        let earliest = epochs().min();
        let by_clock = align == Align::Auto && self.inputs.iter().all(dated);
        self.metadata.epoch_ns = earliest;
        if !by_clock {
            // Files of our own format keep the times that their writer gave: a sample may begin
            // after 0.
            for input in &mut self.inputs {
                input.start_ns = input.batch.time_ns.first().copied().unwrap_or(0);
            }
        }
        if by_clock {
            self.metadata.clock = Clock::Unix;
            for input in &mut self.inputs {
                let epoch = input.reader.metadata().epoch_ns;
                input.shift_ns = epoch.zip(earliest).map_or(0, |(e, first)| e - first.min(e));
            }
        }
    }

    fn describe(&mut self) -> Result<()> {
        let mut formats: Vec<&str> = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for input in &self.inputs {
            let m = input.reader.metadata();
            if !formats.contains(&m.format.as_str()) {
                formats.push(&m.format);
            }
            names.push(&m.name);
            match (&self.metadata.hashes, &m.hashes) {
                (Some(a), Some(b)) if a != b => {
                    return Err(TraceError::Options(format!(
                        "the traces' content hashes cannot be compared: one trace has a {} hash \
                         for every {} B, another has a {} hash for every {} B",
                        a.algorithm, a.unit_bytes, b.algorithm, b.unit_bytes
                    )));
                }
                (None, Some(b)) => self.metadata.hashes = Some(b.clone()),
                _ => {}
            }
            self.metadata.merged_samples.extend(m.sample);
            self.metadata.provenance.extend(m.provenance.iter().cloned());
            self.metadata.without_operations.extend(m.without_operations.iter().cloned());
            self.metadata.doubts.extend(m.doubts.iter().cloned());
        }
        self.metadata.format = formats.join("+");
        self.metadata.name = names.join("+");
        self.metadata.names_volumes = true;
        Ok(())
    }

    /// Gives merged numbers to the volumes of input `i` that have appeared since the last call.
    fn map_volumes(&mut self, i: usize) {
        let input = &mut self.inputs[i];
        let m = input.reader.metadata();
        for v in &m.volumes[input.volumes.len()..] {
            let shared = m.names_volumes && !self.apart;
            let known = if shared { self.volumes.get(&v.name).copied() } else { None };
            let own = !shared && v.name != m.name;
            let name = if own { format!("{}/{}", m.name, v.name) } else { v.name.clone() };
            let number = known.unwrap_or_else(|| {
                let number = self.metadata.volumes.len() as u32;
                let name = unused_name(&self.volumes, &name);
                self.volumes.insert(name.clone(), number);
                self.metadata.volumes.push(VolumeInfo { name, bytes: v.bytes });
                if self.apart {
                    self.metadata.volume_traces.push(i);
                }
                number
            });
            input.volumes.push(number);
        }
    }

    /// Computes [`Counters::lull_ns`] from the requests read so far.
    fn lull_ns(&self) -> u64 {
        let mut spans: Vec<(u64, u64)> = self.inputs.iter().filter_map(|i| i.span_ns).collect();
        spans.sort_unstable();
        let (mut longest, mut busy, mut end) = (0, 0, None);
        for (from, to) in spans {
            let start = end.map_or(from, |end| from.max(end));
            longest = longest.max(start - end.unwrap_or(start));
            busy += to.saturating_sub(start);
            end = end.max(Some(to));
        }
        if longest > busy { longest } else { 0 }
    }

    /// Index of the input whose next request is the earliest, and the time before which that input
    /// stays the earliest.
    fn first(&self) -> Option<(usize, u64)> {
        let mut best: Option<(u64, usize)> = None;
        let mut second = u64::MAX;
        for (i, input) in self.inputs.iter().enumerate() {
            let Some(time) = input.time() else { continue };
            match best {
                Some((t, _)) if time >= t => second = second.min(time),
                _ => {
                    second = best.map_or(u64::MAX, |(t, _)| t);
                    best = Some((time, i));
                }
            }
        }
        best.map(|(_, i)| (i, second))
    }
}

impl<R: TraceReader> TraceReader for Merged<R> {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn counters(&self) -> Counters {
        let own = Counters { lull_ns: self.lull_ns(), ..Counters::default() };
        self.inputs.iter().fold(own, |c, i| c.plus(i.reader.counters()))
    }

    fn progress(&self) -> Progress {
        let start = Progress { bytes_read: 0, bytes_total: Some(0) };
        self.inputs.iter().fold(start, |p, i| p.plus(i.reader.progress()))
    }

    fn read_batch(&mut self, batch: &mut Batch) -> Result<usize> {
        batch.clear();
        while batch.len() < BATCH_REQUESTS {
            for i in 0..self.inputs.len() {
                if self.inputs[i].next == self.inputs[i].batch.len() {
                    self.inputs[i].refill()?;
                    self.map_volumes(i);
                }
            }
            let Some((i, until)) = self.first() else { break };
            let input = &mut self.inputs[i];
            // Take at least one request, then all that come strictly before those of the other
            // inputs.
            loop {
                let mut record = input.batch.record(input.next);
                record.request.time.0 = input.merged_ns(record.request.time.0);
                record.request.volume.0 = input.volumes[record.request.volume.0 as usize];
                let time = record.request.time.0;
                let (first, _) = input.span_ns.unwrap_or((time, time));
                input.span_ns = Some((first, time));
                batch.push_record(record);
                input.next += 1;
                let more = input.time().is_some_and(|t| t < until);
                if !more || batch.len() >= BATCH_REQUESTS {
                    break;
                }
            }
        }
        Ok(batch.len())
    }
}

impl<R: TraceReader> Input<R> {
    /// The merged time of the next request of this trace.
    fn time(&self) -> Option<u64> {
        self.batch.time_ns.get(self.next).map(|&ns| self.merged_ns(ns))
    }

    /// Converts a time of this trace to merged time.
    fn merged_ns(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.start_ns).saturating_add(self.shift_ns).min(TIME_NS_MAX)
    }

    /// Reads the next batch after the last one is used up.
    fn refill(&mut self) -> Result<()> {
        self.next = 0;
        if self.ended {
            self.batch.clear();
            return Ok(());
        }
        if let Some(e) = self.error.take() {
            self.ended = true;
            self.batch.clear();
            return Err(e);
        }
        match self.reader.read_batch(&mut self.batch) {
            Ok(n) => self.ended = n == 0,
            Err(e) if self.batch.is_empty() => {
                self.ended = true;
                return Err(e);
            }
            Err(e) => self.error = Some(e),
        }
        Ok(())
    }
}

/// Returns `name`, with a number appended if another volume has that name.
fn unused_name(volumes: &HashMap<String, u32>, name: &str) -> String {
    if !volumes.contains_key(name) {
        return name.to_owned();
    }
    let mut n = 2u64;
    loop {
        let numbered = format!("{name}#{n}");
        if !volumes.contains_key(&numbered) {
            return numbered;
        }
        n += 1;
    }
}
