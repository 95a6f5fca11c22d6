//! The tape: every call into the machine, in order, and a running hash of what it answered.
//!
//! A tape replayed against a fresh machine gives the same effects, or the machine is not
//! deterministic or the tape is of another version. It is the test that the engine drives the
//! cache as the simulator and the adversary do, and a flight recorder (`serve --tape`).
//!
//! The file: `FOREBAYT`, version (2 bytes), length and text of the cache's parameters, then
//! records of one kind byte and fixed fields, little-endian. Checksums that the machine asked
//! for and the bytes that reads brought into its metadata buffers are part of the tape; clients'
//! data are not.

mod hash;
mod record;
mod recorder;
mod replay;

pub use record::{Record, TapeError};
pub use recorder::Recorder;
pub use replay::{Replayed, replay};

/// First bytes of a tape.
const MAGIC: [u8; 8] = *b"FOREBAYT";
/// The version written and understood.
const VERSION: u16 = 6;
