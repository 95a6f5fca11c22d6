//! Who waits for a search.

use crate::error::{BoxError, PlanError};

/// Told now and then that `done` of `total` steps are taken, at the end that all are. Its error ends
/// the search. A search may count again, with another total, for its second part.
pub type Watch<'a> = dyn FnMut(u64, u64) -> Result<(), BoxError> + 'a;

/// A [`Watch`] for searches that nobody waits for.
///
/// # Errors
/// Never.
pub fn unwatched(_done: u64, _total: u64) -> Result<(), BoxError> {
    Ok(())
}

/// Counts the steps of a search, and reports one in `period`.
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

    /// `count` more steps are taken.
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

    /// No more steps are to be taken.
    pub fn finish(self) -> Result<(), PlanError> {
        (self.watch)(self.total, self.total).map_err(PlanError::Stopped)
    }
}
