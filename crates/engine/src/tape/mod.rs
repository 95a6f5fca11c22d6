//! The tape: every call into the machine, in order, and a running hash of its answers.
//!
//! A tape that is replayed against a fresh machine gives the same effects. If it does not, the
//! machine is not deterministic, or the tape is from another version. Tapes test that the engine
//! drives the cache as the simulator and the adversary do, and serve as a flight recorder (`serve
//! --tape`).
//!
//! The file: `FOREBAYT`, version (2 bytes), length and text of the cache's parameters, then records
//! of one kind byte and fixed fields, little-endian. The tape includes checksums that the machine
//! requested and the bytes that reads brought into its metadata buffers, but not the data of
//! clients.

mod hash;
mod record;
mod recorder;
mod replay;
mod taped_cache;

pub use record::{Metadata, TapeError, TapeRecord};
pub use recorder::Recorder;
pub use replay::{Replayed, replay};
pub(crate) use taped_cache::TapedCache;

/// First bytes of a tape.
const MAGIC: [u8; 8] = *b"FOREBAYT";
/// The version written and read.
const VERSION: u16 = 10;
