//! What an executor needs of a sans-IO machine.

use crate::{Effect, MetaBuffer, Outcome, Segment, Token};

/// A sans-IO machine as an executor of its effects sees it.
///
/// The order of calls: after any call that hands something in (a request, a completion, a
/// timeout), [`poll_effect`](Machine::poll_effect) is called until it returns `None`, and every
/// immediate effect is finished before the next call of any kind.
pub trait Machine {
    /// Takes the next effect; its memory operands replace what `segments` holds.
    fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect>;

    /// Whether the driver has something more urgent to do than to hand in the next completion: asked when
    /// nothing is left of the last one.
    fn should_pause(&mut self) -> bool {
        false
    }

    /// A device effect has ended. For a read that succeeded, the bytes are in place, those of
    /// metadata buffers too.
    fn handle_completion(&mut self, token: Token, outcome: Outcome);

    /// The answer to [`Effect::Checksum`].
    fn handle_checksum(&mut self, token: Token, value: u32);

    /// The bytes of a metadata buffer, to fill in what a read brought.
    ///
    /// # Panics
    /// May panic for a buffer that the machine never named.
    fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8];
}
