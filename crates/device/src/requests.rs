//! The location of a request's data and the destination of its reply: the driver's side of an
//! executor.

use std::collections::{BTreeMap, VecDeque};

use forebay_effect::{Outcome, RequestId};

use crate::buffer::AlignedBuffer;
use crate::devices::MemorySlice;
use crate::loan::Loan;

/// The services that an executor needs from its caller, which received the requests.
///
/// # Safety
/// The memory that [`data`](Requests::data) returns must stay valid, unmoved and unused by others
/// until [`reply`](Requests::reply) is called for that request, or until the executor is dropped or
/// reset.
pub unsafe trait Requests {
    /// The data buffer of an unanswered request.
    ///
    /// # Panics
    /// May panic if there is no such request: a machine that names one would otherwise write into
    /// memory that belongs to others.
    fn data(&mut self, request: RequestId) -> MemorySlice;

    /// Whether the bytes from `offset` on of a read's reply may be lent instead of copied to its
    /// buffer.
    fn borrows(&mut self, request: RequestId, offset: u32) -> bool {
        let _ = (request, offset);
        false
    }

    /// Takes a loan of the bytes for which [`borrows`](Requests::borrows) returned true.
    fn borrow(&mut self, request: RequestId, loan: Loan) {
        let _ = request;
        drop(loan);
        panic!("a loan for a request that borrows nothing");
    }

    /// Ends a request, whose buffer belongs to the driver again. Called within the executor's
    /// `run`, so it should only record the result and wake the waiting thread.
    fn reply(&mut self, request: RequestId, result: Outcome);
}

/// Maximum number of loans that [`OwnedRequests`] holds at a time.
const HELD_MAX: usize = 8;

/// Maximum number of buffers that [`OwnedRequests`] keeps for later requests.
const SPARE_MAX: usize = 16;

/// Requests whose buffers are owned by a table: for single-threaded drivers and tests. Lent memory
/// is copied, and then held for some time, to detect writes to it.
#[derive(Debug, Default)]
pub struct OwnedRequests {
    open: BTreeMap<u64, AlignedBuffer>,
    held: VecDeque<(Loan, Box<[u8]>)>,
    /// The place of the next loan in the request.
    borrow_at: u32,
    replies: Vec<(RequestId, Outcome)>,
    done: BTreeMap<u64, AlignedBuffer>,
    spare: VecDeque<AlignedBuffer>,
}

impl OwnedRequests {
    /// Opens a request with `bytes` bytes of data. Fill them in before the machine sees the
    /// request: a buffer that was put back holds its old contents.
    ///
    /// # Panics
    /// If a request with that number is open already.
    pub fn open(&mut self, request: RequestId, bytes: usize) -> &mut [u8] {
        let spare = self.spare.iter().rposition(|buffer| buffer.len() == bytes);
        let buffer = match spare.and_then(|at| self.spare.remove(at)) {
            Some(buffer) => buffer,
            None => AlignedBuffer::new(bytes),
        };
        let old = self.open.insert(request.0, buffer);
        assert!(old.is_none(), "request {} is open already", request.0);
        self.open.get_mut(&request.0).expect("just inserted")
    }

    /// The replies since the last call, in order.
    pub fn take_replies(&mut self) -> Vec<(RequestId, Outcome)> {
        std::mem::take(&mut self.replies)
    }

    /// Takes the data of an answered request.
    pub fn take_data(&mut self, request: RequestId) -> Option<AlignedBuffer> {
        self.done.remove(&request.0)
    }

    /// Keeps an unused buffer for a later request.
    pub fn put_back(&mut self, buffer: AlignedBuffer) {
        if self.spare.len() == SPARE_MAX {
            self.spare.pop_front();
        }
        self.spare.push_back(buffer);
    }

    /// Drops everything, after a crash.
    pub fn clear(&mut self) {
        self.end_loans(0);
        let spare = std::mem::take(&mut self.spare);
        *self = OwnedRequests { spare, ..OwnedRequests::default() };
    }

    /// Ends the oldest loans until `left` remain.
    fn end_loans(&mut self, left: usize) {
        while self.held.len() > left
            && let Some((loan, bytes)) = self.held.pop_front()
        {
            assert!(loan[..] == bytes[..], "lent memory was written");
        }
    }
}

// SAFETY: buffers are heap memory that does not move when the table or the map's nodes do. They are
// released only by `take_data` after the reply, by `clear` or on drop, whose callers reset the
// executor first.
unsafe impl Requests for OwnedRequests {
    fn data(&mut self, request: RequestId) -> MemorySlice {
        let buffer = self.open.get(&request.0).expect("the request is open");
        MemorySlice { pointer: buffer.pointer(), length: buffer.len() }
    }

    fn borrows(&mut self, request: RequestId, offset: u32) -> bool {
        self.end_loans(HELD_MAX - 1);
        self.borrow_at = offset;
        self.open.contains_key(&request.0)
    }

    fn borrow(&mut self, request: RequestId, loan: Loan) {
        let buffer = self.open.get_mut(&request.0).expect("the request is open");
        buffer[self.borrow_at as usize..][..loan.len()].copy_from_slice(&loan);
        let bytes = Box::from(&loan[..]);
        self.held.push_back((loan, bytes));
    }

    fn reply(&mut self, request: RequestId, result: Outcome) {
        let buffer = self.open.remove(&request.0).expect("a request is answered only once");
        self.done.insert(request.0, buffer);
        self.replies.push((request, result));
    }
}
