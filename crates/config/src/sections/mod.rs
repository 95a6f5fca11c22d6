//! The tables of the configuration file, one module per topic.

mod cache;
mod flash;
mod policies;
mod serve;
mod shape;
mod volume;

pub use cache::{Acknowledge, Cache, Partial, Relation, WritePolicy};
pub use flash::{Flash, FlashLayout, FlashReplacement};
pub use policies::{
    Admission, AdmissionPolicy, Bypass, Etica, Flush, OnStop, Replacement, ReplacementPolicy,
    Workers, Written,
};
pub use serve::Serve;
pub use shape::{Distribution, Shape};
pub use volume::{BackingLayout, Volume};
