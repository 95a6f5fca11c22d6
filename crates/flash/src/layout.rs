//! The two ways to place records on flash.

/// How records are placed on flash. Stored in the superblock, and derived from the geometry; the
/// calls are the same for all layouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Layout {
    /// A log of self-describing batches in regions.
    #[default]
    Log,
    /// Payloads in fixed places, *cells* of one block each; the log holds only headers, as a
    /// journal of the mapping.
    Slots,
}

impl Layout {
    /// Its number in the superblock.
    pub const fn number(self) -> u16 {
        match self {
            Layout::Log => 0,
            Layout::Slots => 1,
        }
    }
    /// The layout with this number in the superblock, if this version knows it.
    pub const fn from_number(number: u16) -> Option<Layout> {
        match number {
            0 => Some(Layout::Log),
            1 => Some(Layout::Slots),
            _ => None,
        }
    }
    /// The configuration's name of a layout, from the superblock's number; `?` if it is unknown.
    pub const fn name(number: u16) -> &'static str {
        match Layout::from_number(number) {
            Some(Layout::Log) => "log",
            Some(Layout::Slots) => "slots",
            None => "?",
        }
    }
}
