//! Readers and writers of block traces, their features, and synthetic workloads.
//!
//! ```no_run
//! use forebay_trace::{Batch, OpenOptions, TraceReader, open};
//! let mut trace = open("web_0.csv.gz", &OpenOptions::default())?;
//! let mut batch = Batch::default();
//! while trace.read_batch(&mut batch)? > 0 {
//!     for request in batch.requests() {
//!         println!("{request:?}");
//!     }
//! }
//! # Ok::<(), forebay_trace::TraceError>(())
//! ```
//!
//! A trace is read as a stream, in batches of columns ([`Batch`]) or request by request
//! ([`TraceReader::into_requests`]), in memory that does not grow with its length. Formats and
//! compression are recognised by content. `docs/trace-formats.md` defines the requests of a trace
//! and the meaning of the numbers in every format.
//!
//! Every reader guarantees: times never go back and count from the trace's first request; volumes
//! are numbered from 0 in the order in which they appear; times and offset + length of a request
//! fit an `i64`, and reads and writes are at most 4 GiB long; no input makes a reader panic.

mod batch;
mod contents;
mod error;
mod features;
mod formats;
#[doc(hidden)]
pub mod fuzz;
mod gaps;
mod long_zeroing;
mod merged;
mod metadata;
mod open;
mod options;
mod parquet;
mod reader;
mod sample;
mod source;
mod synth;
mod wanted;
mod write;

pub use batch::{Batch, Record};
pub use contents::BlockContents;
pub use error::{Position, Result, TraceError};
pub use features::{
    ByOp, Collector, ContentUse, Distribution, Features, SampleUse, TraceInfo, VolumeUse,
};
pub use formats::{FORMATS, Format};
pub use merged::Merged;
pub use metadata::{Clock, Counters, HashInfo, Metadata, SampleInfo, VolumeInfo};
pub use open::{open, open_all, open_bytes};
pub use options::{Align, OpenOptions};
pub use parquet::{FORMAT_VERSION, ParquetTraceReader, ParquetTraceWriter, Written};
pub use reader::{Requests, TraceReader};
pub use sample::{
    BITS_MAX, FEATURES, FeatureError, Filter, Moments, OpMoments, PAGE_BYTES, Quantiles, Reduction,
    RegionKey, RegionSet, RegionTable, SampleSpec, Sampler, Step, mean_error, reduce,
};
pub use source::{Progress, is_read_once, stem};
pub use synth::{Arrival, Component, Pattern, Phase, SizeShare, Spec, Synth, ZoneShare};
pub use wanted::{ShadowedNumber, is_wanted, shadowed_numbers, split_names};
pub use write::{LeftOut, TraceWriter, create, writable_formats};
