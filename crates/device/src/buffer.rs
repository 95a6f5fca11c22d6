//! Aligned memory: the arena of frames, and staging buffers for transfers that need a copy.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::devices::MemorySlice;
use crate::loan::{Loan, Pieces};
use crate::published::Published;

/// Alignment of every buffer: enough for O_DIRECT on any device.
pub(crate) const PAGE_BYTES: usize = 4096;

/// How the arena requests huge pages, which reduce TLB misses on random hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// Ordinary pages.
    Never,
    /// Transparent huge pages where the kernel offers them (`madvise`).
    #[default]
    Transparent,
    /// Pages from the reserved pool (`MAP_HUGETLB`); fails when the pool is too small.
    Reserved,
}

/// The arena could not be allocated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// The size does not fit the address space.
    #[error("{count} frames of {frame_bytes} bytes do not fit in memory; lower `cache.dram`")]
    TooLarge {
        /// Number of frames requested.
        count: u32,
        /// Bytes per frame.
        frame_bytes: u32,
    },
    /// The kernel refused.
    #[error(
        "cannot map {bytes} bytes for frames ({source}); lower `cache.dram`, or reserve huge pages"
    )]
    Map {
        /// Bytes requested.
        bytes: usize,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// Memory for frames of equal size in one anonymous mapping, page-aligned and initially zeroed.
///
/// Each frame has a *piece* of the mapping. If there are spare pieces, frames can be lent
/// ([`Arena::lend`]), and a frame that must be written while it is lent gets another piece
/// ([`Arena::writable`]).
#[derive(Debug)]
pub struct Arena {
    pieces: Arc<Pieces>,
    frame_bytes: u32,
    count: u32,
    /// The piece of each frame; empty in an arena without spare pieces: a frame's piece is then its
    /// number.
    piece_of: Vec<u32>,
    /// Pieces without a frame, the longest unused first. Some may still be lent.
    spare: VecDeque<u32>,
    /// Frames that can be read without the lock; `None` in an arena without spare pieces.
    published: Option<Arc<Published>>,
}

impl Arena {
    /// Memory for `count` frames of `frame_bytes` each.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn new(count: u32, frame_bytes: u32, huge: HugePages) -> Result<Arena, ArenaError> {
        Arena::lending(count, frame_bytes, huge, 0)
    }

    /// Like [`Arena::new`], with memory for `spare` more frames, so that this many can be lent at a
    /// time.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn lending(
        count: u32,
        frame_bytes: u32,
        huge: HugePages,
        spare: u32,
    ) -> Result<Arena, ArenaError> {
        let too_large = || ArenaError::TooLarge { count, frame_bytes };
        let unit = if huge == HugePages::Reserved { 2 << 20 } else { PAGE_BYTES };
        let all = count.checked_add(spare).ok_or_else(too_large)?;
        let bytes = (all as usize)
            .checked_mul(frame_bytes as usize)
            .and_then(|bytes| bytes.max(1).checked_next_multiple_of(unit))
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(too_large)?;
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | match huge {
                // Reserve the pages (no `MAP_NORESERVE`): touching one that the pool cannot supply
                // kills the process.
                HugePages::Reserved => libc::MAP_HUGETLB,
                _ => libc::MAP_NORESERVE,
            };
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
        let lent = if spare > 0 { all } else { 0 };
        // SAFETY: just mapped, and used by nothing else.
        let pieces = Arc::new(unsafe { Pieces::new(base, bytes, lent, spare) });
        let piece_of = if spare > 0 { (0..count).collect() } else { Vec::new() };
        let published = Published::new(pieces.clone(), count, frame_bytes);
        let published = (spare > 0).then(|| Arc::new(published));
        Ok(Arena { pieces, frame_bytes, count, piece_of, spare: (count..all).collect(), published })
    }

    /// Bytes per frame.
    pub fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    /// Number of frames.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The whole mapping.
    pub fn memory(&self) -> MemorySlice {
        self.pieces.memory()
    }

    /// The address of `length` bytes from `offset` of frame `frame`.
    ///
    /// # Panics
    /// If the range is not within the frame, or there is no such frame: the address would be
    /// another block's memory.
    pub fn slice(&self, frame: u32, offset: u32, length: u32) -> MemorySlice {
        assert!(
            frame < self.count
                && offset.checked_add(length).is_some_and(|end| end <= self.frame_bytes),
            "frame {frame}: bytes {offset}+{length} of {} frames of {} bytes",
            self.count,
            self.frame_bytes
        );
        let MemorySlice { pointer, .. } = self.piece(self.piece_of(frame));
        MemorySlice { pointer: pointer.wrapping_add(offset as usize), length: length as usize }
    }

    /// Like [`Arena::slice`], for bytes that are about to be written. Withdraws the frame if it is
    /// published. A lent frame first moves to another piece, together with its other bytes.
    ///
    /// # Panics
    /// As [`Arena::slice`].
    pub fn writable(&mut self, frame: u32, offset: u32, length: u32) -> MemorySlice {
        let slice = self.slice(frame, offset, length);
        let piece = self.piece_of(frame);
        if let Some(published) = &self.published {
            published.withdraw(frame);
        }
        if !self.pieces.is_lent(piece) {
            return slice;
        }
        self.give_another(frame, piece, length < self.frame_bytes);
        self.slice(frame, offset, length)
    }

    /// Lends bytes of a frame; `None` if all spare pieces are in use.
    ///
    /// # Panics
    /// As [`Arena::slice`].
    pub fn lend(&mut self, frame: u32, offset: u32, length: u32) -> Option<Loan> {
        let memory = self.slice(frame, offset, length);
        let start = memory.pointer.addr() - self.pieces.memory().pointer.addr();
        // All writing to frames goes through `writable`, which leaves lent pieces alone.
        self.pieces.try_lend(self.piece_of(frame), start, memory.length)
    }

    /// Publishes a frame under a key; see [`Published`]. Does nothing in an arena without spare
    /// pieces.
    pub fn publish(&mut self, key: u64, frame: u32) {
        if let Some(published) = &self.published {
            published.publish(key, frame, self.piece_of(frame));
        }
    }

    /// The frames that can be read without the lock; `None` in an arena without spare pieces.
    pub fn published(&self) -> Option<Arc<Published>> {
        self.published.clone()
    }

    /// Moves a lent frame to another piece.
    #[cold]
    fn give_another(&mut self, frame: u32, piece: u32, keep: bool) {
        // There are at most as many loans as spare pieces, and one of them is of this frame's
        // piece, which is not spare: so at any time at least one spare piece is not lent. The
        // search can still fail, because loans begin and end while it runs.
        let free = loop {
            match self.spare.iter().position(|&spare| !self.pieces.is_lent(spare)) {
                Some(free) => break free,
                None => std::thread::yield_now(),
            }
        };
        let fresh = self.spare.remove(free).expect("it was just found");
        if keep {
            let (from, to) = (self.piece(piece).pointer, self.piece(fresh).pointer);
            // SAFETY: two pieces of our own mapping; nothing writes to the source, and nothing else
            // uses the target.
            unsafe { from.copy_to_nonoverlapping(to, self.frame_bytes as usize) };
        }
        self.piece_of[frame as usize] = fresh;
        self.spare.push_back(piece);
    }

    fn piece_of(&self, frame: u32) -> u32 {
        self.piece_of.get(frame as usize).copied().unwrap_or(frame)
    }

    fn piece(&self, piece: u32) -> MemorySlice {
        let bytes = self.frame_bytes as usize;
        let pointer = self.pieces.memory().pointer.wrapping_add(piece as usize * bytes);
        MemorySlice { pointer, length: bytes }
    }

    /// Writes `byte` over the start of each sector of every frame, except lent memory, so that code
    /// that relies on old contents fails.
    pub fn scribble(&mut self, byte: u8) {
        for piece in 0..self.count + self.spare.len() as u32 {
            if !self.pieces.is_lent(piece) {
                // SAFETY: our own mapping, exclusively borrowed, and not lent to a reader.
                unsafe { spoil_sectors(self.piece(piece), byte) };
            }
        }
    }
}

