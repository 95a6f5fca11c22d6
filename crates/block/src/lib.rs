//! The vocabulary of block storage, as types.
//!
//! Every other crate uses these terms: a **request** is what a client sends (time, volume,
//! operation, byte offset, byte length); a **block** is a cache line, a power of two in size;
//! a **volume** is one exported virtual disk. Index, count and byte offset are distinct types
//! so that they cannot be mixed up. This crate has no dependencies and does no I/O.

mod content;
mod per_volume;
mod request;
mod units;

pub use content::{Content, ContentRun};
pub use per_volume::PerVolume;
pub use request::{Flags, Op, Request, RequestColumns};
pub use units::{BlockAddr, BlockIndex, BlockSize, BlockSizeError, Nanos, Volume};

/// The smallest unit of transfer on any device, in bytes.
pub const SECTOR_BYTES: u64 = 512;
