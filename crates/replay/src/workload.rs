//! Synthetic workloads for load generation, of any length, no matter how long the described one is.

use forebay_block::Request;
use forebay_trace::{
    Arrival, Batch, Counters, Metadata, Progress, Spec, Synth, TraceError, TraceReader,
};

use crate::survey::Survey;

/// A synthetic workload that can be made longer or shorter than described.
pub struct Workload {
    spec: Spec,
    synth: Synth,
    /// Maximum number of requests that remain.
    left: u64,
    /// Whether to begin again when the described workload ends.
    endless: bool,
    /// Nanoseconds to add to the times of this round.
    shift_ns: u64,
    last_ns: u64,
    round: u64,
}

/// How long a workload is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// As long as described.
    AsDescribed,
    /// This many requests.
    Requests(u64),
    /// It never ends on its own.
    Endless,
}

impl Workload {
    /// Prepares a workload. If the described one ends too early, it begins again with another seed.
    ///
    /// # Errors
    /// If the description has an impossible value.
    pub fn new(spec: &Spec, length: Length) -> Result<Workload, TraceError> {
        let (left, endless) = match length {
            Length::AsDescribed => (u64::MAX, false),
            Length::Requests(requests) => (requests, true),
            Length::Endless => (u64::MAX, true),
        };
        let synth = Synth::new(spec)?;
        let (shift_ns, last_ns, round) = (0, 0, 0);
        Ok(Workload { spec: spec.clone(), synth, left, endless, shift_ns, last_ns, round })
    }

    /// The total number of requests, if known in advance.
    pub fn requests_total(&self) -> Option<u64> {
        match self.endless {
            true => (self.left < u64::MAX).then_some(self.left),
            false => self.synth.requests_total(),
        }
    }

    /// Surveys the workload: takes extents and modified volumes from its description, and counts
    /// and hashes its first `hashed_max` requests.
    ///
    /// # Errors
    /// As [`new`](Workload::new).
    pub fn survey(&self, hashed_max: u64) -> Result<Survey, TraceError> {
        let mut survey = Survey::default();
        let Workload { spec, left, endless, .. } = self;
        let mut copy = Workload::new(spec, Length::AsDescribed)?;
        (copy.left, copy.endless) = ((*left).min(hashed_max), *endless);
        let mut batch = Batch::default();
        while copy.read_batch(&mut batch)? > 0 {
            batch.requests().for_each(|request: Request| survey.add(&request));
        }
        let volumes = &self.synth.metadata().volumes;
        survey.volumes.resize_with(volumes.len(), Default::default);
        for (surveyed, volume) in survey.volumes.iter_mut().zip(volumes) {
            volume.name.clone_into(&mut surveyed.name);
            surveyed.used = true;
            surveyed.end_bytes = surveyed.end_bytes.max(volume.bytes.unwrap_or(0));
        }
        for component in spec.phases()?.iter().flat_map(|phase| &phase.component) {
            if component.write > 0.0 || component.trim > 0.0 {
                let volume = survey.volumes.iter_mut().find(|v| v.name == component.volume);
                if let Some(volume) = volume {
                    volume.modified = true;
                }
            }
        }
        Ok(survey)
    }
}

/// Makes requests arrive at `rate` per second, in place of the described rate. Random arrivals stay
/// random; a closed loop becomes arrivals at fixed intervals.
pub fn at_rate(spec: &mut Spec, rate: u64) {
    let closed = Some(Arrival::Closed);
    spec.rate = Some(rate);
    for phase in &mut spec.phase {
        phase.rate = Some(rate);
        if phase.arrival.or(spec.arrival) == closed {
            (phase.arrival, phase.clients, phase.service) = (Some(Arrival::Fixed), None, None);
            (spec.clients, spec.service) = (None, None);
        }
    }
    if spec.arrival == closed {
        (spec.arrival, spec.clients, spec.service) = (Some(Arrival::Fixed), None, None);
    }
}

impl TraceReader for Workload {
    fn metadata(&self) -> &Metadata {
        self.synth.metadata()
    }

    fn counters(&self) -> Counters {
        self.synth.counters()
    }

    fn progress(&self) -> Progress {
        self.synth.progress()
    }

    fn read_batch(&mut self, batch: &mut Batch) -> Result<usize, TraceError> {
        batch.clear();
        if self.left == 0 {
            return Ok(0);
        }
        let mut read = self.synth.read_batch(batch)?;
        if read == 0 && self.endless {
            self.round += 1;
            self.shift_ns = self.last_ns;
            let seed = self.spec.seed.wrapping_add(self.round);
            self.synth = Synth::new(&Spec { seed, ..self.spec.clone() })?;
            read = self.synth.read_batch(batch)?;
        }
        for time in &mut batch.time_ns {
            *time = time.saturating_add(self.shift_ns);
        }
        self.last_ns = batch.time_ns.last().copied().unwrap_or(self.last_ns);
        let keep = usize::try_from(self.left).unwrap_or(usize::MAX).min(read);
        batch.truncate(keep);
        self.left -= keep as u64;
        Ok(keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(mut workload: Workload) -> (u64, u64) {
        let (mut batch, mut requests, mut last) = (Batch::default(), 0, 0);
        while workload.read_batch(&mut batch).unwrap() > 0 {
            for time in &batch.time_ns {
                assert!(*time >= last, "times go back");
                last = *time;
            }
            requests += batch.len() as u64;
        }
        (requests, last)
    }

    #[test]
    fn a_workload_is_as_long_as_asked_for_and_its_times_go_on() {
        let spec = Spec::parse("uniform:blocks=100,requests=1000").unwrap();
        let new = |length| Workload::new(&spec, length).unwrap();
        assert_eq!(new(Length::AsDescribed).requests_total(), Some(1000));
        assert_eq!(count(new(Length::AsDescribed)).0, 1000);
        assert_eq!(count(new(Length::Requests(10))).0, 10);
        let (requests, last) = count(new(Length::Requests(2500)));
        assert_eq!(requests, 2500);
        assert!(last > 2 * count(new(Length::AsDescribed)).1 - 1_000_000);
        assert_eq!(new(Length::Endless).requests_total(), None);
    }

    #[test]
    fn the_survey_knows_what_rare_requests_will_do() {
        let spec = Spec::parse("uniform:blocks=4096,write=0.000001,requests=10").unwrap();
        let survey = Workload::new(&spec, Length::AsDescribed).unwrap().survey(5).unwrap();
        assert_eq!((survey.requests, survey.modifying), (5, 0));
        assert!(survey.volumes[0].modified);
        assert_eq!(survey.volumes[0].end_bytes, 4096 * 4096);
    }

    #[test]
    fn a_rate_replaces_the_one_described() {
        for arrival in ["arrival=closed", "arrival=closed,clients=4,service=1s", "rate=7"] {
            let line = format!("uniform:blocks=10,requests=1001,{arrival}");
            let mut spec = Spec::parse(&line).unwrap();
            at_rate(&mut spec, 1000);
            let ends = count(Workload::new(&spec, Length::AsDescribed).unwrap()).1;
            assert_eq!(ends, 1_000_000_000, "{arrival}");
        }
    }
}
