//! The small trait that every device implements.
//!
//! A backend serves a *set* of devices, named by [`Device`]. It receives the machines' offsets, and
//! adds the offset that a layout needs. It may transfer less than requested, complete in any order
//! and report any error: the executor handles that.

use std::sync::Arc;
use std::time::Instant;

use forebay_effect::{Device, IoError};

use crate::doorbell::Doorbell;

/// A piece of memory that an operation reads or writes. Laid out like `struct iovec`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct MemorySlice {
    /// First byte.
    pub pointer: *mut u8,
    /// Length in bytes.
    pub length: usize,
}

// SAFETY: a slice is only an address; the contract of `Devices::submit` says who may access the
// memory behind it, and when.
unsafe impl Send for MemorySlice {}
// SAFETY: as above.
unsafe impl Sync for MemorySlice {}

/// Identifies an operation in its completion. The backend only returns it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IoTag(pub u64);

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    /// Read into memory.
    Read,
    /// Write from memory.
    Write,
    /// Make the range read as zeroes; completes with the whole length or with an error.
    WriteZeroes {
        /// Whether space may be released.
        punch: bool,
    },
    /// Make durable every write and zeroing that completed before.
    Sync,
}

/// An operation as submitted.
#[derive(Clone, Copy, Debug)]
pub struct Io<'a> {
    /// Returned with the completion.
    pub tag: IoTag,
    /// The device.
    pub device: Device,
    /// What to do.
    pub verb: Verb,
    /// First byte on the device; 0 for a sync.
    pub offset: u64,
    /// Length in bytes: for reads and writes the sum of `memory`, 0 for a sync.
    pub length: u64,
    /// Memory operands, in order; empty for zeroing and syncs.
    pub memory: &'a [MemorySlice],
}

/// The completion of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The tag of the operation.
    pub tag: IoTag,
    /// Bytes done, counted from the start of the range: possibly fewer than requested.
    pub result: Result<u64, DeviceError>,
}

/// The properties of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Addressable bytes; a multiple of `logical_block`.
    pub size: u64,
    /// Offsets and lengths must be multiples of this power of two (1: any). The device also
    /// promises to write such a block atomically.
    pub logical_block: u32,
    /// Memory addresses must be multiples of this power of two (1: any).
    pub memory_alignment: u32,
    /// Whether [`Verb::WriteZeroes`] is supported.
    pub zeroes: bool,
    /// Whether zeroing with `punch` releases space.
    pub punches: bool,
}

/// Why a device operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The operation was not done (`EINTR`, `EAGAIN`, `EBUSY`, `ENOMEM`; io_uring also reports
    /// `EFAULT` or `ECANCELED` if the thread that submitted the operation exits before it is done).
    /// All but a sync may be retried: for a sync, this error can mean that the kernel failed to
    /// write back the page cache, which it reports only once.
    #[error("the device was busy")]
    Again,
    /// The medium or the path to it failed (`EIO` and similar); may be temporary.
    #[error("the device reported an I/O error")]
    Io,
    /// No space is left (`ENOSPC`, `EDQUOT`, `EFBIG`).
    #[error("the device is full")]
    NoSpace,
    /// The device is gone (`ENODEV`, `ENXIO`, a lost connection).
    #[error("the device is gone")]
    Gone,
    /// The device refuses writes (`EROFS`, `EPERM`, `EACCES`, `EBADF`).
    #[error("the device rejects writes")]
    ReadOnly,
    /// The device does not have this operation (`EOPNOTSUPP`, `ENOSYS`, `ENOTTY`).
    #[error("the device does not support the operation")]
    Unsupported,
    /// The arguments were refused (`EINVAL`).
    #[error("the device rejected the operation's arguments")]
    Invalid,
}

impl DeviceError {
    /// From an `errno` number.
    pub const fn from_errno(errno: i32) -> DeviceError {
        match errno {
            libc::EINTR
            | libc::EAGAIN
            | libc::EBUSY
            | libc::ENOMEM
            | libc::EFAULT
            | libc::ECANCELED => DeviceError::Again,
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => DeviceError::NoSpace,
            libc::ENODEV | libc::ENXIO | libc::ENOTCONN | libc::EPIPE | libc::ECONNRESET => {
                DeviceError::Gone
            }
            libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF => DeviceError::ReadOnly,
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => DeviceError::Unsupported,
            libc::EINVAL => DeviceError::Invalid,
            _ => DeviceError::Io,
        }
    }
}