/// Writes `byte` over the first 64 bytes of each sector. A check of whole sectors detects that as
/// well as a complete overwrite, which takes eight times as long.
///
/// # Safety
/// The memory must be valid, and nothing may use it meanwhile.
pub(crate) unsafe fn spoil_sectors(memory: MemorySlice, byte: u8) {
    for at in (0..memory.length).step_by(512) {
        let count = (memory.length - at).min(64);
        // SAFETY: within the memory, which is the caller's.
        unsafe { memory.pointer.add(at).write_bytes(byte, count) };
    }
}

/// Buffers of this length or more are separate mappings: their pages are allocated when first
/// written, and return to the system with the buffer.
const MAPPED_BYTES_MIN: usize = 64 << 10;

/// A page-aligned piece of memory, zeroed at first.
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
        if bytes >= MAPPED_BYTES_MIN {
            // SAFETY: an anonymous mapping at an address of the kernel's choice.
            let base = unsafe {
                let (flags, protection) =
                    (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
                libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0)
            };
            let base = NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED);
            let base = base.unwrap_or_else(|| handle_alloc_error(layout));
            return AlignedBuffer { base, bytes };
        }
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

    /// Address of the first byte, for passing the buffer to a device.
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
        if self.bytes >= MAPPED_BYTES_MIN {
            // SAFETY: mapped in `new` with the same length.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
            return;
        }
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.base.as_ptr(), Self::layout(self.bytes)) };
    }
}

