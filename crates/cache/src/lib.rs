//! The sans-IO block cache: front, shards, and the flash log put together.
//!
//! Start with [`Cache`]; its module's documentation is the contract of the state machine. The cache
//! decides everything and executes nothing: it has no I/O, no clock, no threads, no bytes. The same
//! code runs in the server, in the simulator, and against the adversary.

mod allocation;
mod budget;
mod byte_range;
pub mod cache;
mod call;
mod cleaner;
mod combination;
mod config;
mod destage;
mod entry_walk;
mod flash_condition;
mod flushes;
mod front;
mod holds;
mod in_flight;
mod late;
mod lifecycle;
mod load;
mod machine;
mod notice;
mod order;
mod pass_through;
mod place;
mod policy;
mod published;
mod requests;
mod sealer;
mod shard;
mod shares;
mod slab;
mod stages;
mod stamp;
mod startup;
mod stats;
mod stop;
mod store_condition;
mod stores;
mod streams;
mod switch;
mod ticket;
mod volume;
mod volume_set;
mod volumes;
mod world;

pub use allocation::{Held, Holdings};
pub use cache::{Cache, Sought, VOLUMES_MAX};
pub use call::Call;
pub use combination::{Combination, FlashCombination};
pub use config::{
    Bypass, CacheConfig, ConfigError, FlashConfig, FlashLayout, LogReplacement, SlotsConfig,
    VolumeConfig, Written,
};
pub use destage::DestageError;
pub use forebay_replacement::{
    AdmissionKind, AdmissionParameters, Kind as ReplacementKind,
    Parameters as ReplacementParameters, QueueParameters, Tier,
};
pub use notice::{Notice, Open};
pub use order::Order;
pub use place::Relation;
pub use policy::{Acknowledge, Partial, WritePolicy};
pub use stamp::StampReport;
pub use stats::{CacheStats, Hits, VolumeStats};
pub use stop::{StopTarget, StoresLeft};
pub use stores::PROBE_PERIOD;
pub use switch::PolicyError;
