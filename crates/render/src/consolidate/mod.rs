//! Shows whether workloads fit together in one cache.

mod pictures;
mod text;

pub use pictures::sections;
pub use text::Consolidation;
