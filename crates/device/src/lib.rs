//! Devices and the one executor of effects.
//!
//! The machines (`forebay-cache`, `forebay-flash`) decide and name places; this crate moves the
//! bytes. An [`Executor`] polls a [`Machine`]'s effects, performs the immediate ones at once and
//! submits device operations to a [`Devices`] backend. The executor handles the difficulties of
//! devices (short transfers, `EINTR` and `EAGAIN`, alignment, zeroing that is not supported,
//! bounded retries) in one place, so a backend can be as simple as a real device. Backends:
//!
//! - [`RealDevices`]: files and block devices ([`file::Target`]) through io_uring ([`uring`]) or a
//!   pool of threads ([`threads`]).
//! - [`memory::MemoryDevices`]: faulty devices in memory, deterministic, for the adversary.
//!
//! A [`Layer`] is a set of devices that wraps another one. [`Shaped`] slows devices down to the
//! speed of another device's model. [`JointSyncs`] fails their syncs if a sync of the header on the
//! same store failed. [`Pauses`] lets a busy device recover before an operation is tried again.
//!
//! Other backends (such as remote NBD exports) also implement [`Devices`]. Backends can share a
//! [`Doorbell`], so that one thread can wait for all of them.
//!
//! Invariants: a failed sync is never retried (the kernel may have dropped the data it could not
//! write, so a second success proves nothing). Memory given to a backend stays valid until the
//! completion is reaped or [`Devices::abandon`] returns. Operations allocate nothing once the
//! tables have grown to their working size.

mod buffer;
pub mod choices;
mod devices;
mod doorbell;
mod executor;
pub mod file;
mod holes;
mod layer;
mod loan;
pub mod memory;
pub mod nbd;
mod pauses;
mod published;
mod real;
mod requests;
mod shape;
mod store_syncs;
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
pub use layer::Layer;
pub use loan::Loan;
pub use pauses::Pauses;
pub use published::Published;
pub use real::{Backend, RealDevices, UnknownBackend};
pub use requests::{OwnedRequests, Requests};
pub use shape::{Clock, Shaped, SystemClock};
pub use store_syncs::{JointSyncs, StoreSyncs};
