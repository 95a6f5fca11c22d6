//! Phases of a workload, and how much cache each of them needs.
//!
//! A workload does one thing for a while and then another, with smaller phases within larger ones.
//! Each phase has a **reuse set**, the blocks that it accesses more than once, and an **effective
//! reuse set size** (ERSS): the fewest blocks of cache that serve those reuses. The blocks that it
//! accesses only once are its **flood**: they gain nothing from a cache, and in a shared cache they
//! evict blocks that other workloads would have reused.
//!
//! - [`SharedRecorder`] records what the search for phases needs: the reuse distance of each
//!   access, for each workload alone and for all together.
//! - [`PhaseTree`] finds phases from the hits and misses of caches of decreasing size.
//! - [`PhaseReuse`] measures the reuse set and the flood of a span of accesses.
//!
//! Source: Koller, *Improving Caches in Consolidated Environments* (2012), chapter 4, cited below
//! by section. Where the thesis leaves a choice open, the comments below mark ours as "Decided".

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
