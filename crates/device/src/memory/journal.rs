//! The operations of the devices, reported to an observer.

use super::PendingIo;
use forebay_effect::Device;

/// Something that happened. In the order in which it did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happening {
    /// An operation was submitted; with the data of a write.
    Submitted {
        /// Which.
        io: PendingIo,
        /// What it writes; empty for all but writes.
        data: Vec<u8>,
    },
    /// It completed, and said that so many bytes were done, or that it failed.
    Completed {
        /// Which.
        io: PendingIo,
        /// Bytes done from the start of the range; `None` if it failed.
        done: Option<u64>,
    },
    /// The medium came to hold other than it was given, without a word.
    Harmed {
        /// The device.
        device: Device,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}
