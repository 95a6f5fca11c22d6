//! How to read traces.

use std::sync::{Arc, atomic::AtomicBool};

/// How to read traces. The default detects the format and reads everything.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The format's name, if it is not to be detected, and parameters after a colon, as in
    /// "csv:time=ts@us,op=type,offset=lba@512,length=bytes" or "oracleGeneral:unit=4096".
    pub format: Option<String>,
    /// Count bad lines and records and pass over them, instead of stopping at the first.
    pub skip_bad_lines: bool,
    /// Only these volumes, by name or number ([`is_wanted`](crate::is_wanted)); all if empty.
    pub volumes: Vec<String>,
    /// The most requests that are read.
    pub limit: Option<u64>,
    /// How the times of several traces relate.
    pub align: Align,
    /// Whether several traces have nothing to do with one another, so that volumes of the same
    /// name are several ([`Merged::apart`](crate::Merged::apart)).
    pub apart: bool,
    /// For samples: requests come by their gaps, at the rate of the trace that they were taken of,
    /// and not at their times. Traces without gaps are refused.
    pub follow_gaps: bool,
    /// Read zeroings of more than 4 GiB as they are. Otherwise, they are read as trims, because the number
    /// of their blocks has no bound.
    pub keep_long_zeroing: bool,
    /// Reading from a pipe or a terminal fails soon after this flag is set, even if no data comes.
    pub stop: Option<Arc<AtomicBool>>,
}

/// How the times of several traces relate to one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Align {
    /// By the clock if all of them tell the date, else all start together.
    #[default]
    Auto,
    /// All start together.
    Start,
}