impl From<std::io::Error> for DeviceError {
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(DeviceError::Io, DeviceError::from_errno)
    }
}

impl From<DeviceError> for IoError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::NoSpace => IoError::NoSpace,
            DeviceError::ReadOnly => IoError::ReadOnly,
            DeviceError::Unsupported => IoError::Unsupported,
            DeviceError::Invalid => IoError::Invalid,
            DeviceError::Again | DeviceError::Io | DeviceError::Gone => IoError::Device,
        }
    }
}

/// Sends submitted operations to the kernel ([`Devices::send_apart`]).
pub trait Sender: Send + Sync {
    /// Whether any operation was submitted since the last call, or could not be sent. Call this
    /// before other threads use the devices, and then call [`send`](Sender::send). Each thread then
    /// sends its own operations, and none waits for a system call that sends another's.
    fn has_queued(&self) -> bool;

    /// Sends the queued operations. If the kernel cannot accept them now, the devices' [`Doorbell`]
    /// rings, and the next call tries again.
    fn send(&self);
}

/// A set of devices that execute operations.
///
/// Devices that wrap other devices are [layers](crate::Layer). A new method with a default must be
/// forwarded there and checked in `tests/calls`: the compiler does not notice if it is missing.
pub trait Devices {
    /// The properties of `device`, or `None` if there is no such device.
    fn capabilities(&self, device: Device) -> Option<Capabilities>;

    /// Starts an operation; each one ends in exactly one completion. Backends may hold operations
    /// back until [`flush`](Devices::flush).
    ///
    /// # Safety
    /// The memory behind `io.memory` (not the list itself) must stay valid until the completion is
    /// reaped or [`abandon`](Devices::abandon) returns. Until then a write's memory must not be
    /// changed, and a read's must not be accessed. Alignment and bounds are those of
    /// [`capabilities`](Devices::capabilities).
    unsafe fn submit(&mut self, io: Io<'_>);

    /// Sends submitted operations to the kernel.
    fn flush(&mut self) {}

    /// Makes the caller send operations in place of [`flush`](Devices::flush). The caller must send
    /// after each use of these devices, and may do so while other threads use them: sending may
    /// take long, and needs none of the caller's locks. Returns `None` and changes nothing if this
    /// is not supported.
    fn send_apart(&mut self) -> Option<Arc<dyn Sender>> {
        None
    }

    /// Appends the completions that have arrived; never blocks.
    fn reap(&mut self, done: &mut Vec<Completion>);

    /// Ends all operations in flight. Afterwards the backend accesses none of the memory given to
    /// it, including registered memory, and reports none of those operations. Real devices wait for
    /// them. Dropping a backend does the same.
    fn abandon(&mut self);

    /// The bell that rings when [`reap`](Devices::reap) may find something; `None` if completions
    /// come only from the caller's own calls.
    fn doorbell(&self) -> Option<Arc<Doorbell>> {
        None
    }

    /// When `reap` will find a completion for which the bell does not ring (one held back until a
    /// given time).
    fn next_due(&self) -> Option<Instant> {
        None
    }

    /// Offers the memory that most operations will use, to be registered with the kernel.
    ///
    /// # Safety
    /// The memory must stay valid until the next [`abandon`](Devices::abandon) returns, or the
    /// backend is dropped.
    unsafe fn register(&mut self, memory: MemorySlice) {
        let _ = memory;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_exiting_thread_leaves_undone_may_be_tried_again() {
        for errno in [libc::EFAULT, libc::ECANCELED, libc::EAGAIN, libc::ENOMEM] {
            assert_eq!(DeviceError::from_errno(errno), DeviceError::Again);
        }
    }

    #[test]
    fn quota_and_file_size_limits_are_reported_as_no_space() {
        for errno in [libc::EFBIG, libc::ENOSPC, libc::EDQUOT] {
            assert_eq!(IoError::from(DeviceError::from_errno(errno)), IoError::NoSpace);
        }
        for errno in [libc::EIO, libc::ETIMEDOUT] {
            assert_eq!(IoError::from(DeviceError::from_errno(errno)), IoError::Device);
        }
    }
}
