//! The cache as the executor sees it, with the time of each call.

use forebay_block::Nanos;
use forebay_cache::Call;
use forebay_device::Published;
use forebay_effect::{Effect, Machine, MetaBuffer, Outcome, Segment, Token};

use crate::lock::LockHold;
use crate::tape::TapedCache;

/// A cache during one call: completions carry the call's time.
pub(crate) struct Driven<'a> {
    pub cache: &'a mut TapedCache,
    pub now: Nanos,
    /// Work that a call leaves is done before the next completion, as in a simulation.
    pub in_order: bool,
    pub hold: &'a mut LockHold,
    pub published: Option<&'a Published>,
}

/// Withdraws the frames that the cache no longer publishes.
pub(crate) fn withdraw(cache: &mut TapedCache, published: Option<&Published>) {
    if let Some(published) = published {
        while let Some(frame) = cache.poll_withdrawn() {
            published.withdraw(frame.0);
        }
    }
}

impl Machine for Driven<'_> {
    #[inline]
    fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        let mut effect = self.cache.poll_effect(segments);
        while effect.is_none() && self.in_order && self.cache.is_half_way() {
            self.cache.call(Call::Timeout(self.now));
            effect = self.cache.poll_effect(segments);
        }
        // Before the effect is performed.
        withdraw(self.cache, self.published);
        effect
    }

    fn should_pause(&mut self) -> bool {
        self.hold.should_end()
    }

    fn handle_completion(&mut self, token: Token, outcome: Outcome) {
        self.cache.call(Call::Completion(self.now, token, outcome));
    }

    fn handle_checksum(&mut self, token: Token, value: u32) {
        self.cache.call(Call::Checksum(token, value));
    }

    fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8] {
        self.cache.meta_mut(buffer)
    }
}
