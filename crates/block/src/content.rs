//! What is known of bytes without reading them.

/// What some bytes of a volume, or of the store behind it, are known to hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Content {
    /// Anything: nothing is known of them.
    Data,
    /// Zeroes.
    Zeroes,
    /// Zeroes that take no space.
    Hole,
}

/// Consecutive bytes of which the same is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ContentRun {
    /// What they hold.
    pub content: Content,
    /// How many.
    pub length: u64,
}

impl Content {
    /// Whether a read is known to return zeroes.
    pub const fn is_zero(self) -> bool {
        matches!(self, Content::Zeroes | Content::Hole)
    }
}
