//! Where a request's data lies and where its reply goes: the driver's side of an executor.

use std::collections::BTreeMap;

use forebay_effect::{Outcome, RequestId};

use crate::buffer::AlignedBuffer;
use crate::devices::MemorySlice;

/// What an executor needs of whoever took the requests in.
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

    /// The request is done. The buffer is the driver's again. Called within the executor's
    /// `run`, so it should only note the fact and wake whoever waits.
    fn reply(&mut self, request: RequestId, result: Outcome);
}

/// Requests whose buffers are owned by a table: for one-threaded drivers and tests.
#[derive(Debug, Default)]
pub struct OwnedRequests {
    open: BTreeMap<u64, AlignedBuffer>,
    replies: Vec<(RequestId, Outcome)>,
    done: BTreeMap<u64, AlignedBuffer>,
}

impl OwnedRequests {
    /// Opens a request with `bytes` of data, zeroed; fill it in before the machine sees it.
    ///
    /// # Panics
    /// If that number is open already.
    pub fn open(&mut self, request: RequestId, bytes: usize) -> &mut [u8] {
        let old = self.open.insert(request.0, AlignedBuffer::new(bytes));
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

    /// Forgets everything, after a crash.
    pub fn clear(&mut self) {
        *self = OwnedRequests::default();
    }
}

// SAFETY: buffers are heap memory that moves with neither the table nor the map's nodes, and
// they are freed only by `take_data` after the reply, by `clear` or on drop, whose callers reset
// the executor first.
unsafe impl Requests for OwnedRequests {
    fn data(&mut self, request: RequestId) -> MemorySlice {
        let buffer = self.open.get(&request.0).expect("the request is open");
        MemorySlice { pointer: buffer.pointer(), length: buffer.len() }
    }

    fn reply(&mut self, request: RequestId, result: Outcome) {
        let buffer = self.open.remove(&request.0).expect("a request is answered once");
        self.done.insert(request.0, buffer);
        self.replies.push((request, result));
    }
}
