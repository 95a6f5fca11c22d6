//! How long devices take: pure models for simulation and shaping.
//!
//! A [`Model`] is told when an operation starts and says when it ends. It reads no clock and
//! draws its random numbers from a seed, so the simulator charges virtual time and the shaping
//! of real files holds completions back by the very same numbers. The arithmetic is made of
//! exactly rounded operations only: the same seed gives the same times on every machine.
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
