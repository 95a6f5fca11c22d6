//! The cache on real devices, in this process.
//!
//! [`Engine::open`] takes a configuration, opens and checks the devices, recovers the flash tier
//! and starts the machine of `forebay-cache`. All clients (connections of the NBD server, replays and
//! load generators) use the engine through [`Session`]s.
//!
//! # Threads
//! One lock protects the machine, the executor and the table of requests. A session's thread takes
//! the lock once for all requests that one read of its socket returned, and answers hits before it
//! releases the lock. One thread, the *reaper*, sleeps until a device has completed an operation or a
//! timeout is due. Then it takes the lock, runs the machine, and rings the bells of sessions that have
//! replies. A request's buffer belongs to the table while the request is in flight, and to the session
//! otherwise, so threads never share a buffer. Other threads, the *stampers*, write stamps into the
//! headers of backing stores.
//!
//! # Invariants
//! - Immediate effects are finished before the machine is called again.
//! - Nothing is written to a device before every check of [`Engine::open`] has passed.
//! - A write that is not yet on its backing store can be acknowledged only after the store's header is
//!   durably marked *dirty*.

mod allocation;
mod announcement;
pub mod backing_header;
mod backing_stores;
mod buffers;
mod check;
mod client_holds;
mod clock;
mod core;
mod devices;
mod engine;
mod error;
mod faults;
mod fingerprint;
mod flash_device;
mod former_header;
mod header_area;
mod held_wait;
mod hits;
mod inspection;
mod lock;
mod machine;
mod news;
mod notes;
mod notice;
mod opening;
mod operate;
mod options;
mod partitions;
mod patience;
mod queries;
mod quiesce;
mod reaper;
mod recognise;
mod roles;
mod session;
mod session_queues;
mod shared;
mod stamper;
mod status;
mod stop;
mod store;
mod store_head;
mod store_notes;
mod store_plan;
mod table;
pub mod tape;
mod translate;
mod unstamped;
pub mod watch;

pub use backing_header::{BackingHeader, EpochError, HeaderError};
pub use backing_stores::StoreFailure;
pub use buffers::BufferPool;
pub use check::{CheckReport, Loss, Unreadable, check_flash};
pub use client_holds::Resumed;
pub use clock::Clock;
pub use engine::{Counters, Engine};
pub use error::{
    DestageFailure, DirtyLeft, EngineError, FailingStore, HeldVolume, TierMismatch,
    UncountedReason, UnsealedReason,
};
pub use faults::{Fault, FlashGivenUp, LastingFault, OrderNews, Reported, UnreadableBlocks};
pub use forebay_flash::format::VERSION as FLASH_FORMAT;
pub use inspection::{inspect_backing, is_as_left, release_backing};
pub use notice::EngineNotice;
pub use options::{EngineOptions, StopMode, VolumeDescription};
pub use queries::Contents;
pub use recognise::{Found, inspect_flash, layout_name};
pub use session::Session;
pub use status::{Answered, Backing, Recovering, Status, Tiers, VolumeStatus, Workload};
pub use stop::HungStores;
pub use table::{Done, Loans, Submission};
pub use translate::cache_config;
