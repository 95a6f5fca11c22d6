//! How to read traces.

use std::sync::{Arc, atomic::AtomicBool};

/// How to read traces. The default detects the format and reads everything.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Name of the format, with parameters after a colon, as in
    /// "csv:time=ts@us,op=type,offset=lba@512,length=bytes" or "oracleGeneral:unit=4096". If it is
    /// `None`, the format is detected.
    pub format: Option<String>,
    /// Whether to skip and count bad lines and records, instead of stopping at the first.
    pub skip_bad_lines: bool,
    /// Which volumes to read, by name or number ([`is_wanted`](crate::is_wanted)); all if empty.
    pub volumes: Vec<String>,
    /// Maximum number of requests to read.
    pub limit: Option<u64>,
    /// How the times of several traces relate.
    pub align: Align,
    /// Whether the traces are unrelated, so that volumes of different traces are different even if
    /// their names are equal ([`Merged::apart`](crate::Merged::apart)).
    pub apart: bool,
    /// For samples: whether requests arrive by their gaps, at the request rate of the full trace,
    /// instead of at their recorded times. Traces without gaps are rejected.
    pub follow_gaps: bool,
    /// Whether to read zeroings of more than 4 GiB as they are. Otherwise, they are read as trims,
    /// because the number of their blocks has no bound.
    pub keep_long_zeroing: bool,
    /// Reading from a pipe or a terminal fails soon after this flag is set, even if no data comes.
    pub stop: Option<Arc<AtomicBool>>,
}

/// How the times of several traces relate to one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Align {
    /// By the clock if all traces record dates; otherwise, all start together.
    #[default]
    Auto,
    /// All start together.
    Start,
}
