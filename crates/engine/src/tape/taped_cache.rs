//! The cache as the engine holds it. Nothing else can change it, so its tape notes every call.

use std::ops::Deref;

use forebay_block::{Nanos, Request, Volume};
use forebay_cache::{Cache, Call, Notice};
use forebay_effect::{Effect, Frame, MetaBuffer, Place, RequestId, Segment};

use super::recorder::Recorder;

/// A cache, and the tape (if any) that notes all its calls and effects. What changes nothing is called on the
/// cache itself.
pub(crate) struct TapedCache {
    cache: Cache,
    tape: Option<Recorder>,
}

impl Deref for TapedCache {
    type Target = Cache;

    #[inline]
    fn deref(&self) -> &Cache {
        &self.cache
    }
}

impl TapedCache {
    pub fn new(cache: Cache, tape: Option<Recorder>) -> TapedCache {
        TapedCache { cache, tape }
    }

    /// Whether a tape is written.
    pub fn is_taped(&self) -> bool {
        self.tape.is_some()
    }

    /// Makes a call.
    #[inline]
    pub fn call(&mut self, call: Call) {
        if let Some(tape) = &mut self.tape {
            tape.call(&call, &mut self.cache);
        }
        call.apply(&mut self.cache);
    }

    /// [`Cache::handle_hit`] for a read, at its time. If it is a hit, the tape has a request with this number and
    /// its effects, as if [`Call::Request`] had brought it.
    #[inline]
    pub fn handle_hit(
        &mut self,
        request: Request,
        id: impl FnOnce() -> RequestId,
    ) -> Option<(Frame, u32)> {
        let Request { time, volume, offset, length, .. } = request;
        let (frame, at) = self.cache.handle_hit(time, volume, offset, length)?;
        if let Some(tape) = &mut self.tape {
            let id = id();
            tape.call(&Call::Request(id, request), &mut self.cache);
            let from = Place::Frame { frame, offset: at };
            let to = Place::Request { request: id, offset: 0 };
            tape.effect(&Effect::Copy { from, to, length: length as u32 }, &[]);
            tape.effect(&Effect::Reply { request: id, result: Ok(()) }, &[]);
        }
        Some((frame, at))
    }

    #[inline]
    pub fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        let effect = self.cache.poll_effect(segments);
        if let (Some(tape), Some(effect)) = (&mut self.tape, &effect) {
            tape.effect(effect, segments);
        }
        effect
    }

    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.cache.poll_notice()
    }

    pub fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8] {
        self.cache.meta_mut(buffer)
    }

    // ---- reads without calls: no tape has them ----

    pub fn publish(&mut self, volume: Volume, offset: u64) -> Option<(u64, Frame)> {
        debug_assert!(!self.is_taped(), "a tape cannot record reads of published blocks");
        self.cache.publish(volume, offset)
    }

    #[inline]
    pub fn poll_withdrawn(&mut self) -> Option<Frame> {
        self.cache.poll_withdrawn()
    }

    pub fn note_hit(&mut self, now: Nanos, volume: Volume, offset: u64, length: u64) {
        debug_assert!(!self.is_taped(), "a tape cannot record reads of published blocks");
        self.cache.note_hit(now, volume, offset, length);
    }

    // ---- the tape ----

    /// Between calls, when no effect is left: the tape may have a mark here.
    #[inline]
    pub fn pause(&mut self) {
        if let Some(tape) = &mut self.tape {
            tape.pause();
        }
    }

    /// No further call is noted. Returns the tape.
    pub fn take_tape(&mut self) -> Option<Recorder> {
        self.tape.take()
    }
}
