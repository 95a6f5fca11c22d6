//! Reading traces: the trait, and the steps between a format's own records and the user.

use crate::{Batch, Clock, Counters, HashInfo, Metadata, Progress, Result, TraceError, VolumeInfo};
use forebay_block::Request;

/// How many requests a batch holds unless there is a reason for another number.
pub(crate) const BATCH_REQUESTS: usize = 8192;

/// A trace being read, in order of time: never back, and from 0 at the trace's first request.
///
/// (Our own format keeps the times it was given; a sample, for one, may begin later than 0.)
pub trait TraceReader: Send {
    /// What is known so far. Volumes and the epoch may appear while reading.
    fn metadata(&self) -> &Metadata;

    /// What happened so far.
    fn counters(&self) -> Counters;

    /// How far the files have been read.
    fn progress(&self) -> Progress;

    /// Replaces `batch` by the next requests, some thousands at most, and returns how many they
    /// are; 0 means that the trace has ended.
    ///
    /// # Errors
    /// If the file cannot be read or is not what its format prescribes. `batch` then holds the
    /// good requests before that.
    fn read_batch(&mut self, batch: &mut Batch) -> Result<usize>;

    /// The remaining requests one by one. An error ends the iteration.
    fn into_requests(self) -> Requests<Self>
    where
        Self: Sized,
    {
        Requests { reader: self, batch: Batch::default(), next: 0, error: None, done: false }
    }
}

impl<T: TraceReader + ?Sized> TraceReader for Box<T> {
    fn metadata(&self) -> &Metadata {
        (**self).metadata()
    }
    fn counters(&self) -> Counters {
        (**self).counters()
    }
    fn progress(&self) -> Progress {
        (**self).progress()
    }
    fn read_batch(&mut self, batch: &mut Batch) -> Result<usize> {
        (**self).read_batch(batch)
    }
}

/// The requests of a trace one by one. Made by [`TraceReader::into_requests`].
pub struct Requests<R> {
    reader: R,
    batch: Batch,
    next: usize,
    error: Option<TraceError>,
    done: bool,
}

impl<R: TraceReader> Iterator for Requests<R> {
    type Item = Result<Request>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.next >= self.batch.len() {
            if let Some(error) = self.error.take() {
                self.done = true;
                self.batch.clear();
                return Some(Err(error));
            }
            if self.done {
                return None;
            }
            self.next = 0;
            match self.reader.read_batch(&mut self.batch) {
                Ok(0) => self.done = true,
                Ok(_) => {}
                Err(e) => self.error = Some(e),
            }
        }
        self.next += 1;
        Some(Ok(self.batch.request(self.next - 1)))
    }
}

/// A format's own records, with times by the format's own clock.
pub(crate) trait Raw: Send {
    /// Appends up to `max` requests; none means the end.
    fn fill(&mut self, batch: &mut Batch, max: usize) -> Result<()>;
    fn about(&self) -> About<'_>;
    fn counters(&self) -> Counters;
    fn progress(&self) -> Progress;
}

/// What a format's reader knows about the trace.
pub(crate) struct About<'a> {
    pub(crate) format: &'static str,
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) volumes: &'a [VolumeInfo],
    pub(crate) names_volumes: bool,
    pub(crate) hashes: Option<HashInfo>,
    /// Whether requests say what they do; else all count as reads.
    pub(crate) records_operations: bool,
    pub(crate) doubts: &'a [String],
}

/// Makes time count from the first request and never go back.
pub(crate) struct Rebased<R> {
    raw: R,
    metadata: Metadata,
    last_ns: u64,
    out_of_order: u64,
}

impl<R: Raw> Rebased<R> {
    pub(crate) fn new(raw: R) -> Self {
        let about = raw.about();
        let without_operations = match about.records_operations {
            true => Vec::new(),
            false => vec![about.name.clone()],
        };
        let metadata = Metadata {
            format: about.format.to_owned(),
            name: about.name,
            clock: about.clock,
            epoch_ns: None,
            volumes: about.volumes.to_vec(),
            names_volumes: about.names_volumes,
            volume_traces: Vec::new(),
            hashes: about.hashes,
            sample: None,
            merged_samples: Vec::new(),
            provenance: Vec::new(),
            without_operations,
            doubts: about.doubts.to_vec(),
        };
        Rebased { raw, metadata, last_ns: 0, out_of_order: 0 }
    }
}

