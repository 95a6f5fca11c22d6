//! The targets of requests.
//!
//! A [`Target`] accepts requests without blocking and reports their outcomes later, in any order.
//! Three kinds exist: [`block`] (files and block devices), [`nbd`] (exports of NBD servers) and
//! [`engine`] (Forebay's own cache, in this process).

pub mod block;
pub mod engine;
pub mod nbd;

use forebay_block::{Flags, Nanos, Op};
use forebay_device::AlignedBuffer;
use forebay_effect::Outcome;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::ReplayError;

/// A request to a target.
#[derive(Debug)]
pub struct Io {
    /// A number by which the sender identifies the request. Several requests with the same tag may
    /// be in flight.
    pub tag: u64,
    /// The target's volume, as an index into [`Target::volumes`].
    pub volume: u32,
    /// The operation.
    pub op: Op,
    /// The flags of the operation.
    pub flags: Flags,
    /// Offset on the volume in bytes.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub length: u64,
    /// The data of a write, or space for the data of a read: at least `length` bytes in both cases.
    pub buffer: Option<AlignedBuffer>,
}

/// A completed request.
#[derive(Debug)]
pub struct Done {
    /// The request as it was submitted; after a successful read, the buffer holds the data.
    pub io: Io,
    /// The outcome.
    pub result: Outcome,
}

/// A volume of a target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct TargetVolume {
    /// Name of the volume: a path, a URI, or the name in the configuration.
    pub name: String,
    /// Addressable bytes.
    pub size_bytes: u64,
    /// Whether the volume rejects writes.
    pub read_only: bool,
    /// Operations that it supports in addition to reads and writes.
    #[serde(skip)]
    pub able: Abilities,
}

/// Operations that a target supports in addition to reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Trims that do not amount to writing zeroes.
    pub trim: bool,
    /// Zeroing. Without it, requests to zero are sent as writes of zeroes.
    pub zero: bool,
    /// Flushes.
    pub flush: bool,
}

impl Abilities {
    /// All operations.
    pub const ALL: Abilities = Abilities { trim: true, zero: true, flush: true };
}

/// Limits of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Offsets and lengths must be multiples of this power of two.
    pub alignment_bytes: u64,
    /// The longest read or write in bytes.
    pub transfer_bytes_max: u64,
    /// The longest trim or zeroing in bytes.
    pub zero_bytes_max: u64,
    /// Maximum number of requests in flight.
    pub depth_max: u32,
}

/// A destination for requests, used by one thread at a time.
///
/// Dropping a target first ends the requests in flight.
pub trait Target {
    /// Volumes of the target.
    fn volumes(&self) -> &[TargetVolume];

    /// Limits of the target.
    fn limits(&self) -> Limits;

    /// Takes a request. The target may hold it back until [`flush`](Target::flush) or
    /// [`wait`](Target::wait). Requests that complete immediately are appended to `done`.
    ///
    /// # Errors
    /// If the target can no longer be used.
    fn submit(&mut self, io: Io, done: &mut Vec<Done>) -> Result<(), ReplayError>;

    /// Sends held-back requests, and appends completed ones to `done` without waiting.
    ///
    /// # Errors
    /// As with [`submit`](Target::submit).
    fn flush(&mut self, done: &mut Vec<Done>) -> Result<(), ReplayError>;

    /// Like [`flush`](Target::flush), but then waits until at least one request has completed, or
    /// until the run's clock shows `until` or slightly less.
    ///
    /// # Errors
    /// As with [`submit`](Target::submit).
    fn wait(&mut self, until: Nanos, done: &mut Vec<Done>) -> Result<(), ReplayError>;
}

/// What a target is, for reports.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct TargetInfo {
    /// `block`, `nbd` or `engine`.
    pub kind: &'static str,
    /// How the target is accessed: the I/O backend, or the number of connections and the kind of replies.
    pub via: String,
    /// Volumes of the target.
    pub volumes: Vec<TargetVolume>,
}
