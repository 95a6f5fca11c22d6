//! How long devices take: pure models for simulation and shaping.
//!
//! A [`Model`] takes the time at which an operation starts and returns the time at which it ends.
//! It reads no clock and derives its random numbers from a seed, so the simulator, which charges
//! virtual time, and the shaper of real files, which delays completions, get exactly the same
//! latencies. All arithmetic is exactly rounded: the same seed gives the same times on every
//! machine.
//!
//! ```
//! use forebay_block::{Nanos, Op};
//! use forebay_model::{Access, Model, Profile};
//!
//! let mut disk = Model::new(&Profile::named("hdd-7200").unwrap(), 1 << 40, 42);
//! let read = |offset| Access { op: Op::Read, offset, length: 4096 };
//! let far = disk.complete(Nanos(0), read(1 << 39));
//! let next = disk.complete(far, read((1 << 39) + 4096));
//! assert!(next.0 - far.0 < far.0 / 10, "a sequential read needs no seek");
//! ```

mod distribution;
mod model;
mod profile;

pub use distribution::{Latency, LatencyError};
pub use model::{Access, Model};
pub use profile::{Disk, Profile};
