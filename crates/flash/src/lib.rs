//! The sans-IO flash log: one for each flash device, shared by all shards of the cache.
//!
//! A shard requests *append this frame with this metadata*, and the completion gives the position
//! on flash. The log owns batches, regions, reclaiming, the superblock, the activity log and
//! recovery. It moves no bytes itself, reads no clock, and keeps no state for a cached block except
//! while its record is in flight: the index is in the shards.
//!
//! Start with [`Log`], whose documentation is the contract of the state machine.
//! `docs/flash-format.md` has the format on flash and the reasons for it.
//!
//! Deliberately absent: clocks, threads, files, locks, randomness, iteration over unordered maps.
//! The same calls give the same effects and events everywhere.

mod activity;
mod ahead;
mod batches;
mod binding;
mod cells;
mod commit;
mod directory;
mod epochs;
mod events;
pub mod format;
pub mod fuzz;
mod geometry;
mod granules;
mod identity;
mod io;
mod key;
mod layout;
mod live_records;
mod log;
mod mapping;
mod operation;
mod placement;
mod probe;
mod recovery;
mod regions;
mod remains;
#[doc(hidden)]
pub mod sabotage;
mod sequence;
mod stale;
mod stamp;
mod store_header;
mod superblock_copies;
mod trust;
mod types;
mod waiting_marks;
mod walk;

pub use binding::{Binding, NotedStamp, SEAL_BYTES, Seal, Sealed};
pub use cells::MoveRoom;
pub use epochs::{EpochStart, FIRST_EPOCH};
pub use events::{AnswerKind, Event, MarkAnswer, RecordEvent, StartEvent};
pub use geometry::{GRANULES_MAX, Geometry, GeometryError, POSITIONS_MAX};
pub use granules::Granules;
pub use identity::{Fingerprint, StoreId, TierId};
pub use key::{BlockKey, Position, RegionIndex};
pub use layout::Layout;
pub use log::Log;
pub use sequence::{BatchSequence, RegionSequence, StampNumber, SuperblockGeneration};
pub use stamp::{Older, Stamp, StoreStamp};
pub use store_header::{HeaderChange, HeaderFields, OpenFlags, StoreHeader};
pub use types::{
    Append, Damage, DirectoryCounts, ExtentId, LogError, LogStats, Mapping, OnDamage, Options,
    Record, RecoveryProgress, RecoveryReport, Start,
};
