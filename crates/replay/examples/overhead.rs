//! Measures the cost of sending and measuring alone, with a run against a target that answers
//! immediately, and the cost of recording alone.
//! `cargo run --release -p forebay-replay --example overhead`

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use forebay_block::{Nanos, Op};
use forebay_replay::{
    Abilities, Clock, Done, Feed, Hooks, Io, Limits, Pace, Placement, PlacementOptions,
    ReplayError, Run, RunOptions, Survey, SystemClock, Target, TargetVolume, Writes,
};
use forebay_results::{LatencyHistogram, LatencyRecorder};
use forebay_trace::{Spec, Synth};

const REQUESTS: u64 = 5_000_000;

/// A target that completes all requests at the next [`flush`](Target::flush) or
/// [`wait`](Target::wait).
struct Null {
    volumes: Vec<TargetVolume>,
    waiting: Vec<Done>,
}

impl Target for Null {
    fn volumes(&self) -> &[TargetVolume] {
        &self.volumes
    }
    fn limits(&self) -> Limits {
        let max = 1 << 20;
        Limits { alignment_bytes: 1, transfer_bytes_max: max, zero_bytes_max: max, depth_max: 4096 }
    }
    fn submit(&mut self, io: Io, _: &mut Vec<Done>) -> Result<(), ReplayError> {
        self.waiting.push(Done { io, result: Ok(()) });
        Ok(())
    }
    fn flush(&mut self, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        done.append(&mut self.waiting);
        Ok(())
    }
    fn wait(&mut self, _: Nanos, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        self.flush(done)
    }
}

fn run(spec: &str, depth: u32) -> Result<f64, Box<dyn std::error::Error>> {
    let spec = Spec::parse(spec)?;
    let mut survey = Survey::default();
    Synth::new(&spec)?.take(1000).for_each(|request| survey.add(&request));
    survey.volumes[0].end_bytes = 1 << 30;
    let (name, able) = ("null".to_owned(), Abilities::ALL);
    let volume = TargetVolume { name, size_bytes: 1 << 30, read_only: false, able };
    let mut target = Null { volumes: vec![volume], waiting: Vec::new() };
    let allowed = PlacementOptions { writes: Writes::Allowed, ..Default::default() };
    let placement = Placement::new(&survey.volumes, target.volumes(), target.limits(), allowed)?;
    let options =
        RunOptions { pace: Pace::AsFastAsPossible, queue_depth: depth, ..RunOptions::default() };
    let (clock, feed) = (SystemClock::start(), Feed::start(Synth::new(&spec)?));
    let hooks = Hooks { stop: &AtomicBool::new(false), progress: &|_| {} };
    let before = clock.now();
    let result = Run { clock, feed, placement, options, hooks }.go(&mut [&mut target]).result;
    Ok((clock.now().0 - before.0) as f64 / result.run.requests as f64)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout();
    for (name, write) in [("reads", 0), ("4 KiB writes, with their data", 1)] {
        for depth in [1, 16, 64] {
            let spec = format!("uniform:blocks=64Ki,requests={REQUESTS},write={write}");
            let ns = run(&spec, depth)?;
            writeln!(out, "{name}, queue depth {depth}: {ns:.0} ns per request")?;
        }
    }
    let mut recorder = LatencyRecorder::default();
    let mut coarse = LatencyHistogram::coarse();
    let start = Instant::now();
    let mut x = 1u64;
    for _ in 0..REQUESTS {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let latency = Nanos(1000 + (x >> 48));
        recorder.record(Op::Read, latency);
        coarse.record(latency);
    }
    let ns = start.elapsed().as_nanos() as f64 / REQUESTS as f64;
    writeln!(out, "recording a latency, for the run and for its interval: {ns:.1} ns")?;
    let start = Instant::now();
    for _ in 0..REQUESTS {
        x = x.wrapping_add(
            std::hint::black_box(SystemClock::start().instant(Nanos(0))).elapsed().as_nanos()
                as u64,
        );
    }
    let ns = start.elapsed().as_nanos() as f64 / REQUESTS as f64 / 2.0;
    writeln!(out, "reading the clock: {ns:.1} ns ({})", x & 1)?;
    Ok(())
}
