//! What does a configured cache do with a workload, in virtual time?

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_block::{Nanos, Request};
use forebay_config::{Config, ReplacementPolicy};
use forebay_results::{TraceHasher, TraceIdentity};
use forebay_simulate::{
    Defaults, Options, Pacing, Row, Scenario, Simulation, SimulationResult, TracedVolume,
};
use forebay_trace::{Batch, TraceReader};
use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::{AnalysisError, Columns, Meter, Note, Observer, Traces, Unit, parallel};

/// Number of requests that a simulation gets at a time if they are in memory.
const CHUNK: usize = 1 << 14;

/// A workload, a cache and the options of a simulation.
#[derive(Clone, Debug)]
pub struct Question {
    /// The workload.
    pub traces: Traces,
    /// The cache.
    pub config: Config,
    /// The name of the configuration: its file.
    pub config_name: String,
    /// Devices for what the configuration does not name.
    pub defaults: Defaults,
    /// How requests arrive, and other options.
    pub options: Options,
}

/// The results of the cache, and the cost of the simulation.
#[derive(Serialize, Clone, Debug, JsonSchema)]
pub struct Answer {
    /// The results of the cache.
    #[serde(flatten)]
    pub result: SimulationResult,
    /// The configuration file.
    pub config: String,
    /// Identity of the simulated requests.
    pub trace: TraceIdentity,
    /// Seconds of processor time that the simulation took. Reading the trace, in a separate thread, is not
    /// included.
    pub cpu_s: f64,
    /// Elapsed seconds of the simulation.
    pub wall_s: f64,
}

/// The results of one cache with several replacement policies.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The name of the configuration: its file.
    pub config: String,
    /// Identity of the simulated requests.
    pub trace: TraceIdentity,
    /// How requests arrived.
    pub pacing: &'static str,
    /// The answers by policy, in the requested order; empty only if no policy was requested.
    pub answers: Vec<(&'static str, Answer)>,
}

impl Question {
    /// Simulates the cache. Reads the traces once if they contain the sizes of volumes, otherwise
    /// twice.
    ///
    /// # Errors
    /// If the traces cannot be read, no such cache can be simulated
    /// ([`AnalysisError::NotSimulated`]), a request does not fit its volume, or the observer stops
    /// the work.
    pub fn ask(&self, observer: &dyn Observer) -> Result<Answer, AnalysisError> {
        let (volumes, requests) = measure(&self.traces, false, observer)?;
        let mut simulation = self.simulation(&self.config, &volumes, observer)?;
        let mut known = Known::default();
        let (started, cpu) = (Instant::now(), cpu_time());
        let hashed = |request: Request| {
            known.add(&request);
            request
        };
        match requests {
            Some(requests) => simulation.add_all(requests.into_iter().map(hashed))?,
            None => {
                let mut hashed = hashed;
                self.traces.read_batches(observer, |batch, _| {
                    let requests = batch.requests().map(&mut hashed);
                    Ok::<_, AnalysisError>(simulation.add_all(requests)?)
                })?;
            }
        }
        let result = simulation.finish()?;
        self.tell_without_times(&known, observer);
        Ok(Answer {
            cpu_s: (cpu_time() - cpu).as_secs_f64(),
            wall_s: started.elapsed().as_secs_f64(),
            config: self.config_name.clone(),
            trace: known.hasher.identity(self.traces.names()),
            result,
        })
    }