/// Free staging buffers, by power-of-two size, kept for reuse.
#[derive(Debug, Default)]
pub(crate) struct StagingPool {
    free: Vec<Vec<AlignedBuffer>>,
    allocated: u64,
}

impl StagingPool {
    /// A buffer of at least `bytes`; it still holds the contents of its last use.
    pub fn take(&mut self, bytes: usize) -> AlignedBuffer {
        let class = Self::class(bytes);
        if let Some(buffer) = self.free.get_mut(class).and_then(Vec::pop) {
            return buffer;
        }
        self.allocated += 1;
        AlignedBuffer::new(PAGE_BYTES << class)
    }

    /// Returns a buffer.
    pub fn give(&mut self, buffer: AlignedBuffer) {
        let class = Self::class(buffer.len());
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(buffer);
    }

    /// Number of buffers allocated so far: constant once the steady state is reached.
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
        for frame_bytes in [512u32, 4096, 65536] {
            let arena = Arena::new(7, frame_bytes, HugePages::Transparent).unwrap();
            for frame in 0..7 {
                let at = arena.slice(frame, 0, frame_bytes);
                assert_eq!(at.pointer as usize % PAGE_BYTES.min(frame_bytes as usize), 0);
                let first = arena.slice(0, 0, 1).pointer as usize;
                assert_eq!(at.pointer as usize - first, (frame * frame_bytes) as usize);
            }
        }
    }

    #[test]
    #[should_panic(expected = "frame 1: bytes 4000+97")]
    fn a_range_past_the_slots_end_is_refused() {
        Arena::new(2, 4096, HugePages::Never).unwrap().slice(1, 4000, 97);
    }

    #[test]
    #[should_panic(expected = "frame 2")]
    fn a_slot_that_does_not_exist_is_refused() {
        Arena::new(2, 4096, HugePages::Never).unwrap().slice(2, 0, 1);
    }

    #[test]
    fn an_arena_beyond_the_address_space_is_a_typed_error() {
        let error = Arena::new(u32::MAX, u32::MAX, HugePages::Never).unwrap_err();
        assert!(error.to_string().contains("cache.dram"), "{error}");
    }

    #[test]
    fn huge_pages_that_are_not_there_are_an_error_and_not_the_end_of_the_process() {
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
        let free = memory.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
        // Without this line, the kernel has no huge pages.
        let free: u32 = free.map_or(0, |free| free.trim().parse().unwrap());
        let error = Arena::new(free + 1, 2 << 20, HugePages::Reserved).unwrap_err();
        assert!(matches!(error, ArenaError::Map { .. }), "{error}");
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

    #[test]
    fn what_is_lent_stays_as_it_was_whatever_its_slot_becomes() {
        let mut arena = Arena::lending(2, 4096, HugePages::Never, 3).unwrap();
        let fill = |memory: MemorySlice, byte| {
            // SAFETY: memory of the arena, returned by `writable`.
            unsafe { memory.pointer.write_bytes(byte, memory.length) };
        };
        fill(arena.writable(1, 0, 4096), 1);
        let first = arena.lend(1, 512, 1024).unwrap();
        // Writing a part of the frame moves the rest along.
        fill(arena.writable(1, 1024, 512), 2);
        let second = arena.lend(1, 0, 4096).unwrap();
        // Write the whole frame, which is no longer in the piece of the first loan.
        fill(arena.writable(1, 0, 4096), 3);
        let third = arena.lend(1, 0, 4096).unwrap();
        assert!(arena.lend(0, 0, 512).is_none(), "no more is lent than there are spare pieces");
        fill(arena.writable(1, 0, 4096), 4);
        assert!(first.iter().all(|&byte| byte == 1));
        assert!(second[..1024].iter().all(|&byte| byte == 1));
        assert!(second[1024..1536].iter().all(|&byte| byte == 2));
        assert!(second[1536..].iter().all(|&byte| byte == 1));
        assert!(third.iter().all(|&byte| byte == 3));
        drop((first, second));
        // Returned pieces are used again, and a frame that is not lent stays in its piece.
        let place = arena.slice(1, 0, 4096).pointer;
        assert_eq!(arena.writable(1, 0, 4096).pointer, place);
        for round in 5..50 {
            let loan = arena.lend(1, 0, 4096).unwrap();
            fill(arena.writable(1, 0, 4096), round);
            assert!(loan.iter().all(|&byte| byte == round - 1));
        }
        assert!(third.iter().all(|&byte| byte == 3));
        arena.scribble(0xDB);
        drop(arena);
        assert!(third.iter().all(|&byte| byte == 3), "a loan outlives the arena");
    }

    #[test]
    fn loans_of_neighbours_join_and_all_of_them_come_back() {
        let mut arena = Arena::lending(4, 4096, HugePages::Never, 4).unwrap();
        for _ in 0..3 {
            let mut joined = arena.lend(0, 2048, 2048).unwrap();
            assert!(joined.join(arena.lend(1, 0, 4096).unwrap()).is_none());
            assert!(joined.join(arena.lend(2, 0, 512).unwrap()).is_none());
            // Neither the next bytes nor the next piece.
            let apart = joined.join(arena.lend(3, 0, 512).unwrap());
            assert_eq!(
                (joined.len(), apart.map(|loan| loan.len())),
                (2048 + 4096 + 512, Some(512))
            );
            drop(joined);
            let all: Vec<_> = (0..4).map_while(|frame| arena.lend(frame, 0, 512)).collect();
            assert_eq!(all.len(), 4, "all of them are back");
            drop(all);
            assert!((0..8).all(|piece| !arena.pieces.is_lent(piece)));
        }
    }

    #[test]
    fn an_arena_without_spare_frames_lends_nothing() {
        let mut arena = Arena::new(2, 4096, HugePages::Never).unwrap();
        assert!(arena.lend(0, 0, 4096).is_none());
    }
}
