//! Translates places to addresses, and moves the bytes between them.

use forebay_effect::{Machine, Place, Segment};

use crate::buffer::{AlignedBuffer, Arena};
use crate::devices::MemorySlice;
use crate::requests::Requests;

/// Size of the shared zeroes and of the shared trash for [`Place::Void`].
pub(super) const VOID_BYTES: usize = 64 << 10;

/// Everything that a [`Place`] can refer to.
pub(super) struct Places<'a, M: ?Sized, R: ?Sized> {
    pub arena: &'a mut Arena,
    pub zeroes: &'a AlignedBuffer,
    pub machine: &'a mut M,
    pub requests: &'a mut R,
}

impl<M: Machine + ?Sized, R: Requests + ?Sized> Places<'_, M, R> {
    /// The address of `length` bytes of `place`; `None` for the void. Metadata addresses are valid
    /// until the next call to the machine.
    pub fn address(&mut self, place: Place, length: u32) -> Option<MemorySlice> {
        let within = |memory: MemorySlice, offset: u32| {
            let end = offset as usize + length as usize;
            assert!(end <= memory.length, "{place:?}+{length} of {} bytes", memory.length);
            // SAFETY: within the buffer, as just checked.
            let pointer = unsafe { memory.pointer.add(offset as usize) };
            MemorySlice { pointer, length: length as usize }
        };
        Some(match place {
            Place::Frame { frame, offset } => self.arena.slice(frame.0, offset, length),
            Place::Request { request, offset } => within(self.requests.data(request), offset),
            Place::Meta { buffer, offset } => {
                let bytes = self.machine.meta_mut(buffer);
                let all = MemorySlice { pointer: bytes.as_mut_ptr(), length: bytes.len() };
                within(all, offset)
            }
            Place::Void => return None,
        })
    }

    /// Like [`address`](Places::address), for a place that is about to be written. A lent frame
    /// moves first, so that lent memory does not change.
    pub fn target(&mut self, place: Place, length: u32) -> Option<MemorySlice> {
        match place {
            Place::Frame { frame, offset } => Some(self.arena.writable(frame.0, offset, length)),
            _ => self.address(place, length),
        }
    }

    /// Makes the places that a device will write writable. Call this before taking the first
    /// address: a loan in between, even one that is returned at once, must not move a frame whose
    /// address has been taken.
    pub fn make_writable(&mut self, segments: &[Segment]) {
        for segment in segments {
            if let Place::Frame { frame, offset } = segment.place {
                self.arena.writable(frame.0, offset, segment.length);
            }
        }
    }

    pub fn copy(&mut self, from: Place, to: Place, length: u32) {
        let Some(target) = self.target(to, length) else { return };
        let Some(source) = self.address(from, length) else { return self.zero(to, length) };
        // SAFETY: both ranges are live and `length` long; `copy` allows them to overlap.
        unsafe { std::ptr::copy(source.pointer, target.pointer, length as usize) };
    }

    pub fn zero(&mut self, to: Place, length: u32) {
        if let Some(target) = self.target(to, length) {
            // SAFETY: the range is live and `length` long.
            unsafe { target.pointer.write_bytes(0, length as usize) };
        }
    }

    pub fn checksum(&mut self, seed: u32, segments: &[Segment]) -> u32 {
        let mut crc = seed;
        for segment in segments {
            match self.address(segment.place, segment.length) {
                Some(at) => {
                    // SAFETY: live memory; a transfer in flight may only read it (pinning).
                    let bytes = unsafe { std::slice::from_raw_parts(at.pointer, at.length) };
                    crc = crc32c::crc32c_append(crc, bytes);
                }
                None => {
                    let mut left = segment.length as usize;
                    while left > 0 {
                        let n = left.min(self.zeroes.len());
                        crc = crc32c::crc32c_append(crc, &self.zeroes[..n]);
                        left -= n;
                    }
                }
            }
        }
        crc
    }

    /// Copies the segments' bytes to `target`, one after another.
    pub fn gather(&mut self, segments: &[Segment], target: &mut [u8]) {
        let mut rest = target;
        for segment in segments {
            let (piece, after) = rest.split_at_mut(segment.length as usize);
            match self.address(segment.place, segment.length) {
                // SAFETY: live memory, distinct from the staging buffer `piece` is part of.
                Some(at) => unsafe { at.pointer.copy_to(piece.as_mut_ptr(), piece.len()) },
                None => piece.fill(0),
            }
            rest = after;
        }
    }

    /// Copies `source` to the segments, one after another.
    pub fn scatter(&mut self, source: &[u8], segments: &[Segment]) {
        let mut rest = source;
        for segment in segments {
            let (piece, after) = rest.split_at(segment.length as usize);
            if let Some(at) = self.target(segment.place, segment.length) {
                // SAFETY: live memory, distinct from the staging buffer `piece` is part of.
                unsafe { at.pointer.copy_from(piece.as_ptr(), piece.len()) };
            }
            rest = after;
        }
    }
}

/// Appends a slice, joined with the last one if they are adjacent.
pub(super) fn push_joined(memory: &mut Vec<MemorySlice>, slice: MemorySlice) {
    if let Some(last) = memory.last_mut()
        && last.pointer.wrapping_add(last.length) == slice.pointer
    {
        last.length += slice.length;
        return;
    }
    memory.push(slice);
}

/// Appends `length` bytes of a shared buffer, repeated as often as needed.
pub(super) fn push_repeated(memory: &mut Vec<MemorySlice>, buffer: &AlignedBuffer, length: usize) {
    let mut left = length;
    while left > 0 {
        let n = left.min(buffer.len());
        memory.push(MemorySlice { pointer: buffer.pointer(), length: n });
        left -= n;
    }
}

/// Sets `part` to the part of `memory` that begins at byte `skip`, at most `length` bytes.
pub(super) fn cut(memory: &[MemorySlice], skip: u64, length: u64, part: &mut Vec<MemorySlice>) {
    part.clear();
    let (mut skip, mut left) = (skip as usize, length as usize);
    for slice in memory {
        if skip >= slice.length {
            skip -= slice.length;
            continue;
        }
        let n = (slice.length - skip).min(left);
        if n == 0 {
            return;
        }
        part.push(MemorySlice { pointer: slice.pointer.wrapping_add(skip), length: n });
        left -= n;
        skip = 0;
    }
}
