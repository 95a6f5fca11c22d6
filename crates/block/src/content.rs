//! What is known about bytes without reading them.

/// What some bytes of a volume, or of the store behind it, are known to hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Content {
    /// Unknown: the bytes may have any value.
    Data,
    /// Zeroes.
    Zeroes,
    /// Zeroes that occupy no space.
    Hole,
}

/// Consecutive bytes with the same [`Content`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ContentRun {
    /// Content of the bytes.
    pub content: Content,
    /// Number of bytes.
    pub length: u64,
}

impl Content {
    /// Whether a read is known to return zeroes.
    pub const fn is_zero(self) -> bool {
        matches!(self, Content::Zeroes | Content::Hole)
    }
}
