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
    /// The session's own name for the question.
    pub tag: u64,
    /// What is known, from the first byte that was asked about on: at least one byte, at most all.
    pub runs: Vec<ContentRun>,
}

/// The questions of all volumes, by number.
#[derive(Debug)]
pub(crate) struct AllocationQueries(pub(crate) Vec<Arc<VolumeQueries>>);

/// The questions about one volume, and the thread that answers them.
#[derive(Debug)]
pub(crate) struct VolumeQueries {
    state: Mutex<State>,
    /// There is a question, or the end.
    pub wake: Condvar,
}

/// What is to be answered.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// What knows of the store, if anything does.
    pub holes: Option<Arc<dyn Holes>>,
    pub questions: VecDeque<Question>,
    /// There is a thread.
    pub open: bool,
    /// No more questions are taken.
    pub closed: bool,
}

impl AllocationQueries {
    /// One for volumes with these stores.
    pub fn new(stores: impl IntoIterator<Item = Option<Arc<dyn Holes>>>) -> AllocationQueries {
        let of_one = |holes| VolumeQueries {
            state: Mutex::new(State { holes, ..State::default() }),
            wake: Condvar::new(),
        };
        AllocationQueries(stores.into_iter().map(of_one).map(Arc::new).collect())
    }

    /// Lets go of the stores, and ends the threads. It does not wait for one that waits for its store: that
    /// may take for ever.
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
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // A list of questions is one at every point where a panic could be.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