impl<R: Raw> TraceReader for Rebased<R> {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn counters(&self) -> Counters {
        self.raw
            .counters()
            .plus(Counters { out_of_order: self.out_of_order, ..Counters::default() })
    }

    fn progress(&self) -> Progress {
        self.raw.progress()
    }

    fn read_batch(&mut self, batch: &mut Batch) -> Result<usize> {
        batch.clear();
        let filled = self.raw.fill(batch, BATCH_REQUESTS);
        if let Some(&first) = batch.time_ns.first() {
            let epoch = *self.metadata.epoch_ns.get_or_insert(first);
            let (mut last_ns, mut out_of_order) = (self.last_ns, 0);
            for time in &mut batch.time_ns {
                let since = time.saturating_sub(epoch);
                let early = *time < epoch || since < last_ns;
                out_of_order += u64::from(early);
                last_ns = last_ns.max(since);
                *time = last_ns;
            }
            self.last_ns = last_ns;
            self.out_of_order += out_of_order;
        }
        let about = self.raw.about();
        if about.volumes.len() != self.metadata.volumes.len() {
            self.metadata.volumes = about.volumes.to_vec();
        }
        self.metadata.hashes = about.hashes;
        filled.map(|()| batch.len())
    }
}

/// Passes on only some volumes, and a limited number of requests.
pub(crate) struct Selected<R> {
    inner: R,
    wanted: Vec<String>,
    /// For each volume number known so far, whether it is wanted.
    chosen: Vec<bool>,
    left: u64,
}

impl<R: TraceReader> Selected<R> {
    pub(crate) fn new(inner: R, wanted: Vec<String>, limit: Option<u64>) -> Self {
        Selected { inner, wanted, chosen: Vec::new(), left: limit.unwrap_or(u64::MAX) }
    }

    fn choose(&mut self) {
        for (n, v) in self.inner.metadata().volumes.iter().enumerate().skip(self.chosen.len()) {
            self.chosen.push(self.wanted.iter().any(|w| v.is_called(n, w)));
        }
    }

    /// The trace has ended; were the volumes there at all?
    fn check_names(&self) -> Result<()> {
        let volumes = &self.inner.metadata().volumes;
        let there = |w: &str| volumes.iter().enumerate().any(|(n, v)| v.is_called(n, w));
        let missing = self.wanted.iter().filter(|w| !there(w)).map(|w| format!("`{w}`"));
        let missing: Vec<_> = missing.collect();
        if missing.is_empty() {
            return Ok(());
        }
        let known: Vec<_> = volumes.iter().take(20).map(|v| v.name.as_str()).collect();
        Err(TraceError::Options(format!(
            "the trace has no volume {}; it has {}{}",
            missing.join(", "),
            known.join(", "),
            if volumes.len() > 20 { ", ..." } else { "" }
        )))
    }
}

impl<R: TraceReader> TraceReader for Selected<R> {
    fn metadata(&self) -> &Metadata {
        self.inner.metadata()
    }
    fn counters(&self) -> Counters {
        self.inner.counters()
    }
    fn progress(&self) -> Progress {
        self.inner.progress()
    }
    fn read_batch(&mut self, batch: &mut Batch) -> Result<usize> {
        if self.left == 0 {
            batch.clear();
            return Ok(0);
        }
        loop {
            let read = self.inner.read_batch(batch);
            if !self.wanted.is_empty() {
                self.choose();
                let chosen = &self.chosen;
                batch.retain(|b, i| chosen.get(b.volume[i] as usize) == Some(&true));
            }
            if batch.len() as u64 >= self.left {
                // What comes after the limit does not matter, not even an error.
                batch.truncate(self.left as usize);
                self.left = 0;
                return Ok(batch.len());
            }
            self.left -= batch.len() as u64;
            match read {
                Ok(0) => return self.check_names().map(|()| 0),
                Ok(_) if batch.is_empty() => {}
                Ok(_) => return Ok(batch.len()),
                Err(e) => return Err(e),
            }
        }
    }
}
