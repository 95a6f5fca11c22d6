//! The queue of questions about where a volume has data; [`allocation`](crate::allocation) answers
//! them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use forebay_block::{ContentRun, Volume};
use forebay_device::Holes;

/// A question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub session: u32,
    pub tag: u64,
    pub volume: Volume,
    pub offset: u64,
    pub length: u64,
    pub runs_max: usize,
}

/// The answer to [`Session::ask_contents`](crate::Session::ask_contents).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// The session's own identifier of the question.
    pub tag: u64,
    /// The answer, from the first requested byte on: at least one byte, at most all.
    pub runs: Vec<ContentRun>,
}

/// The questions of all volumes, by number.
#[derive(Debug)]
pub(crate) struct AllocationQueries(pub(crate) Vec<Arc<VolumeQueries>>);

/// The questions about one volume, and the thread that answers them.
#[derive(Debug)]
pub(crate) struct VolumeQueries {
    state: Mutex<QueryState>,
    /// There is a question, or the thread must end.
    pub wake: Condvar,
}

/// The questions to answer.
#[derive(Debug, Default)]
pub(crate) struct QueryState {
    /// The source of the store's answers, if there is one.
    pub holes: Option<Arc<dyn Holes>>,
    pub questions: VecDeque<Question>,
    /// There is a thread.
    pub open: bool,
    /// No more questions are taken.
    pub closed: bool,
}

impl AllocationQueries {
    /// One queue for each volume with these stores.
    pub fn new(stores: impl IntoIterator<Item = Option<Arc<dyn Holes>>>) -> AllocationQueries {
        let of_one = |holes| VolumeQueries {
            state: Mutex::new(QueryState { holes, ..QueryState::default() }),
            wake: Condvar::new(),
        };
        AllocationQueries(stores.into_iter().map(of_one).map(Arc::new).collect())
    }

    /// Releases the stores and ends the threads. It does not wait for a thread that waits for its
    /// store: that may take forever.
    pub fn close(&self) {
        for queries in &self.0 {
            let mut state = queries.lock();
            state.closed = true;
            state.holes = None;
            drop(state);
            queries.wake.notify_one();
        }
    }
}

impl VolumeQueries {
    pub fn lock(&self) -> MutexGuard<'_, QueryState> {
        // A list of questions is one at every point where a panic could be.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
