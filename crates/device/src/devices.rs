//! The small trait that every device implements.
//!
//! A backend serves a *set* of devices, named by [`Device`]. It receives the machines' offsets, and
//! adds the offset that a layout needs. It may transfer less than requested, complete in any order
//! and report any error: the executor handles that.

use std::sync::Arc;
use std::time::Instant;

use forebay_effect::{Device, IoError};

use crate::doorbell::Doorbell;

/// A piece of memory that an operation reads from or writes to. Laid out like `struct iovec`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct MemorySlice {
    /// First byte.
    pub pointer: *mut u8,
    /// Bytes.
    pub length: usize,
}

// SAFETY: a slice is only an address; who may touch the memory behind it, and when, is the
// contract of `Devices::submit`.
unsafe impl Send for MemorySlice {}
// SAFETY: as above.
unsafe impl Sync for MemorySlice {}

/// Names an operation towards its completion. The backend only hands it back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IoTag(pub u64);

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    /// Read into memory.
    Read,
    /// Write from memory.
    Write,
    /// Make the range read as zeroes; completes with the whole length or with an error.
    WriteZeroes {
        /// Whether space may be given back.
        punch: bool,
    },
    /// Make every write and zeroing that completed before durable.
    Sync,
}

/// An operation as submitted.
#[derive(Clone, Copy, Debug)]
pub struct Io<'a> {
    /// Handed back with the completion.
    pub tag: IoTag,
    /// The device.
    pub device: Device,
    /// What to do.
    pub verb: Verb,
    /// First byte on the device; 0 for a sync.
    pub offset: u64,
    /// Bytes; for reads and writes the sum of `memory`, 0 for a sync.
    pub length: u64,
    /// Memory operands, in order; empty for zeroing and syncs.
    pub memory: &'a [MemorySlice],
}

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Which operation.
    pub tag: IoTag,
    /// Bytes done, counted from the start of the range: possibly fewer than asked.
    pub result: Result<u64, DeviceError>,
}

/// What a device is and can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Bytes that may be addressed; a multiple of `logical_block`.
    pub size: u64,
    /// Offsets and lengths must be multiples of this power of two (1: any). Also what the
    /// device promises to write as a whole.
    pub logical_block: u32,
    /// Memory addresses must be multiples of this power of two (1: any).
    pub memory_alignment: u32,
    /// Whether [`Verb::WriteZeroes`] is worth trying.
    pub zeroes: bool,
    /// Whether zeroing with `punch` gives space back.
    pub punches: bool,
}

/// Why a device operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Not done, try again (`EINTR`, `EAGAIN`, `EBUSY`, `ENOMEM`).
    #[error("the device was busy")]
    Again,
    /// The medium or the way to it failed (`EIO` and relatives); may pass.
    #[error("the device reported an I/O error")]
    Io,
    /// No space is left (`ENOSPC`, `EDQUOT`, `EFBIG`).
    #[error("the device is full")]
    NoSpace,
    /// The device is gone (`ENODEV`, `ENXIO`, a lost connection).
    #[error("the device is gone")]
    Gone,
    /// The device refuses writes (`EROFS`, `EPERM`, `EACCES`, `EBADF`).
    #[error("the device refuses writes")]
    ReadOnly,
    /// The operation does not exist there (`EOPNOTSUPP`, `ENOSYS`, `ENOTTY`).
    #[error("the device does not support the operation")]
    Unsupported,
    /// The arguments were refused (`EINVAL`).
    #[error("the device refused the operation's arguments")]
    Invalid,
}

impl DeviceError {
    /// From an `errno` number.
    pub const fn from_errno(errno: i32) -> DeviceError {
        match errno {
            libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM => DeviceError::Again,
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

/// Hands to the kernel what was submitted to devices ([`Devices::send_apart`]).
pub trait Sender: Send + Sync {
    /// Whether anything was submitted since this was last asked, or could not be sent. Ask before others use the
    /// devices, and then send: so each user sends its own operations, and nobody waits for a system call that
    /// sends another's.
    fn has_queued(&self) -> bool;

    /// Does it. If the kernel cannot take it now, the devices' bell rings, and the next call tries again.
    fn send(&self);
}

/// A set of devices that carry out operations.
pub trait Devices {
    /// What `device` is, or `None` when there is no such device.
    fn capabilities(&self, device: Device) -> Option<Capabilities>;

    /// Starts an operation; every one ends in exactly one completion. Backends may hold
    /// operations back until [`flush`](Devices::flush).
    ///
    /// # Safety
    /// The memory behind `io.memory` (not the list itself) must stay valid until the completion
    /// is reaped or [`abandon`](Devices::abandon) returns. Until then a write's memory is not
    /// changed, and a read's is not touched. Alignment and bounds are those of
    /// [`capabilities`](Devices::capabilities).
    unsafe fn submit(&mut self, io: Io<'_>);

    /// Hands to the kernel what was submitted.
    fn flush(&mut self) {}

    /// From now on [`flush`](Devices::flush) leaves that to the caller, who does it after each use of these devices and
    /// may do so while others use them: it may take long, and no lock of the caller's is needed for it. `None`, and
    /// nothing changes, where there is no such thing.
    fn send_apart(&mut self) -> Option<Arc<dyn Sender>> {
        None
    }

    /// Appends the completions that have arrived; never waits.
    fn reap(&mut self, done: &mut Vec<Completion>);

    /// Ends the life of everything in flight: afterwards the backend touches no memory that was
    /// handed to it, registered memory included, and reports none of those operations. Real
    /// devices wait for them. Dropping a backend does the same.
    fn abandon(&mut self);

    /// What rings when [`reap`](Devices::reap) may find something; `None` when completions come
    /// only from the caller's own doing.
    fn doorbell(&self) -> Option<Arc<Doorbell>> {
        None
    }

    /// When `reap` will find something although the bell does not ring (a completion held back
    /// until its time).
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
    fn quota_and_file_size_limits_are_reported_as_no_space() {
        for errno in [libc::EFBIG, libc::ENOSPC, libc::EDQUOT] {
            assert_eq!(IoError::from(DeviceError::from_errno(errno)), IoError::NoSpace);
        }
        for errno in [libc::EIO, libc::ETIMEDOUT] {
            assert_eq!(IoError::from(DeviceError::from_errno(errno)), IoError::Device);
        }
    }
}
