//! Reuse distances and miss-ratio curves: how large a cache a workload deserves.
//!
//! An LRU cache of `c` blocks holds a block iff fewer than `c` other distinct blocks were accessed
//! since. That number, the **reuse distance**, does not depend on `c`: one pass over a workload
//! gives the miss ratio of every cache size at once.
//!
//! - [`WorkloadLocality`] takes requests, splits them into blocks, and returns one histogram of all
//!   volumes together, one for each volume, or both.
//! - [`ReuseDistances`] takes block accesses in batches and counts distances into a
//!   [`ReuseHistogram`], whose [`hits`](ReuseHistogram::hits) at any size take constant time to
//!   look up; [`MissRatioCurve`] is a histogram as a list of points.
//! - [`RequestDistances`] counts whole requests, and blocks that enter the cache only at periodic
//!   migrations, as in a cache outside the data path.
//! - [`ContentLocality`] measures contents instead of blocks.
//! - [`Clairvoyant`] counts the hits of the best possible cache of a given size, which knows the
//!   future.
//! - [`ReuseStack`] returns the distance of each access.
//! - [`Slicer`] splits a large workload into [`Slice`]s, which the caller measures on its own
//!   threads; merging them also gives bounds on the error.
//! - [`BlockSample`] and [`SampleCounts`] provide sampling alone, for callers that measure
//!   distances themselves.
//! - [`PhaseTree`] finds the phases of a workload and the cache size that each needs, from a
//!   [`SharedRecorder`] of one workload or of several that share a cache.
//!
//! [`Distance`] selects what is measured (TRD, URD, POD by write policy), [`Sampling`] which blocks
//! are measured (all, a fixed share, or at most a given number). Everything here is pure: no I/O,
//! no clock, no threads, no randomness; the same accesses give the same numbers on every machine.

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
