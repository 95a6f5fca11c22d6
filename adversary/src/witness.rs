//! A state machine between the cache and its executor: it sees every effect and every answer, and
//! adds them to a digest, so that two runs can be compared by one number.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use forebay_cache::Cache;
use forebay_device::Published;
use forebay_effect::{Effect, Machine, MetaBuffer, Outcome, Segment, Token};

use crate::lookout::Lookout;

/// A digest of a sequence of values; equal on all platforms for equal sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Digest(pub u64);

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Passes calls on to the cache and records them; see the module's documentation.
pub(crate) struct Witness<'a> {
    pub cache: &'a mut Cache,
    pub digest: &'a mut Digest,
    pub lookout: &'a mut Lookout,
    pub published: Option<Arc<Published>>,
}

impl Machine for Witness<'_> {
    fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        let effect = self.cache.poll_effect(segments);
        if let Some(published) = &self.published {
            while let Some(frame) = self.cache.poll_withdrawn() {
                published.withdraw(frame.0);
            }
            self.lookout.look(published);
        }
        let effect = effect?;
        self.lookout.pass(&effect);
        hash_effect(&effect, segments, self.digest);
        Some(effect)
    }
    fn handle_completion(&mut self, token: Token, outcome: Outcome) {
        (token, outcome).hash(self.digest);
        Machine::handle_completion(self.cache, token, outcome);
    }
    fn handle_checksum(&mut self, token: Token, value: u32) {
        (token, value).hash(self.digest);
        self.cache.handle_checksum(token, value);
    }
    fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8] {
        self.cache.meta_mut(buffer)
    }
}

fn hash_effect(effect: &Effect, segments: &[Segment], digest: &mut Digest) {
    match *effect {
        Effect::Copy { from, to, length } => (0_u8, from, to, length).hash(digest),
        Effect::Zero { to, length } => (1_u8, to, length).hash(digest),
        Effect::Checksum { token, seed } => (2_u8, token, seed, segments).hash(digest),
        Effect::Reply { request, result } => (3_u8, request, result).hash(digest),
        Effect::Read { token, device, offset, length } => {
            (4_u8, token, device, offset, length, segments).hash(digest);
        }
        Effect::Write { token, device, offset, length } => {
            (5_u8, token, device, offset, length, segments).hash(digest);
        }
        Effect::WriteZeroes { token, device, offset, length, punch } => {
            (6_u8, token, device, offset, length, punch).hash(digest);
        }
        Effect::Sync { token, device } => (7_u8, token, device).hash(digest),
    }
}
