//! Runs the cache under virtual time.
//!
//! The simulator does not model the cache: it runs `forebay_cache::Cache`, the code that serves
//! volumes. Only the executor of the cache's effects is different: it moves no bytes and charges
//! time instead. A copy in memory takes as long as a memory from the catalogue needs, and the
//! processor makes one copy at a time; a device operation ends when the device's
//! [`Model`](forebay_model::Model) says. Everything is deterministic: the same requests, scenario
//! and seed give the same answer on every machine.
//!
//! ```
//! use forebay_block::{Flags, Nanos, Op, Request, Volume};
//! use forebay_config::Config;
//! use forebay_simulate::{Defaults, Options, Pacing, Scenario, TracedVolume, simulate};
//!
//! let config = Config::from_toml("[cache]\ndram = '1MiB'").unwrap();
//! let traced = [TracedVolume { name: "disk".into(), bytes: 1 << 30 }];
//! let scenario = Scenario::new(&config, &traced, &Defaults::default()).unwrap();
//! let read = |i: u64| Request {
//!     time: Nanos(i * 1_000_000), volume: Volume(0), op: Op::Read, flags: Flags::NONE,
//!     offset: i % 2 * 4096, length: 4096,
//! };
//! let options = Options { pacing: Pacing::ClosedLoop { queue_depth: 1 }, ..Options::default() };
//! let result = simulate(&scenario, (0..10).map(read), &options).unwrap();
//! let hits = result.run.cache.unwrap().hits;
//! assert_eq!((result.run.requests, hits.tier1.read), (10, 8));
//! ```

mod calls;
mod error;
mod flush;
mod options;
mod outage;
mod result;
mod scenario;
mod series;
mod simulation;
mod timing;

pub use error::SimulateError;
pub use options::{AssumeFlush, Interval, Options, Pacing};
pub use outage::{Outage, Trouble};
pub use result::{
    AfterOutages, Assumed, Capacity, Overload, SimulationResult, Throughput, VolumeResult,
};
pub use scenario::{Defaults, Memory, Scenario, SimulatedVolume, TracedVolume};
pub use series::Row;
pub use simulation::{Answer, Simulation, simulate};
pub use timing::FlashDevice;
