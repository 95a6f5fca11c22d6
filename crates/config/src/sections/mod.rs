//! The tables of the configuration file, one module per topic.

mod cache;
mod flash;
mod policies;
mod serve;
mod shape;
mod volume;

pub use cache::{Acknowledge, Cache, Order, Partial, Relation, WritePolicy};
pub use flash::{Flash, FlashLayout, FlashReplacement};
pub use policies::{
    Admission, AdmissionPolicy, Bypass, Dedup, Etica, Flush, FlushPolicy, Lookup, OnStop, Qos,
    QosPolicy, Replacement, ReplacementPolicy, Workers, Written,
};
pub use serve::{Serve, Tls};
pub use shape::{Distribution, Shape};
pub use volume::{BackingLayout, Partition, Staleness, Volume};
