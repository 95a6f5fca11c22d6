//! Traces that are read several times: from their files, or from memory if they can be read only
//! once.

use forebay_block::Request;
use forebay_plan::BoxError;
use forebay_trace::{Batch, open_all};

use crate::{AnalysisError, Described, Observer, Traces, Unit};

/// Number of requests between two checks of the stop flag.
const CHECK_PERIOD: u64 = 1 << 14;

/// Traces that have been read once.
#[derive(Debug)]
pub struct Kept {
    traces: Traces,
    requests: Option<Vec<Request>>,
    /// For each volume number, the largest end of a request, in bytes.
    pub ends: Vec<u64>,
    /// The description of what was read.
    pub described: Described,
}

impl Kept {
    /// Reads traces for the first time.
    pub fn read(
        traces: &Traces,
        observer: &dyn Observer,
        mut work: impl FnMut(&Request) -> Result<(), AnalysisError>,
    ) -> Result<Self, AnalysisError> {
        let mut kept = traces.can_be_read_only_once().then(Vec::new);
        let mut ends: Vec<u64> = Vec::new();
        let described = traces.read(observer, |request| {
            let at = request.volume.0 as usize;
            ends.resize(ends.len().max(at + 1), 0);
            ends[at] = ends[at].max(request.offset.saturating_add(request.length));
            if let Some(kept) = &mut kept {
                kept.push(*request);
            }
            work(request)
        })?;
        Ok(Self { traces: traces.clone(), requests: kept, ends, described })
    }

    /// Passes every request to `work` again. If a file has grown in the meantime, requests are cut
    /// to the volumes as they were.
    pub fn each(
        &self,
        observer: &dyn Observer,
        label: &str,
        mut work: impl FnMut(&Request) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let meter = observer.begin(label, Unit::Count, Some(self.described.requests));
        let mut done = 0;
        let mut one = |request: &Request| -> Result<(), BoxError> {
            if done % CHECK_PERIOD == 0 {
                meter.set(done);
                observer.check()?;
            }
            done += 1;
            work(&self.within(request))
        };
        match &self.requests {
            Some(kept) => kept.iter().try_for_each(&mut one)?,
            None => {
                let mut reader = open_all(&self.traces.files, &self.traces.options)?;
                let mut batch = Batch::default();
                while reader.read_batch(&mut batch)? > 0 {
                    batch.requests().try_for_each(|request| one(&request))?;
                }
            }
        }
        Ok(())
    }

    fn within(&self, request: &Request) -> Request {
        let end = self.ends.get(request.volume.0 as usize).copied().unwrap_or(0);
        let offset = request.offset.min(end);
        Request { offset, length: request.length.min(end - offset), ..*request }
    }
}
