//! The interface between a sans-IO machine and the executor of its effects.

use crate::{Effect, MetaBuffer, Outcome, Segment, Token};

/// A sans-IO machine, as seen by the executor of its effects.
///
/// The order of calls: after any call that hands something in (a request, a completion, a
/// timeout), [`poll_effect`](Machine::poll_effect) is called until it returns `None`, and every
/// immediate effect is finished before the next call of any kind.
pub trait Machine {
    /// Takes the next effect; its memory operands replace what `segments` holds.
    fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect>;

    /// Whether the driver has more urgent work than to hand in the next completion. The executor
    /// calls this when no effects of the previous completion are left.
    fn should_pause(&mut self) -> bool {
        false
    }

    /// Hands in the outcome of a device effect. After a successful read, the bytes are in place,
    /// including those in metadata buffers.
    fn handle_completion(&mut self, token: Token, outcome: Outcome);

    /// Hands in the result of [`Effect::Checksum`].
    fn handle_checksum(&mut self, token: Token, value: u32);

    /// Returns the bytes of a metadata buffer, for the driver to fill with what a read returned.
    ///
    /// # Panics
    /// May panic for a buffer that the machine never named.
    fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8];
}
