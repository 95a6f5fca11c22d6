//! Replays samples at the request rate of the full trace.

use crate::{
    Batch, Counters, Metadata, Progress, Result, TraceError, TraceReader,
    formats::text::TIME_NS_MAX,
};

/// Replaces the times of a sample's requests with the sums of their gaps: each request comes as
/// long after its predecessor in the sample as it came after its predecessor in the full trace.
///
/// The result has as many requests per second as the full trace, but is shorter. With the recorded
/// times, a sample is as long as the full trace, but has fewer requests per second. The parts of a
/// request that was cut are also separated by its gap.
pub(crate) struct FollowGaps<R> {
    inner: R,
    now_ns: u64,
    begun: bool,
}

impl<R> FollowGaps<R> {
    pub(crate) fn new(inner: R) -> Self {
        FollowGaps { inner, now_ns: 0, begun: false }
    }
}

impl<R: TraceReader> TraceReader for FollowGaps<R> {
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
        let requests = self.inner.read_batch(batch)?;
        for i in 0..requests {
            let Some(gap) = batch.gap(i) else {
                let what = "this trace records no gaps between requests; only samples record them";
                return Err(TraceError::Options(what.to_owned()));
            };
            // The first request is at time 0.
            if std::mem::replace(&mut self.begun, true) {
                self.now_ns = self.now_ns.saturating_add(gap.0).min(TIME_NS_MAX);
            }
            batch.time_ns[i] = self.now_ns;
        }
        Ok(requests)
    }
}

#[cfg(test)]
mod tests {
    use crate::{OpenOptions, ParquetTraceWriter, Record, open_all};
    use forebay_block::{Flags, Nanos, Op, Request, Volume};

    fn sample(name: &str, gaps: &[Option<u64>]) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        let mut writer = ParquetTraceWriter::create(&path).unwrap();
        for (n, gap) in (0..).zip(gaps) {
            let (time, volume, flags) = (Nanos(n * 1000), Volume(0), Flags::NONE);
            let request =
                Request { time, volume, op: Op::Read, flags, offset: n * 4096, length: 512 };
            writer.push(Record { gap: gap.map(Nanos), ..request.into() }).unwrap();
        }
        writer.finish(&crate::Metadata::default()).unwrap();
        (directory, path)
    }

    const FOLLOW: fn() -> OpenOptions =
        || OpenOptions { follow_gaps: true, ..OpenOptions::default() };

    #[test]
    fn times_are_sums_of_gaps_before_traces_are_merged() {
        let (_a, one) = sample("a.parquet", &[Some(900), Some(7), Some(5)]);
        let (_b, other) = sample("b.parquet", &[Some(3), Some(10)]);
        let mut reader = open_all(&[&one, &other], &FOLLOW()).unwrap();
        let mut batch = crate::Batch::default();
        assert_eq!(reader.read_batch(&mut batch).unwrap(), 5);
        assert_eq!(batch.time_ns, [0, 0, 7, 10, 12]);
        let mut plain = open_all(&[&one], &OpenOptions::default()).unwrap();
        plain.read_batch(&mut batch).unwrap();
        assert_eq!(batch.time_ns, [0, 1000, 2000]);
    }

    #[test]
    fn a_trace_without_gaps_is_refused() {
        let (_directory, path) = sample("a.parquet", &[Some(1), None]);
        let error = open_all(&[&path], &FOLLOW()).unwrap().read_batch(&mut crate::Batch::default());
        assert!(error.unwrap_err().to_string().contains("only samples record them"));
    }
}
