//! Results of a run of a workload, in a simulation or on real devices.
//!
//! A simulation, a replay and a load generator report the same fields with the same names, so that
//! their documents can be compared. Latencies are in microseconds, sizes in bytes, and ratios are
//! fractions. A run on real devices adds its own fields.
//!
//! ```
//! use forebay_block::{Nanos, Op};
//! use forebay_results::{LatencyRecorder, RunResult};
//! let mut latency = LatencyRecorder::default();
//! latency.record(Op::Read, Nanos::from_micros(80));
//! let run = RunResult { requests: 1, reads: 1, latency_us: latency.summary(), ..RunResult::default() };
//! assert_eq!(run.latency_us.read.max, 80.0);
//! ```

mod components;
mod flash;
mod identity;
mod latency;
mod run;

pub use components::{
    BackingLatency, ComponentLatency, ComponentRecorder, Components, Operation, Operations,
};
pub use flash::FlashResult;
pub use identity::{TraceHasher, TraceIdentity};
pub use latency::{Latency, LatencyByOp, LatencyHistogram, LatencyRecorder, LatencyTotal};
pub use run::{
    Backing, CacheResult, Events, Hits, ReadWrite, RunResult, served_events, simulated_events,
};
