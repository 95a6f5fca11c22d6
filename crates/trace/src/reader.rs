//! Reading traces: the trait, and the steps between a format's own records and the user.

use crate::{
    Batch, Clock, Counters, HashInfo, Metadata, Progress, Result, ShadowedNumber, TraceError,
    VolumeInfo,
};
use forebay_block::Request;

/// Default number of requests in a batch.
pub(crate) const BATCH_REQUESTS: usize = 8192;

/// A trace that is being read in order of time. Times never go back, and count from the trace's
/// first request.
///
/// (Files of our own format keep the times that their writer gave; a sample, for example, may begin
/// later than 0.)
pub trait TraceReader: Send {
    /// What is known about the trace so far. Volumes and the epoch may appear while reading.
    fn metadata(&self) -> &Metadata;

    /// What happened while reading so far.
    fn counters(&self) -> Counters;

    /// How far the files have been read.
    fn progress(&self) -> Progress;

    /// The selected names that are also numbers of other volumes, among the volumes known so far.
    fn shadowed_numbers(&self) -> Vec<ShadowedNumber> {
        Vec::new()
    }

    /// Replaces the contents of `batch` with the next requests, some thousands at most, and returns
    /// their number. 0 means that the trace has ended.
    ///
    /// # Errors
    /// If the file cannot be read or does not follow its format. `batch` then holds the good
    /// requests before the error.
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
    fn shadowed_numbers(&self) -> Vec<ShadowedNumber> {
        (**self).shadowed_numbers()
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
    /// Appends up to `max` requests. Appending none means the end of the trace.
    fn fill(&mut self, batch: &mut Batch, max: usize) -> Result<()>;
    fn about(&self) -> About<'_>;
    fn counters(&self) -> Counters;
    fn progress(&self) -> Progress;
}

/// What a format's reader knows about the trace.
pub(crate) struct About<'a> {
    pub(crate) format: &'static str,
    pub(crate) name: String,
    /// The name of the file without directories, for messages.
    pub(crate) file_name: String,
    pub(crate) clock: Clock,
    pub(crate) volumes: &'a [VolumeInfo],
    pub(crate) names_volumes: bool,
    pub(crate) hashes: Option<HashInfo>,
    /// Whether requests have operations; if not, all count as reads.
    pub(crate) records_operations: bool,
    pub(crate) doubts: &'a [String],
}

/// Makes times count from the first request and never go back.
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
            false => vec![about.file_name],
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
