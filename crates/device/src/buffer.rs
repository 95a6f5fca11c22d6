//! Aligned memory: the arena of slots, and staging buffers for what cannot go directly.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::devices::MemorySlice;

/// Alignment of every buffer: enough for O_DIRECT on any device.
pub(crate) const PAGE_BYTES: usize = 4096;

/// How the arena asks for large pages, which save address-translation misses on random hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// Ordinary pages.
    Never,
    /// Transparent huge pages where the kernel offers them (`madvise`).
    #[default]
    Transparent,
    /// Pages of the reserved pool (`MAP_HUGETLB`); fails when the pool is too small.
    Reserved,
}

/// The arena could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The size does not fit the address space.
    #[error("{count} slots of {slot_bytes} bytes do not fit in memory; lower `cache.dram`")]
    TooLarge {
        /// Slots asked for.
        count: u32,
        /// Bytes per slot.
        slot_bytes: u32,
    },
    /// The kernel refused.
    #[error(
        "cannot map {bytes} bytes for slots ({source}); lower `cache.dram`, or reserve huge pages"
    )]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// Memory of a number of equal slots in one anonymous mapping, page-aligned and zeroed.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    bytes: usize,
    slot_bytes: u32,
    count: u32,
}

// SAFETY: the mapping is owned by this value; access goes through raw pointers whose users
// (the executor and its backend) follow the pinning rules of the effects.
unsafe impl Send for Arena {}

impl Arena {
    /// Memory for `count` slots of `slot_bytes` each.
    ///
    /// # Errors
    /// If the memory cannot be had.
    pub fn new(count: u32, slot_bytes: u32, huge: HugePages) -> Result<Arena, ArenaError> {
        let too_large = || ArenaError::TooLarge { count, slot_bytes };
        let unit = if huge == HugePages::Reserved { 2 << 20 } else { PAGE_BYTES };
        let bytes = (count as usize)
            .checked_mul(slot_bytes as usize)
            .and_then(|bytes| bytes.max(1).checked_next_multiple_of(unit))
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(too_large)?;
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        if huge == HugePages::Reserved {
            flags |= libc::MAP_HUGETLB;
        }
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(ArenaError::Map { bytes, source: std::io::Error::last_os_error() });
        }
        if huge == HugePages::Transparent && bytes >= 2 << 20 {
            // SAFETY: advice on our own mapping; a refusal costs only speed.
            unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
        }
        let base = NonNull::new(base.cast()).ok_or_else(too_large)?;
        Ok(Arena { base, bytes, slot_bytes, count })
    }

    /// Bytes per slot.
    pub fn slot_bytes(&self) -> u32 {
        self.slot_bytes
    }

    /// Number of slots.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The whole mapping.
    pub fn memory(&self) -> MemorySlice {
        MemorySlice { pointer: self.base.as_ptr(), length: self.bytes }
    }

    /// Where `length` bytes from `offset` of slot `slot` lie.
    ///
    /// # Panics
    /// If they are not all within the slot, or there is no such slot: that would hand out
    /// another block's memory.
    pub fn slice(&self, slot: u32, offset: u32, length: u32) -> MemorySlice {
        assert!(
            slot < self.count
                && offset.checked_add(length).is_some_and(|end| end <= self.slot_bytes),
            "slot {slot}: bytes {offset}+{length} of {} slots of {} bytes",
            self.count,
            self.slot_bytes
        );
        let start = slot as usize * self.slot_bytes as usize + offset as usize;
        // SAFETY: within the mapping, as just checked.
        let pointer = unsafe { self.base.as_ptr().add(start) };
        MemorySlice { pointer, length: length as usize }
    }

    /// Overwrites every slot with `byte`, so that whoever relies on old contents shows it.
    pub fn scribble(&mut self, byte: u8) {
        // SAFETY: our own mapping, exclusively borrowed.
        unsafe { self.base.as_ptr().write_bytes(byte, self.bytes) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size; nobody uses it any more (executor's duty).
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A page-aligned piece of heap memory, zeroed at first.
#[derive(Debug)]
pub struct AlignedBuffer {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: owned memory without thread affinity.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access through `&self` only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// `bytes` zeroed bytes (at least one).
    ///
    /// # Panics
    /// If `bytes` exceeds the address space.
    pub fn new(bytes: usize) -> AlignedBuffer {
        let layout = Self::layout(bytes);
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBuffer { base, bytes }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it holds no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Address of the first byte. The buffer may be handed to a device through it.
    pub fn pointer(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes.max(1), PAGE_BYTES).expect("buffer exceeds address space")
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: owned and initialised.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: owned, initialised, exclusively borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.base.as_ptr(), Self::layout(self.bytes)) };
    }
}

/// Staging buffers, kept by power-of-two size so that none is allocated twice.
#[derive(Debug, Default)]
pub(crate) struct StagingPool {
    free: Vec<Vec<AlignedBuffer>>,
    allocated: u64,
}

impl StagingPool {
    /// A buffer of at least `bytes`; its contents are whatever the last user left.
    pub fn take(&mut self, bytes: usize) -> AlignedBuffer {
        let class = Self::class(bytes);
        if let Some(buffer) = self.free.get_mut(class).and_then(Vec::pop) {
            return buffer;
        }
        self.allocated += 1;
        AlignedBuffer::new(PAGE_BYTES << class)
    }

    /// Gives a buffer back.
    pub fn give(&mut self, buffer: AlignedBuffer) {
        let class = Self::class(buffer.len());
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(buffer);
    }

    /// Buffers ever allocated: constant once the steady state is reached.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    fn class(bytes: usize) -> usize {
        bytes.max(1).div_ceil(PAGE_BYTES).next_power_of_two().trailing_zeros() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_aligned_to_their_size_up_to_a_page_and_do_not_overlap() {
        for slot_bytes in [512u32, 4096, 65536] {
            let arena = Arena::new(7, slot_bytes, HugePages::Transparent).unwrap();
            for slot in 0..7 {
                let at = arena.slice(slot, 0, slot_bytes);
                assert_eq!(at.pointer as usize % PAGE_BYTES.min(slot_bytes as usize), 0);
                let first = arena.slice(0, 0, 1).pointer as usize;
                assert_eq!(at.pointer as usize - first, (slot * slot_bytes) as usize);
            }
        }
    }

    #[test]
    #[should_panic(expected = "slot 1: bytes 4000+97")]
    fn a_range_past_the_slots_end_is_refused() {
        Arena::new(2, 4096, HugePages::Never).unwrap().slice(1, 4000, 97);
    }

    #[test]
    #[should_panic(expected = "slot 2")]
    fn a_slot_that_does_not_exist_is_refused() {
        Arena::new(2, 4096, HugePages::Never).unwrap().slice(2, 0, 1);
    }

    #[test]
    fn an_arena_beyond_the_address_space_is_a_typed_error() {
        let error = Arena::new(u32::MAX, u32::MAX, HugePages::Never).unwrap_err();
        assert!(error.to_string().contains("cache.dram"), "{error}");
    }

    #[test]
    fn staging_buffers_are_reused() {
        let mut pool = StagingPool::default();
        for bytes in [1, 4096, 4097, 1 << 20] {
            for _ in 0..3 {
                let buffer = pool.take(bytes);
                assert!(buffer.len() >= bytes);
                assert_eq!(buffer.pointer() as usize % PAGE_BYTES, 0);
                pool.give(buffer);
            }
        }
        assert_eq!(pool.allocated(), 3);
    }
}
