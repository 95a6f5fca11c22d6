//! Memory of frames that is read after the lock has gone.
//!
//! A read that hits need not be copied under the lock of the executor's owner: the memory
//! of its frame can be *lent*, and sent from where it lies. A lent piece is not written: an
//! executor that is to write to its frame gives the frame another piece first
//! ([`Arena::writable`](crate::Arena::writable)), so a borrower sees the bytes as they were, for
//! as long as it likes. Machines know nothing of that.
//!
//! Loans are made under the lock, or without it of what is [`Published`](crate::Published), and end anywhere.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::devices::MemorySlice;

/// The mapping that frames lie in, and who reads it.
#[derive(Debug)]
pub(crate) struct Pieces {
    base: NonNull<u8>,
    bytes: usize,
    /// Loans of each piece; empty where nothing is lent.
    loans: Box<[AtomicU32]>,
    /// Loans now. One counts here from before it counts at its piece until after that.
    lent: AtomicU64,
    lent_max: u64,
}

// SAFETY: the mapping is owned by this value. Who writes where is the arena's business, which is
// used by one thread at a time; borrowers only read, and only what is not written meanwhile.
unsafe impl Send for Pieces {}
// SAFETY: as above; the counters are atomic.
unsafe impl Sync for Pieces {}

impl Pieces {
    /// Takes over a mapping of `bytes` bytes, of whose first `pieces` pieces `lent_max` may be lent at a time.
    ///
    /// # Safety
    /// It must be an anonymous private mapping that nobody else uses or unmaps.
    pub unsafe fn new(base: NonNull<u8>, bytes: usize, pieces: u32, lent_max: u32) -> Pieces {
        let loans = (0..pieces).map(|_| AtomicU32::new(0)).collect();
        Pieces { base, bytes, loans, lent: AtomicU64::new(0), lent_max: lent_max.into() }
    }

    pub fn memory(&self) -> MemorySlice {
        MemorySlice { pointer: self.base.as_ptr(), length: self.bytes }
    }

    /// Whether somebody reads it. If not, whatever was read of it has been read.
    pub fn is_lent(&self, piece: u32) -> bool {
        // (In one order with those that look whether a frame is still published.)
        self.loans.get(piece as usize).is_some_and(|loans| loans.load(Ordering::SeqCst) > 0)
    }

    /// Lends `length` bytes of the mapping from `start` on, which lie within this piece; `None` if as much is lent as
    /// may be. To be read only if the piece is known not to have been written since: see
    /// [`Published`](crate::Published).
    ///
    /// # Panics
    /// If they lie outside the mapping.
    #[inline]
    pub fn try_lend(self: &Arc<Self>, piece: u32, start: usize, length: usize) -> Option<Loan> {
        assert!(start.checked_add(length).is_some_and(|end| end <= self.bytes), "no such memory");
        if self.lent.fetch_add(1, Ordering::Relaxed) >= self.lent_max {
            self.lent.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        self.loans[piece as usize].fetch_add(1, Ordering::SeqCst);
        let pointer = self.base.as_ptr().wrapping_add(start).cast_const();
        Some(Loan { pieces: self.clone(), first: piece, count: 1, pointer, length })
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        // SAFETY: our own mapping (see `new`), which no loan keeps alive any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Bytes of frames, good to be read until this is dropped.
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
    /// Joins `next` to the end of this, if it goes on where this ends; otherwise gives it back.
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
        for piece in self.first..self.first + self.count {
            // What was read is read before the piece can be written.
            self.pieces.loans[piece as usize].fetch_sub(1, Ordering::Release);
        }
        self.pieces.lent.fetch_sub(self.count.into(), Ordering::Release);
    }
}
