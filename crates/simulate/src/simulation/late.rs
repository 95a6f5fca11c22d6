//! Measures for how long requests waited in a queue.

use forebay_block::Nanos;

/// A request that takes longer than this has waited in a queue, not just for its own operation.
pub(super) const LATE: Nanos = Nanos(1_000_000_000);

/// Total time during which some request had been waiting for longer than [`LATE`]. This is a lower
/// bound: when requests overtake one another, part of their waiting may not be counted.
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
