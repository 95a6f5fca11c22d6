//! What is in a trace: counts, footprint and the features that describe a workload.
//!
//! The table follows Bhandari 2024, Table 4.2: counts, bytes, range, sequential requests,
//! misalignment and working sets, and the distributions of request size, jump distance, scan
//! length, inter-arrival time and page popularity, each for reads, writes and both. [`TraceInfo`]
//! and [`Features`] define each.
//!
//! **Memory.** Footprint and popularity are exact: 16 bytes for each distinct block, in hash
//! tables that are between 44 and 88 % full. A distribution takes at most 120 KiB, whatever the
//! trace's length.

mod by_op;
mod collect;
mod contents;
mod distribution;
mod footprint;
mod info;

pub use by_op::ByOp;
pub use collect::Collector;
pub use contents::ContentUse;
pub use distribution::Distribution;
pub use info::{Features, SampleUse, TraceInfo, VolumeUse};
