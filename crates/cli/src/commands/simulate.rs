//! `forebay simulate`: the cache under virtual time.

mod pictures;
pub mod policies;
mod show;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_analysis::{Meter, Observer, Unit};
use forebay_block::{Nanos, Request};
use forebay_config::{ReplacementPolicy, TimeSpan};
use forebay_results::{TraceHasher, TraceIdentity};
use forebay_simulate::{
    AssumeFlush, Defaults, Interval, Options, Pacing, Scenario, SimulateError, Simulation,
    SimulationResult, TracedVolume,
};
use forebay_trace::Batch;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde_json::Value;

use crate::args::{ConfigArgs, TraceArgs, load_config};
use crate::context::Context;
use crate::error::CliError;
use crate::output::OutputArgs;
use crate::reading::{open_traces, read_trace_batches};
use crate::rows::write_parquet;

/// Arguments of `forebay simulate`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:
  $ printf '[cache]\\ndram = \"64MiB\"\\n' > cache.toml
  $ forebay trace synth zipf -o zipf.parquet
  $ forebay simulate zipf.parquet --config cache.toml --queue-depth 16
  $ forebay simulate zipf.parquet --config cache.toml --untimed --policy lru,arc")]
pub struct Args {
    #[command(flatten)]
    pub traces: TraceArgs,
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Compare these replacement policies in the place of the configured one; `forebay policies` lists
    /// them. The trace's requests are kept in memory, 40 bytes each
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = policies::simulated)]
    pub policies: Vec<ReplacementPolicy>,
    /// Flushes to add, which traces seldom have: after every N writes of a volume, or a TIME
    /// after its first unflushed write
    #[arg(long, value_name = "N|none|TIME", default_value = "none", value_parser = assume_flush)]
    pub assume_flush: AssumeFlush,
    /// Ignore the trace's times and keep N requests in flight
    #[arg(long, value_name = "N", group = "pacing", value_parser = clap::value_parser!(u32).range(1..))]
    pub queue_depth: Option<u32>,
    /// Replay N times as fast as the trace
    #[arg(long, value_name = "N", group = "pacing", default_value = "1", value_parser = positive)]
    pub rate: f64,
    /// One request at a time, each after all background work of the one before has ended
    #[arg(long, group = "pacing")]
    pub quiesce: bool,
    /// No times at all, only hits and traffic; the fastest
    #[arg(long, group = "pacing")]
    pub untimed: bool,
    /// The memory of tier 1; `none` takes no time
    #[arg(long, value_name = "DEVICE", default_value = "FastDRAM", help_heading = "Devices")]
    pub memory: String,
    /// The flash tier, unless the configuration gives it a shape
    #[arg(long, value_name = "DEVICE", default_value = "nvme", help_heading = "Devices")]
    pub flash_device: String,
    /// The backing store of volumes without a shape
    #[arg(long, value_name = "DEVICE", default_value = "hdd-7200", help_heading = "Devices")]
    pub backing_device: String,
    /// Seed of the devices' random numbers
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Devices")]
    pub seed: u64,
    /// Length of a row of --parquet and --html; some hundred rows of equally many requests
    /// otherwise
    #[arg(long, value_name = "TIME")]
    pub interval: Option<TimeSpan>,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl Args {
    fn options(&self) -> Options {
        let pacing = match self.queue_depth {
            Some(queue_depth) => Pacing::ClosedLoop { queue_depth },
            None if self.quiesce => Pacing::Quiesced,
            None if self.untimed => Pacing::Untimed,
            None => Pacing::OpenLoop { rate: self.rate },
        };
        let interval = self.interval.map_or(Interval::Adaptive, |t| Interval::Time(t.nanos()));
        Options { pacing, assume_flush: self.assume_flush, interval, seed: self.seed }
    }

    /// The devices that the configuration does not name.
    fn defaults(&self) -> Defaults {
        Defaults {
            memory: self.memory.clone(),
            flash: self.flash_device.clone(),
            backing: self.backing_device.clone(),
        }
    }
}

/// Simulates and tells.
pub fn run(args: Args, ctx: &Context) -> Result<(), CliError> {
    args.output.check(args.traces.traces.iter().chain([&args.config.config]))?;
    let config = load_config(&args.config.config)?;
    if !args.policies.is_empty() {
        return policies::run(&args, &config, ctx);
    }
    let measured = measure(&args.traces, false, ctx)?;
    let scenario = Scenario::new(&config, &measured.volumes, &args.defaults()).map_err(refused)?;
    let mut simulation = Simulation::new(&scenario, &args.options()).map_err(refused)?;
    simulation.stop_when(Arc::clone(ctx.stop_flag()));
    let mut hasher = TraceHasher::new();
    let mut times = Times::default();
    let (started, cpu) = (Instant::now(), cpu_time());
    let hashed = |request: Request| {
        hasher.add(&request);
        times.add(request.time);
        request
    };
    match measured.requests {
        Some(requests) => simulation.add_all(requests.into_iter().map(hashed))?,
        None => {
            let mut hashed = hashed;
            read_trace_batches(&args.traces, ctx, |batch| {
                Ok(simulation.add_all(batch.requests().map(&mut hashed))?)
            })?;
        }
    }
    let result = simulation.finish()?;
    times.tell(&args, ctx);
    let answer = Answer {
        cpu_s: (cpu_time() - cpu).as_secs_f64(),
        wall_s: started.elapsed().as_secs_f64(),
        config: args.config.config.display().to_string(),
        trace: hasher.identity(names(&args.traces.traces)),
        result,
    };
    if let Some(path) = &args.output.parquet {
        write_parquet(path, &show::rows(&[("", &answer)]))?;
    }
    if let Some(path) = &args.output.html {
        pictures::report(&answer).write_html(path)?;
    }
    args.output.emit(&document(&answer)?, |out| show::print(&answer, out))
}

