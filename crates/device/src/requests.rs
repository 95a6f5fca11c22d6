//! The location of a request's data and the destination of its reply: the driver's side of an
//! executor.

use std::collections::{BTreeMap, VecDeque};

use forebay_effect::{Outcome, RequestId};

use crate::buffer::AlignedBuffer;
use crate::devices::MemorySlice;
use crate::loan::Loan;

/// What an executor needs of its caller, which took the requests in.
///
/// # Safety
/// The memory that [`data`](Requests::data) names must stay valid, unmoved and untouched by
/// others until [`reply`](Requests::reply) is called for that request, or until the executor is
/// dropped or reset.
pub unsafe trait Requests {
    /// The data buffer of a request that has not been answered.
    ///
    /// # Panics
    /// May panic when there is no such request: a machine that names one would otherwise write
    /// into memory that belongs to somebody else.
    fn data(&mut self, request: RequestId) -> MemorySlice;

    /// Whether the bytes from `offset` on of a read's answer may be lent instead of copied to its
    /// buffer.
    fn borrows(&mut self, request: RequestId, offset: u32) -> bool {
        let _ = (request, offset);
        false
    }

    /// Takes the bytes that [`borrows`](Requests::borrows) was asked about.
    fn borrow(&mut self, request: RequestId, loan: Loan) {
        let _ = request;
        drop(loan);
        panic!("a loan for a request that borrows nothing");
    }

    /// The request is done. The buffer is the driver's again. Called within the executor's
    /// `run`, so it should only note the fact and wake the thread that waits.
    fn reply(&mut self, request: RequestId, result: Outcome);
}

/// Loans that [`OwnedRequests`] holds at a time.
const HELD_MAX: usize = 8;

/// Buffers that it keeps for further requests.
const SPARE_MAX: usize = 16;

/// Requests whose buffers are owned by a table: for one-threaded drivers and tests. Lent memory is
/// copied, and then held for some time, to see that nobody writes to it.
#[derive(Debug, Default)]
pub struct OwnedRequests {
    open: BTreeMap<u64, AlignedBuffer>,
    held: VecDeque<(Loan, Box<[u8]>)>,
    /// Where in the request the next loan belongs.
    borrow_at: u32,
    replies: Vec<(RequestId, Outcome)>,
    done: BTreeMap<u64, AlignedBuffer>,
    spare: VecDeque<AlignedBuffer>,
}

impl OwnedRequests {
    /// Opens a request with `bytes` of data; fill it in before the machine sees it: memory that was put back holds
    /// what it held.
    ///
    /// # Panics
    /// If that number is open already.
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

    /// The data of an answered request; forgets it.
    pub fn take_data(&mut self, request: RequestId) -> Option<AlignedBuffer> {
        self.done.remove(&request.0)
    }

    /// Keeps a buffer that is not used any more, for a further request.
    pub fn put_back(&mut self, buffer: AlignedBuffer) {
        if self.spare.len() == SPARE_MAX {
            self.spare.pop_front();
        }
        self.spare.push_back(buffer);
    }

    /// Forgets everything, after a crash.
    pub fn clear(&mut self) {
        self.end_loans(0);
        let spare = std::mem::take(&mut self.spare);
        *self = OwnedRequests { spare, ..OwnedRequests::default() };
    }

    /// Ends the oldest loans until `left` are left.
    fn end_loans(&mut self, left: usize) {
        while self.held.len() > left
            && let Some((loan, bytes)) = self.held.pop_front()
        {
            assert!(loan[..] == bytes[..], "lent memory was written");
        }
    }
}

// SAFETY: buffers are heap memory that moves with neither the table nor the map's nodes, and
// they are given up only by `take_data` after the reply, by `clear` or on drop, whose callers reset
// the executor first.
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
        let buffer = self.open.remove(&request.0).expect("a request is answered once");
        self.done.insert(request.0, buffer);
        self.replies.push((request, result));
    }
}