    /// Simulates the cache with each of these policies instead of the configured one, on all
    /// processors. Keeps the requests in memory.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn compare(
        &self,
        policies: &[ReplacementPolicy],
        observer: &dyn Observer,
    ) -> Result<Comparison, AnalysisError> {
        let (volumes, requests) = measure(&self.traces, true, observer)?;
        let requests = requests.unwrap_or_default();
        let mut known = Known::default();
        requests.iter().for_each(|request| known.add(request));
        let trace = known.hasher.identity(self.traces.names());
        let total = (policies.len() * requests.len()) as u64;
        let meter = observer.begin("simulating", Unit::Count, Some(total));
        let answers = parallel::map(policies, |&policy| {
            let (meter, trace) = (&*meter, trace.clone());
            let answer = self.with(policy, &volumes, &requests, trace, meter, observer)?;
            Ok::<_, AnalysisError>((policy.name(), answer))
        })?;
        drop(meter);
        self.tell_without_times(&known, observer);
        let (config, pacing) = (self.config_name.clone(), self.options.pacing.name());
        Ok(Comparison { config, trace, pacing, answers })
    }

    fn with(
        &self,
        policy: ReplacementPolicy,
        volumes: &[TracedVolume],
        requests: &[Request],
        trace: TraceIdentity,
        meter: &dyn Meter,
        observer: &dyn Observer,
    ) -> Result<Answer, AnalysisError> {
        let mut config = self.config.clone();
        if config.replacement.policy != policy {
            // (The parameters belong to the configured policy.)
            config.replacement.policy = policy;
            config.replacement.parameters.clear();
        }
        let mut simulation = self.simulation(&config, volumes, observer)?;
        let (started, cpu) = (Instant::now(), cpu_time());
        for requests in requests.chunks(CHUNK) {
            observer.check()?;
            simulation.add_all(requests.iter().copied())?;
            meter.inc(requests.len() as u64);
        }
        Ok(Answer {
            result: simulation.finish()?,
            config: self.config_name.clone(),
            trace,
            cpu_s: (cpu_time() - cpu).as_secs_f64(),
            wall_s: started.elapsed().as_secs_f64(),
        })
    }

    fn simulation(
        &self,
        config: &Config,
        volumes: &[TracedVolume],
        observer: &dyn Observer,
    ) -> Result<Simulation, AnalysisError> {
        let scenario = Scenario::new(config, volumes, &self.defaults);
        let scenario = scenario.map_err(AnalysisError::NotSimulated)?;
        let simulation = Simulation::new(&scenario, &self.options);
        let mut simulation = simulation.map_err(AnalysisError::NotSimulated)?;
        simulation.stop_when(Arc::clone(observer.stop_flag()));
        Ok(simulation)
    }

    /// Notes that requests without times arrive simultaneously.
    fn tell_without_times(&self, known: &Known, observer: &dyn Observer) {
        let open = matches!(self.options.pacing, Pacing::OpenLoop { .. });
        if open && known.requests > 1 && !known.times_differ {
            observer.note(Note::WithoutTimes);
        }
    }
}

impl Answer {
    /// Whether operations took time in the simulation.
    pub fn is_timed(&self) -> bool {
        self.result.pacing != "untimed"
    }

    /// The answer as a JSON document. Times are null if operations took no time.
    pub fn document(&self) -> Document<'_> {
        Document { policy: None, answer: self }
    }

    /// A row for each interval.
    pub fn rows(&self) -> Columns {
        Columns::from_rows(self.result.rows.iter().copied())
    }
}

impl Comparison {
    /// The comparison as a JSON document.
    pub fn document(&self) -> ComparisonDocument<'_> {
        let of = |(policy, answer)| Document { policy: Some(policy), answer };
        let policies = self.answers.iter().map(|(policy, answer)| of((*policy, answer)));
        ComparisonDocument {
            config: &self.config,
            trace: &self.trace,
            policies: policies.collect(),
        }
    }

    /// A row for each policy and interval.
    pub fn rows(&self) -> Columns {
        Columns::from_rows(self.answers.iter().flat_map(|(policy, answer)| {
            answer.result.rows.iter().map(|&row| -> PolicyRow<'_> { (RowOf { policy }, row) })
        }))
    }
}

/// A row of `--parquet` of a comparison.
pub type PolicyRow<'a> = (RowOf<'a>, Row);

/// The columns of a row that come before the interval.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct RowOf<'a> {
    /// The replacement policy for memory.
    pub policy: &'a str,
}

