//! Where clients ask where a volume has data; [`allocation`](crate::allocation) answers.

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

/// Where questions are asked: a counter for each volume.
#[derive(Debug)]
pub(crate) struct Desk(pub(crate) Vec<Arc<Counter>>);

/// Where questions about a volume are asked.
#[derive(Debug)]
pub(crate) struct Counter {
    state: Mutex<State>,
    /// There is a question, or the end.
    pub wake: Condvar,
}

/// What waits at a counter.
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

impl Desk {
    /// One for volumes with these stores.
    pub fn new(stores: impl IntoIterator<Item = Option<Arc<dyn Holes>>>) -> Desk {
        let counter = |holes| Counter {
            state: Mutex::new(State { holes, ..State::default() }),
            wake: Condvar::new(),
        };
        Desk(stores.into_iter().map(counter).map(Arc::new).collect())
    }

    /// Lets go of the stores, and ends the threads. It does not wait for one that waits for its store: that
    /// may take for ever.
    pub fn close(&self) {
        for counter in &self.0 {
            let mut state = counter.lock();
            state.closed = true;
            state.holes = None;
            drop(state);
            counter.wake.notify_one();
        }
    }
}

impl Counter {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // A list of questions is one at every point where a panic could be.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
