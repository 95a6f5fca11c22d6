//! The targets of requests.
//!
//! A [`Target`] accepts requests without blocking and reports later, in any order, how they ended.
//! Three kinds exist: [`block`] (files and block devices), [`nbd`] (exports of NBD servers) and
//! [`engine`] (our own cache, in this process).

pub mod block;
pub mod engine;
pub mod nbd;

use forebay_block::{Flags, Nanos, Op};
use forebay_device::AlignedBuffer;
use forebay_effect::Outcome;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::ReplayError;

/// A request on its way to a target.
#[derive(Debug)]
pub struct Io {
    /// The sender's name for it. Requests of the same tag may be in flight at the same time.
    pub tag: u64,
    /// The target's volume, by its place in [`Target::volumes`].
    pub volume: u32,
    /// What to do.
    pub op: Op,
    /// How.
    pub flags: Flags,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u64,
    /// The data of a write, or room for that of a read: at least `length` bytes for these two.
    pub buffer: Option<AlignedBuffer>,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Done {
    /// As it was handed in; a read that succeeded has its data in the buffer.
    pub io: Io,
    /// How it ended.
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

/// Operations besides reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Trims that do not amount to writing zeroes.
    pub trim: bool,
    /// Zeroing. Without it zeroes are written.
    pub zero: bool,
    /// Flushes.
    pub flush: bool,
}

impl Abilities {
    /// Everything.
    pub const ALL: Abilities = Abilities { trim: true, zero: true, flush: true };
}

/// What a target takes in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Offsets and lengths are multiples of this power of two.
    pub alignment_bytes: u64,
    /// The longest read or write.
    pub transfer_bytes_max: u64,
    /// The longest trim or zeroing.
    pub zero_bytes_max: u64,
    /// Requests that can be in flight at once.
    pub depth_max: u32,
}

/// Where requests are sent. Used by one thread at a time.
///
/// Dropping a target with requests in flight ends them first.
pub trait Target {
    /// Volumes of the target.
    fn volumes(&self) -> &[TargetVolume];

    /// What it takes in one piece.
    fn limits(&self) -> Limits;

    /// Takes a request. It may be held back until [`flush`](Target::flush) or
    /// [`wait`](Target::wait), and may end at once.
    ///
    /// # Errors
    /// If the target can no longer be used, as with the other methods.
    fn submit(&mut self, io: Io, done: &mut Vec<Done>) -> Result<(), ReplayError>;

    /// Sends on what was held back, and takes in what has ended without waiting.
    ///
    /// # Errors
    /// As with [`submit`](Target::submit).
    fn flush(&mut self, done: &mut Vec<Done>) -> Result<(), ReplayError>;

    /// As [`flush`](Target::flush), then waits until at least one request has ended, or until
    /// the run's clock shows `until`, or a little less.
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
    /// How the target is reached: the I/O backend, or the number of connections and the kind of replies.
    pub via: String,
    /// Volumes of the target.
    pub volumes: Vec<TargetVolume>,
}
