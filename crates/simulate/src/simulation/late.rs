//! For how long requests waited in a queue.

use forebay_block::Nanos;

/// A request that takes longer has not waited for its device alone, but for a queue.
pub(super) const LATE: Nanos = Nanos(1_000_000_000);

/// For how long requests had been waiting for longer than [`LATE`], at least: of those that overtake
/// others a part may not be counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Late {
    pub total: Nanos,
    until: Nanos,
}

impl Late {
    pub fn add(&mut self, arrived: Nanos, answered: Nanos) {
        let since = arrived.saturating_add(LATE).max(self.until);
        if answered > since {
            self.total = self.total.saturating_add(answered.saturating_sub(since));
            self.until = answered;
        }
    }
}
