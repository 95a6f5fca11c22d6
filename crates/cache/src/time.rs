//! Time passes: it never goes back, and ends intervals of hit ratios.
//!
//! An interval ends with the first call that comes after its end. Nothing waits for that, so it needs no timeout.

use forebay_block::Nanos;

use crate::cache::Cache;

impl Cache {
    /// It is `now`, or later.
    #[inline]
    pub(crate) fn pass_time(&mut self, now: Nanos) {
        self.world.now = self.world.now.max(now);
        if self.world.now >= self.interval_ends {
            self.end_interval();
        }
    }

    /// The cache starts.
    pub(crate) fn start_intervals(&mut self) {
        self.world.shards.iter_mut().for_each(|shard| shard.start_intervals(self.world.now));
        self.interval_ends = self.world.shards[0].interval_ends();
    }

    #[cold]
    fn end_interval(&mut self) {
        self.world.shards.iter_mut().for_each(|shard| shard.end_interval(self.world.now));
        self.interval_ends = self.world.shards[0].interval_ends();
    }
}
