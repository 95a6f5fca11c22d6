//! The events of the devices, recorded for an observer.

use super::PendingIo;
use forebay_effect::Device;

/// An event that an observer sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happening {
    /// An operation was submitted; includes the data of a write.
    Submitted {
        /// The operation.
        io: PendingIo,
        /// The data of a write; empty for other operations.
        data: Vec<u8>,
    },
    /// The operation completed, and reported a number of bytes done or a failure.
    Completed {
        /// The operation.
        io: PendingIo,
        /// Bytes done from the start of the range; `None` if it failed.
        done: Option<u64>,
    },
    /// The medium now holds data other than what was written, without an error.
    Harmed {
        /// The device.
        device: Device,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
}
