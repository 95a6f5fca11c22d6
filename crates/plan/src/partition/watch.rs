//! Progress reports of a search, which can also stop it.

use crate::error::{BoxError, PlanError};

/// Called from time to time with the number of steps done and the total, and at the end with both
/// equal. An error stops the search. A search may count again, with another total, in its second
/// phase.
pub type Watch<'a> = dyn FnMut(u64, u64) -> Result<(), BoxError> + 'a;

/// A [`Watch`] that ignores the progress.
///
/// # Errors
/// Never.
pub fn unwatched(_done: u64, _total: u64) -> Result<(), BoxError> {
    Ok(())
}

/// Counts the steps of a search, and reports progress once every `period` steps.
pub(super) struct Steps<'a, 'w> {
    watch: &'a mut Watch<'w>,
    pub done: u64,
    total: u64,
    period: u64,
    next: u64,
}

impl<'a, 'w> Steps<'a, 'w> {
    pub fn new(watch: &'a mut Watch<'w>, total: u64, period: u64) -> Self {
        Self { watch, done: 0, total, period, next: period }
    }

    /// Adds `count` steps.
    #[inline(always)]
    pub fn add(&mut self, count: u64) -> Result<(), PlanError> {
        self.done += count;
        if self.done < self.next { Ok(()) } else { self.tell() }
    }

    #[cold]
    fn tell(&mut self) -> Result<(), PlanError> {
        self.next = self.done + self.period;
        (self.watch)(self.done, self.total).map_err(PlanError::Stopped)
    }

    /// Reports that the search has finished.
    pub fn finish(self) -> Result<(), PlanError> {
        (self.watch)(self.total, self.total).map_err(PlanError::Stopped)
    }
}
