//! The three styles of replies.

/// How replies look on a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReplyStyle {
    /// A 16-byte header, then the data of a read. What the Linux kernel speaks.
    Simple,
    /// Chunks with 20-byte headers (simple replies where nothing but success is to be said).
    Structured,
    /// Chunks with 32-byte headers; requests have 64-bit lengths.
    Extended,
}

impl ReplyStyle {
    pub(crate) const fn is_extended(self) -> bool {
        matches!(self, ReplyStyle::Extended)
    }
}

/// A stretch of an export and its allocation status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusExtent {
    /// Bytes.
    pub length: u64,
    /// Its status.
    pub flags: StatusFlags,
}

/// The status bits of `base:allocation`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusFlags(pub u32);

impl StatusFlags {
    /// Allocated, or not known; contents not known. Always true.
    pub const NONE: StatusFlags = StatusFlags(0);
    /// Not allocated.
    pub const HOLE: StatusFlags = StatusFlags(1);
    /// Reads as zeroes.
    pub const ZERO: StatusFlags = StatusFlags(2);
    /// Not allocated, and reads as zeroes.
    pub const HOLE_ZERO: StatusFlags = StatusFlags(3);
}
