//! What whoever reads an answer should know, as data: the words are the caller's.

use std::path::PathBuf;

use forebay_plan::BoxError;

/// Something doubtful, left out or assumed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note {
    /// What is doubtful about a trace, as its reader says.
    Doubt(String),
    /// Lines or records that could not be read were skipped.
    BadLines(u64),
    /// Requests came out of order and count as simultaneous.
    OutOfOrder(u64),
    /// A purchase was judged by formulas, since there is no such cache to simulate.
    NotSimulated {
        /// The purchase: sizes and devices.
        purchase: String,
        /// Why; none where it has more than two tiers.
        reason: Option<BoxError>,
    },
    /// There is no such cache to replay against.
    NotReplayed {
        /// The purchase: sizes and devices.
        purchase: String,
        /// Why.
        reason: BoxError,
    },
    /// The results of a trace were taken from the file of an earlier study.
    Resumed(PathBuf),
}
