//! The configuration file, and the words for sizes and times that it and the command line share.

mod units;

pub use units::{Size, TimeSpan, UnitError};
