//! Loans of frame memory, which can be read after the lock is released.
//!
//! The data of a read hit need not be copied under the lock of the executor's owner: the memory of
//! the frame can be *lent* and sent in place. A lent piece is not written: an executor that must
//! write to its frame first gives the frame another piece
//! ([`Arena::writable`](crate::Arena::writable)). So a borrower sees unchanged bytes for as long as
//! it keeps the loan. Machines do not know about loans.
//!
//! A loan is made under the lock, or without it from [`Published`](crate::Published) frames, and
//! may end on any thread.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::devices::MemorySlice;

/// One in this many pins is reserved for readers that copy; loans get the rest.
const COPIERS_PART: u32 = 8;

/// The mapping of the frames, and its readers.
#[derive(Debug)]
pub(crate) struct Pieces {
    base: NonNull<u8>,
    bytes: usize,
    /// Number of loans and pins of each piece; empty if nothing can be lent.
    loans: Box<[AtomicU32]>,
    /// Current number of loans and pins. Each is counted here before, and until after, it is
    /// counted at its piece.
    lent: Apart<AtomicU64>,
    /// Maximum of loans and pins together, and of loans alone. The difference leaves room for
    /// readers that only copy, even when clients hold all loans.
    pins_max: u64,
    loans_max: u64,
}

/// Keeps a value in a separate cache line, so that threads that write it do not slow down readers
/// of the neighbouring fields.
#[derive(Debug)]
#[repr(align(64))]
struct Apart<T>(T);

/// A piece that is not written while this exists.
pub(crate) struct Pin<'a> {
    pieces: &'a Pieces,
    piece: u32,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.pieces.unpin(self.piece, 1);
    }
}

// SAFETY: the mapping is owned by this value. Only the arena writes, and one thread at a time uses
// it; borrowers only read, and only memory that is not written meanwhile.
unsafe impl Send for Pieces {}
// SAFETY: as above; the counters are atomic.
unsafe impl Sync for Pieces {}

impl Pieces {
    /// Takes over a mapping of `bytes` bytes. Its first `pieces` pieces can be lent and pinned,
    /// with at most `pins_max` loans and pins at a time.
    ///
    /// # Safety
    /// It must be an anonymous private mapping that nothing else uses or unmaps.
    pub unsafe fn new(base: NonNull<u8>, bytes: usize, pieces: u32, pins_max: u32) -> Pieces {
        let loans = (0..pieces).map(|_| AtomicU32::new(0)).collect();
        let (pins_max, loans_max) = (pins_max.into(), (pins_max - pins_max / COPIERS_PART).into());
        Pieces { base, bytes, loans, lent: Apart(AtomicU64::new(0)), pins_max, loans_max }
    }

    pub fn memory(&self) -> MemorySlice {
        MemorySlice { pointer: self.base.as_ptr(), length: self.bytes }
    }

    /// Whether the piece is being read. If not, all reads of it have ended.
    pub fn is_lent(&self, piece: u32) -> bool {
        // `SeqCst`, to be ordered with readers that check whether a frame is still published.
        self.loans.get(piece as usize).is_some_and(|loans| loans.load(Ordering::SeqCst) > 0)
    }

    /// Lends `length` bytes of the mapping from byte `start` on, which must be within this piece;
    /// `None` if the limit is reached. Read the bytes only if the piece is known not to have been
    /// written since: see [`Published`](crate::Published).
    ///
    /// # Panics
    /// If the bytes are outside the mapping.
    #[inline]
    pub fn try_lend(self: &Arc<Self>, piece: u32, start: usize, length: usize) -> Option<Loan> {
        assert!(
            start.checked_add(length).is_some_and(|end| end <= self.bytes),
            "the range is outside the mapping"
        );
        if !self.count_pin(piece, self.loans_max) {
            return None;
        }
        let pointer = self.base.as_ptr().wrapping_add(start).cast_const();
        Some(Loan { pieces: self.clone(), first: piece, count: 1, pointer, length })
    }

    /// Pins a piece during a copy; `None` if the limit is reached.
    #[inline]
    pub fn pin(&self, piece: u32) -> Option<Pin<'_>> {
        self.count_pin(piece, self.pins_max).then(|| Pin { pieces: self, piece })
    }

    fn count_pin(&self, piece: u32, most: u64) -> bool {
        if self.lent.0.fetch_add(1, Ordering::Relaxed) >= most {
            self.lent.0.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.loans[piece as usize].fetch_add(1, Ordering::SeqCst);
        true
    }

    fn unpin(&self, first: u32, count: u32) {
        for piece in first..first + count {
            // All reads of the piece happen before it can be written.
            self.loans[piece as usize].fetch_sub(1, Ordering::Release);
        }
        self.lent.0.fetch_sub(count.into(), Ordering::Release);
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        // SAFETY: our own mapping (see `new`), which no loan keeps alive any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Bytes of frames, readable until this is dropped.
#[derive(Debug)]
pub struct Loan {
    pieces: Arc<Pieces>,
    first: u32,
    count: u32,
    pointer: *const u8,
    length: usize,
}

// SAFETY: it only reads memory that lives as long as `pieces` and is not written meanwhile.
unsafe impl Send for Loan {}

impl Loan {
    /// Joins `next` to the end of this loan if its bytes follow directly; otherwise returns `next`.
    pub fn join(&mut self, mut next: Loan) -> Option<Loan> {
        let follows = next.first == self.first + self.count
            && self.pointer.wrapping_add(self.length) == next.pointer
            && Arc::ptr_eq(&self.pieces, &next.pieces);
        if !follows {
            return Some(next);
        }
        self.count += std::mem::take(&mut next.count);
        self.length += next.length;
        None
    }
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: within a mapping that `pieces` keeps, not written while it is lent.
        unsafe { std::slice::from_raw_parts(self.pointer, self.length) }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.count == 0 {
            return; // joined to another
        }
        self.pieces.unpin(self.first, self.count);
    }
}
