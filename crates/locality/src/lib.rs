//! Reuse distances and miss-ratio curves: how large a cache a workload deserves.
//!
//! An LRU cache of `c` blocks holds a block iff fewer than `c` other distinct blocks were accessed
//! since. That number, the **reuse distance**, does not depend on `c`: one pass over a workload
//! gives the miss ratio of every cache size at once.
//!
//! - [`WorkloadLocality`] takes requests, splits them into blocks, and gives histograms of all
//!   volumes together and of each on its own.
//! - [`ReuseDistances`] takes block accesses in batches and counts distances into a
//!   [`ReuseHistogram`], whose [`hits`](ReuseHistogram::hits) at any size cost constant time;
//!   [`MissRatioCurve`] is a histogram drawn as points.
//! - [`RequestDistances`] counts whole requests, and blocks that move into the cache only every
//!   so often, as in a cache outside the data path.
//! - [`ContentLocality`] measures contents in the place of blocks.
//! - [`Clairvoyant`] counts the hits of the best possible cache of a size, which knows the future.
//! - [`ReuseStack`] gives the distance of each access.
//! - [`Slicer`] splits a large workload into [`Slice`]s, to be measured by threads of the caller's, and
//!   merged with bounds on the error.
//! - [`BlockSample`] and [`SampleCounts`] are the sampling alone, for measurements of the caller's.
//! - [`PhaseTree`] finds the phases of a workload and what each needs, from a [`SharedRecorder`]
//!   of one workload or of several that share a cache.
//!
//! [`Distance`] says what is measured (TRD, URD, POD by write policy), [`Sampling`] which blocks
//! are looked at (all, a rate, a bound). Everything here is pure: no I/O, no clock, no threads,
//! no randomness; the same accesses give the same numbers on every machine.

mod bounds;
mod clairvoyant;
mod contents;
mod cpu;
mod curve;
mod distance;
mod error;
mod histogram;
mod holes;
mod keys;
mod parts;
mod phases;
mod positions;
mod requests;
mod reuse;
mod sample;
mod slices;
mod stack;
mod table;
mod timeline;
mod times;
mod workload;
mod write_only;

pub use bounds::Interval;
pub use clairvoyant::{Clairvoyant, ClairvoyantHits};
pub use contents::ContentLocality;
pub use curve::{CurvePoint, MissRatioCurve};
pub use distance::{Distance, UnknownDistance};
pub use error::LocalityError;
pub use histogram::{DistanceCounts, HistogramBuilder, ReuseHistogram, SampledRate};
pub use keys::BlockKeys;
pub use parts::{BlockSample, SampleCounts};
pub use phases::{
    AccessRecord, MARK, Phase, PhaseOptions, PhaseReuse, PhaseState, PhaseTree, SharedRecord,
    SharedRecorder,
};
pub use requests::RequestDistances;
pub use reuse::ReuseDistances;
pub use sample::Sampling;
pub use slices::{
    Accesses, Slice, SliceBatch, SliceCounts, SlicedHistogram, Slicer, merge_slice_counts,
    merge_slices,
};
pub use stack::{Reuse, ReuseStack};
pub use workload::{LocalityOptions, Scope, WorkloadHistograms, WorkloadLocality};
