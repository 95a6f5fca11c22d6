//! Combines phases and components: a trace that is generated instead of read.

use super::{
    arrival::Arrivals,
    component::Maker,
    random::{Random, Weighted},
    spec::{Phase, Spec},
};
use crate::{
    Batch, Counters, Metadata, Progress, Result, TraceError, TraceReader, VolumeInfo,
    formats::text::TIME_NS_MAX, reader::BATCH_REQUESTS,
};
use forebay_block::{Nanos, Request, Volume};

/// Number of requests of a phase that specifies neither a number nor a duration.
const REQUESTS_DEFAULT: u64 = 1_000_000;

/// A synthetic workload, as a trace or as an endless source of requests for a load generator.
///
/// ```
/// use forebay_trace::{Spec, Synth};
/// let spec = Spec::parse("zipf:blocks=64Ki,theta=0.99,requests=1000,write=0.3,seed=7")?;
/// let requests: Vec<_> = Synth::new(&spec)?.collect();
/// assert_eq!(requests.len(), 1000);
/// assert_eq!(requests, Synth::new(&spec)?.collect::<Vec<_>>());
/// # Ok::<(), forebay_trace::TraceError>(())
/// ```
pub struct Synth {
    phases: Vec<Running>,
    current: usize,
    /// Time at which the current phase began.
    start_ns: u64,
    last_ns: u64,
    metadata: Metadata,
    total: Option<u64>,
    made: u64,
}

struct Running {
    left: u64,
    duration_ns: Option<u64>,
    /// Whether the duration of the phase ended it before its number of requests could.
    timed_out: bool,
    arrivals: Arrivals,
    weights: Weighted,
    makers: Vec<Maker>,
    random: Random,
}

impl Synth {
    /// Prepares the workload.
    ///
    /// # Errors
    /// If the description has an impossible value or generates requests that no reader accepts; the
    /// message names the cause.
    pub fn new(spec: &Spec) -> Result<Self> {
        let mut metadata = Metadata {
            format: "synthetic".to_owned(),
            name: "synthetic".to_owned(),
            epoch_ns: Some(0),
            names_volumes: true,
            ..Metadata::default()
        };
        let mut stream = 0;
        let mut phases = Vec::new();
        let mut end_ns = 0u64;
        for phase in spec.phases()? {
            let running = Running::new(&phase, spec.seed, &mut stream, &mut metadata.volumes)?;
            end_ns = end_ns.saturating_add(running.longest_ns());
            phases.push(running);
        }
        if end_ns > TIME_NS_MAX {
            return Err(TraceError::Options(
                "the workload must end less than 2^63 ns (292 years) after its first request"
                    .to_owned(),
            ));
        }
        let total = phases.iter().map(|p| p.duration_ns.is_none().then_some(p.left)).sum();
        Ok(Synth { phases, current: 0, start_ns: 0, last_ns: 0, metadata, total, made: 0 })
    }

    /// Total number of requests, if it is known in advance.
    pub fn requests_total(&self) -> Option<u64> {
        self.total
    }
}

impl Running {
    fn new(
        phase: &Phase,
        seed: u64,
        stream: &mut u64,
        volumes: &mut Vec<VolumeInfo>,
    ) -> Result<Self> {
        let weights = Weighted::new(phase.component.iter().map(|c| c.weight)).ok_or_else(|| {
            TraceError::Options(
                "a phase of the workload needs components with weights above 0".to_owned(),
            )
        })?;
        let random = Random::new(seed, *stream);
        *stream += 1;
        let mut makers = Vec::new();
        for c in &phase.component {
            let known = volumes.iter().position(|v| v.name == c.volume);
            let number = known.unwrap_or(volumes.len());
            if known.is_none() {
                volumes.push(VolumeInfo { name: c.volume.clone(), bytes: None });
            }
            let maker = Maker::new(c, seed, *stream, Volume(number as u32))?;
            *stream += 1;
            let size = &mut volumes[number].bytes;
            *size = Some(size.unwrap_or(0).max(maker.end()));
            makers.push(maker);
        }
        let duration_ns = phase.duration.map(|d| d.nanos().0);
        let default = if duration_ns.is_some() { u64::MAX } else { REQUESTS_DEFAULT };
        Ok(Running {
            left: phase.requests.unwrap_or(default),
            duration_ns,
            timed_out: false,
            arrivals: Arrivals::new(phase)?,
            weights,
            makers,
            random,
        })
    }

    /// Maximum duration of the phase, in nanoseconds; 0 if only chance decides it.
    fn longest_ns(&self) -> u64 {
        let requests_ns = self.arrivals.time_of(self.left.saturating_sub(1));
        requests_ns.into_iter().chain(self.duration_ns).min().unwrap_or(0)
    }

    /// The next request, with its time from the start of the phase; `None` when the phase is over.
    #[inline]
    fn next(&mut self) -> Option<Request> {
        if self.left == 0 {
            return None;
        }
        let time = self.arrivals.next(&mut self.random);
        if self.duration_ns.is_some_and(|d| time >= d) {
            (self.left, self.timed_out) = (0, true);
            return None;
        }
        self.left -= 1;
        let component = self.weights.choose(&mut self.random);
        Some(self.makers[component].next(Nanos(time)))
    }
}

impl Iterator for Synth {
    type Item = Request;

    #[inline]
    fn next(&mut self) -> Option<Request> {
        while let Some(phase) = self.phases.get_mut(self.current) {
            if let Some(mut request) = phase.next() {
                // (By chance, a closed loop may take longer than any trace can.)
                self.last_ns = self.start_ns.saturating_add(request.time.0).min(TIME_NS_MAX);
                request.time = Nanos(self.last_ns);
                self.made += 1;
                return Some(request);
            }
            // A phase that ends by its duration lasts exactly that long, however few requests it
            // has.
            let duration_ns = phase.duration_ns.filter(|_| phase.timed_out);
            let full = duration_ns.map(|d| self.start_ns.saturating_add(d));
            self.start_ns = full.unwrap_or(self.last_ns).max(self.last_ns);
            self.current += 1;
        }
        None
    }
}

impl TraceReader for Synth {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Counts requests, because there are no bytes.
    fn progress(&self) -> Progress {
        Progress { bytes_read: self.made, bytes_total: self.total }
    }

    fn read_batch(&mut self, batch: &mut Batch) -> Result<usize> {
        batch.clear();
        while batch.len() < BATCH_REQUESTS
            && let Some(request) = self.next()
        {
            batch.push(request);
        }
        Ok(batch.len())
    }
}
