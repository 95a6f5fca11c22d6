//! Ranges of bytes of a volume.

/// Consecutive bytes of a volume, by the first one and the one after the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ByteRange {
    pub start: u64,
    pub end: u64,
}

impl ByteRange {
    /// No bytes: for transfers that move no data of a backing store.
    pub const EMPTY: ByteRange = ByteRange { start: 0, end: 0 };

    /// `length` bytes from `start` on.
    #[inline]
    pub fn with_length(start: u64, length: u32) -> ByteRange {
        ByteRange { start, end: start + u64::from(length) }
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Number of bytes, which must fit a transfer of one block.
    #[inline]
    pub fn length(self) -> u32 {
        (self.end - self.start) as u32
    }
}