/// The JSON document of a comparison.
#[derive(Serialize, JsonSchema)]
pub struct ComparisonDocument<'a> {
    /// The configuration file.
    config: &'a str,
    /// Identity of the simulated requests.
    trace: &'a TraceIdentity,
    /// Results of each policy: the fields that `forebay simulate` prints without `--policy`, plus `policy`,
    /// the name of the policy.
    policies: Vec<Document<'a>>,
}

/// The JSON document of an answer.
#[derive(JsonSchema)]
pub struct Document<'a> {
    /// With `--policy`, the replacement policy for memory; omitted otherwise.
    #[schemars(skip_serializing_if = "Option::is_none")]
    policy: Option<&'static str>,
    #[schemars(flatten)]
    answer: &'a Answer,
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut document = serde_json::to_value(self.answer).map_err(serde::ser::Error::custom)?;
        if !self.answer.is_timed() {
            let without_times = |part: &mut Value| {
                for key in ["latency_us", "component_latency_us", "throughput"] {
                    if let Some(times) = part.get_mut(key) {
                        *times = Value::Null;
                    }
                }
            };
            without_times(&mut document);
            let volumes = document.get_mut("volumes").and_then(Value::as_array_mut);
            volumes.into_iter().flatten().for_each(without_times);
        }
        let Some(policy) = self.policy else { return document.serialize(to) };
        let mut whole = serde_json::Map::from_iter([("policy".to_owned(), policy.into())]);
        if let Value::Object(fields) = document {
            whole.extend(fields);
        }
        whole.serialize(to)
    }
}

/// Facts about the requests, collected as they are processed.
#[derive(Default)]
struct Known {
    hasher: TraceHasher,
    first: Option<Nanos>,
    times_differ: bool,
    requests: u64,
}

impl Known {
    fn add(&mut self, request: &Request) {
        self.hasher.add(request);
        self.times_differ |= *self.first.get_or_insert(request.time) != request.time;
        self.requests += 1;
    }
}

/// Finds the volumes and their required sizes, from the traces' metadata or else by reading the
/// traces. Also returns the requests if they are to be kept or can be read only once.
fn measure(
    traces: &Traces,
    keeps: bool,
    observer: &dyn Observer,
) -> Result<(Vec<TracedVolume>, Option<Vec<Request>>), AnalysisError> {
    let mut reader = traces.open(observer)?;
    let keeps = keeps || traces.can_be_read_only_once();
    let mut ends: Vec<u64> = Vec::new();
    let mut requests = Vec::new();
    let sizes_known = |reader: &dyn TraceReader| {
        let volumes = &reader.metadata().volumes;
        !volumes.is_empty() && volumes.iter().all(|v| v.bytes.is_some())
    };
    if keeps || !sizes_known(&*reader) {
        let meter = observer.begin("measuring", Unit::Bytes, reader.progress().bytes_total);
        let mut batch = Batch::default();
        loop {
            let read = reader.read_batch(&mut batch);
            observer.check()?;
            if read? == 0 {
                break;
            }
            for request in batch.requests() {
                let at = request.volume.0 as usize;
                if ends.len() <= at {
                    ends.resize(at + 1, 0);
                }
                ends[at] = ends[at].max(request.offset.saturating_add(request.length));
                if keeps {
                    requests.push(request);
                }
            }
            meter.set(reader.progress().bytes_read);
        }
    }
    if keeps {
        // Otherwise the traces are read again, and the notes follow then.
        Note::from_reader(&*reader).into_iter().for_each(|note| observer.note(note));
    }
    let volumes = reader.metadata().volumes.iter().enumerate();
    let volumes = volumes
        .map(|(at, v)| TracedVolume {
            name: v.name.clone(),
            bytes: v.bytes.unwrap_or(0).max(ends.get(at).copied().unwrap_or(0)),
        })
        .collect();
    Ok((volumes, keeps.then_some(requests)))
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