fn refused(error: SimulateError) -> CliError {
    CliError::usage(error).kept("nothing was simulated")
}

/// The answer as JSON: what takes no time has no times.
fn document(answer: &Answer) -> Result<Value, CliError> {
    let mut document = serde_json::to_value(answer)?;
    if !show::is_timed(answer) {
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
    Ok(document)
}

/// The document.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    result: SimulationResult,
    /// The file.
    config: String,
    trace: TraceIdentity,
    /// Seconds that the simulation took of a processor; reading has a thread of its own.
    cpu_s: f64,
    wall_s: f64,
}

/// Whether requests have times at all.
#[derive(Default)]
struct Times {
    first: Option<Nanos>,
    differ: bool,
    requests: u64,
}

impl Times {
    fn add(&mut self, time: Nanos) {
        self.differ |= *self.first.get_or_insert(time) != time;
        self.requests += 1;
    }

    /// Says what becomes of requests without times.
    fn tell(&self, args: &Args, ctx: &Context) {
        let is_none = self.requests > 1 && !self.differ;
        if is_none && matches!(args.options().pacing, Pacing::OpenLoop { .. }) {
            ctx.note(
                "the trace has no times, so all its requests arrived at once; --queue-depth 1 or \
                 --untimed asks for them one after another",
            );
        }
    }
}

/// What has to be known of the traces before the simulation begins.
struct Measured {
    volumes: Vec<TracedVolume>,
    /// The requests themselves, if they are wanted or can be read only once.
    requests: Option<Vec<Request>>,
}

/// Finds the volumes and how large they have to be: told by the trace's metadata, or else by a
/// first reading.
fn measure(args: &TraceArgs, keeps: bool, ctx: &Context) -> Result<Measured, CliError> {
    let mut reader = open_traces(args, ctx)?;
    let keeps = keeps || args.source().on_stdin();
    let mut ends: Vec<u64> = Vec::new();
    let mut requests = Vec::new();
    let sizes_known = |r: &dyn forebay_trace::TraceReader| {
        let volumes = &r.metadata().volumes;
        !volumes.is_empty() && volumes.iter().all(|v| v.bytes.is_some())
    };
    if keeps || !sizes_known(&*reader) {
        let total = reader.progress().bytes_total;
        let progress = ctx.progress("measuring", Unit::Bytes, total);
        let mut batch = Batch::default();
        while reader.read_batch(&mut batch)? > 0 {
            ctx.check()?;
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
            progress.set(reader.progress().bytes_read);
        }
    }
    let volumes = reader.metadata().volumes.iter().enumerate();
    let volumes = volumes
        .map(|(at, v)| TracedVolume {
            name: v.name.clone(),
            bytes: v.bytes.unwrap_or(0).max(ends.get(at).copied().unwrap_or(0)),
        })
        .collect();
    Ok(Measured { volumes, requests: keeps.then_some(requests) })
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn names(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

/// Reads `none`, a number of writes, or a time.
fn assume_flush(text: &str) -> Result<AssumeFlush, String> {
    if text == "none" {
        return Ok(AssumeFlush::None);
    }
    if let Ok(writes) = text.parse::<u64>() {
        let flush = AssumeFlush::EveryWrites(writes);
        return if writes > 0 { Ok(flush) } else { Err("at least 1 write".to_owned()) };
    }
    match text.parse::<TimeSpan>() {
        Ok(time) if time.nanos().0 > 0 => Ok(AssumeFlush::Every(time.nanos())),
        Ok(_) => Err("a time longer than 0".to_owned()),
        Err(_) => Err("write none, a number of writes, or a time such as 5s".to_owned()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err(format!("`{text}` is not a rate: write a number above 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Nanos;

    #[test]
    fn flushes_are_assumed_by_count_by_time_or_not_at_all() {
        assert_eq!(assume_flush("none"), Ok(AssumeFlush::None));
        assert_eq!(assume_flush("100"), Ok(AssumeFlush::EveryWrites(100)));
        assert_eq!(assume_flush("5s"), Ok(AssumeFlush::Every(Nanos(5_000_000_000))));
        for text in ["0", "0s", "-1", "often", ""] {
            assert!(assume_flush(text).is_err(), "{text}");
        }
    }
}
