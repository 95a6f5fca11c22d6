//! Phases of a workload, and how much cache each of them needs.
//!
//! A workload does one thing for a while and then another, with smaller phases within larger
//! ones. Each phase has a **reuse set**, the blocks that it accesses more than once, and an
//! **effective reuse set size** (ERSS): the fewest blocks of cache that serve those reuses. What
//! it accesses once only is its **flood**: it gains nothing from a cache, and evicts from a shared
//! one what others would have reused.
//!
//! - [`SharedRecorder`] keeps what phases are found with: of each access the reuse distance, for
//!   each workload alone and all together.
//! - [`PhaseTree`] finds phases from the hits and misses of caches of ever smaller sizes.
//! - [`PhaseReuse`] says what a span of accesses reuses and what it floods a cache with.
//!
//! Source: Koller, *Improving Caches in Consolidated Environments* (2012), chapter 4, cited below by
//! section. What it leaves open is decided here, and marked as decided.

mod detect;
mod packed;
mod record;
mod reuse;
mod reused;
mod shared;
mod tree;
mod windows;

pub use record::{AccessRecord, MARK};
pub use reuse::PhaseReuse;
pub use shared::{SharedRecord, SharedRecorder};
pub use tree::{Phase, PhaseOptions, PhaseState, PhaseTree};
