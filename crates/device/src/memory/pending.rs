//! Operations in flight, and their memory.

use super::PendingIo;
use super::faults::Fault;
use super::medium::Data;
use crate::devices::{IoTag, MemorySlice, Verb};

/// An operation in flight.
pub(super) struct Pending {
    pub io: PendingIo,
    pub tag: IoTag,
    pub memory: Vec<MemorySlice>,
    pub submitted: u64,
    pub fault: Option<Fault>,
    /// Other completions that a slow operation waits for.
    pub delay: u64,
    /// CRC-32C of a write's memory at submission.
    pub checksum: u32,
    pub contended: bool,
    /// What a read would have seen at submission.
    pub before: Vec<u8>,
}

impl Pending {
    pub fn crc(&self) -> u32 {
        // SAFETY: valid until the completion, by the contract of `submit`.
        let bytes = |slice: &MemorySlice| unsafe {
            std::slice::from_raw_parts(slice.pointer, slice.length)
        };
        self.memory.iter().fold(0, |crc, slice| crc32c::crc32c_append(crc, bytes(slice)))
    }

    /// What a write is about to write: its memory, as it is now.
    pub fn data(&self) -> Data {
        if self.io.verb != Verb::Write {
            return Data::Zeroes(self.io.length);
        }
        let mut bytes = Vec::with_capacity(self.io.length as usize);
        for slice in &self.memory {
            // SAFETY: valid until the completion, by the contract of `submit`.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(slice.pointer, slice.length)
            });
        }
        Data::Bytes(bytes)
    }

    /// Puts `bytes` at the start of a read's memory.
    pub fn fill(&self, bytes: &[u8]) {
        let mut rest = bytes;
        for slice in &self.memory {
            let (piece, after) = rest.split_at(slice.length.min(rest.len()));
            // SAFETY: valid, and the backend's alone, by the contract of `submit`.
            unsafe { slice.pointer.copy_from(piece.as_ptr(), piece.len()) };
            rest = after;
        }
    }

    /// Spoils a read's memory, so that nobody can use what was there.
    pub fn spoil(&self) {
        for slice in &self.memory {
            // SAFETY: as in `fill`.
            unsafe { slice.pointer.write_bytes(0xE5, slice.length) };
        }
    }
}
