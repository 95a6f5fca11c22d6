//! The cache's interface to the executor of its effects, for drivers in which completions take no
//! time: a completion has the time of the last call. The engine has its own interface, with a
//! clock.

use forebay_effect::{Effect, Machine, MetaBuffer, Outcome, Segment, Token};

use crate::cache::Cache;

impl Machine for Cache {
    fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        Cache::poll_effect(self, segments)
    }

    fn handle_completion(&mut self, token: Token, result: Outcome) {
        Cache::handle_completion(self, self.world.now, token, result);
    }

    fn handle_checksum(&mut self, token: Token, value: u32) {
        Cache::handle_checksum(self, token, value);
    }

    fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8] {
        Cache::meta_mut(self, buffer)
    }
}
