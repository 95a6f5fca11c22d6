//! Devices and the one executor of effects.
//!
//! The machines (`forebay-cache`, `forebay-flash`) decide and name places; here the bytes move.
//! An [`Executor`] polls a [`Machine`]'s effects, performs the immediate ones at once and hands
//! device operations to a [`Devices`] backend. What is awkward about devices (short transfers,
//! `EINTR` and `EAGAIN`, alignment, zeroing that is not supported, bounded retries) is handled
//! once, in the executor, so a backend may be as clumsy as a real device is. Backends:
//!
//! - [`RealDevices`]: files and block devices ([`file::Target`]) through io_uring ([`uring`]) or
//!   a pool of threads ([`threads`]).
//! - [`memory::MemoryDevices`]: faulty devices in memory, deterministic, for the adversary.
//!
//! [`Shaped`] makes any of them look slower, as a model of another device says.
//!
//! Others (a remote NBD export) are further implementations of [`Devices`]. All that ring one
//! [`Doorbell`] can be waited for at once.
//!
//! Invariants: a failed sync is never retried (the kernel may have dropped the data it could not
//! write, so a second success proves nothing); memory handed to a backend stays valid until the
//! completion is reaped or [`Devices::abandon`] returns; nothing is allocated per operation once
//! the tables have grown to their working size.

mod buffer;
pub mod choices;
mod devices;
mod doorbell;
mod executor;
pub mod file;
mod holes;
mod loan;
pub mod memory;
pub mod nbd;
mod published;
mod real;
mod requests;
mod shape;
pub mod threads;
pub mod uring;

pub use buffer::{AlignedBuffer, Arena, ArenaError, HugePages};
pub use devices::{
    Capabilities, Completion, DeviceError, Devices, Io, IoTag, MemorySlice, Sender, Verb,
};
pub use doorbell::{Doorbell, precise_timers};
pub use executor::{Executor, ExecutorStats, Progress, RetryLimits};
pub use forebay_effect::Machine;
pub use holes::Holes;
pub use loan::Loan;
pub use published::Published;
pub use real::{Backend, RealDevices, UnknownBackend};
pub use requests::{OwnedRequests, Requests};
pub use shape::{Clock, Shaped, SystemClock};
