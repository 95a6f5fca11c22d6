//! Operations in flight, and their memory.

use super::PendingIo;
use super::faults::Fault;
use super::medium::Data;
use crate::buffer::spoil_sectors;
use crate::devices::{IoTag, MemorySlice, Verb};

/// An operation in flight.
pub(super) struct Pending {
    pub io: PendingIo,
    pub tag: IoTag,
    pub memory: Vec<MemorySlice>,
    pub submitted: u64,
    pub fault: Option<Fault>,
    /// Number of other completions that a slow operation waits for.
    pub delay: u64,
    pub contended: bool,
    /// For a write, the contents of its memory at submission. For a read, the contents of its range
    /// before they changed, or empty if they have not.
    pub before: Vec<u8>,
}

impl Pending {
    /// The pieces of its memory.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: valid until the completion, by the contract of `submit`.
        self.memory
            .iter()
            .map(|slice| unsafe { std::slice::from_raw_parts(slice.pointer, slice.length) })
    }

    /// Records the current contents of a write's memory.
    pub fn note_source(&mut self) {
        let mut bytes = std::mem::take(&mut self.before);
        bytes.clear();
        self.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        self.before = bytes;
    }

    /// Whether a write's memory differs from the recorded contents.
    pub fn is_source_changed(&self) -> bool {
        let mut rest = &self.before[..];
        self.pieces().any(|piece| {
            let (before, after) = rest.split_at(piece.len());
            rest = after;
            before != piece
        })
    }

    /// The data of a write: the current contents of its memory.
    pub fn data(&self) -> Data {
        if self.io.verb != Verb::Write {
            return Data::Zeroes(self.io.length);
        }
        let mut bytes = Vec::with_capacity(self.io.length as usize);
        self.pieces().for_each(|piece| bytes.extend_from_slice(piece));
        Data::Bytes(bytes)
    }

    /// Takes the data of a write that completes, without a copy.
    pub fn take_data(&mut self) -> Data {
        match self.io.verb {
            Verb::Write => Data::Bytes(std::mem::take(&mut self.before)),
            _ => Data::Zeroes(self.io.length),
        }
    }

    /// Copies `bytes` to the start of a read's memory.
    pub fn fill(&self, bytes: &[u8]) {
        let mut rest = bytes;
        for slice in &self.memory {
            let (piece, after) = rest.split_at(slice.length.min(rest.len()));
            // SAFETY: valid, and used only by the backend, by the contract of `submit`.
            unsafe { slice.pointer.copy_from(piece.as_ptr(), piece.len()) };
            rest = after;
        }
    }

    /// Spoils a read's memory, so that its old contents cannot be used.
    pub fn spoil(&self) {
        for slice in &self.memory {
            // SAFETY: as in `fill`.
            unsafe { spoil_sectors(*slice, 0xE5) };
        }
    }
}
