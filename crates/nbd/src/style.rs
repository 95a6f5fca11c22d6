//! The three styles of replies.

/// The format of replies on a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReplyStyle {
    /// A 16-byte header, then the data of a read. The Linux kernel's client uses this style.
    Simple,
    /// Chunks with 20-byte headers (simple replies where a command without result succeeds).
    Structured,
    /// Chunks with 32-byte headers; requests have 64-bit lengths.
    Extended,
}

impl ReplyStyle {
    pub(crate) const fn is_extended(self) -> bool {
        matches!(self, ReplyStyle::Extended)
    }
}

/// A range of an export and its allocation status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusExtent {
    /// Length in bytes.
    pub length: u64,
    /// Its status.
    pub flags: StatusFlags,
}

/// The status bits of `base:allocation`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusFlags(pub u32);

impl StatusFlags {
    /// Allocated or unknown; contents unknown. Always a valid answer.
    pub const NONE: StatusFlags = StatusFlags(0);
    /// Not allocated.
    pub const HOLE: StatusFlags = StatusFlags(1);
    /// Reads as zeroes.
    pub const ZERO: StatusFlags = StatusFlags(2);
    /// Not allocated, and reads as zeroes.
    pub const HOLE_ZERO: StatusFlags = StatusFlags(3);
}
