//! Limits how much work one call of the cache does.
//!
//! Work on a whole region or batch, which may have thousands of records, is done in steps. A step
//! is an event of the log, or a record that is chosen, sorted, moved, marked clean or forgotten.
//! One call takes a bounded number of steps. The next call continues, and the cache asks for it
//! immediately ([`Cache::poll_timeout`](crate::Cache::poll_timeout)). Between two calls a driver
//! releases its lock, so no request waits for a whole region.

/// The steps that a call may still take.
#[derive(Debug)]
pub(crate) struct CallBudget {
    left: u32,
    /// Whether the call ran out of steps, so that work remains for the next call.
    short: bool,
}

impl CallBudget {
    /// No limit, until the first [`CallBudget::refill`].
    pub const UNLIMITED: CallBudget = CallBudget { left: u32::MAX, short: false };

    /// Starts a call with `steps` steps.
    pub fn refill(&mut self, steps: u32) {
        *self = CallBudget { left: steps, short: false };
    }

    /// Takes a step. If none is left, returns false, and the rest must wait for the next call.
    #[inline]
    pub fn take(&mut self) -> bool {
        self.take_many(1)
    }

    /// Takes `steps` steps, or all remaining ones if there are fewer. Returns false if none is
    /// left. For work that cannot be divided.
    #[inline]
    pub fn take_many(&mut self, steps: u32) -> bool {
        if self.left == 0 {
            self.short = true;
            return false;
        }
        self.left = self.left.saturating_sub(steps);
        true
    }

    /// Whether work waits for the next call.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_short_only_if_more_was_wanted_than_there_was() {
        let mut budget = CallBudget::UNLIMITED;
        assert!(budget.take() && !budget.is_short());
        budget.refill(2);
        assert!(budget.take() && budget.take());
        assert!(!budget.is_short(), "nobody has wanted a third");
        assert!(!budget.take() && budget.is_short());
        budget.refill(2);
        assert!(!budget.is_short());
        assert!(budget.take_many(5), "what is begun with a step left is done");
        assert!(!budget.take_many(5) && budget.is_short());
    }
}
