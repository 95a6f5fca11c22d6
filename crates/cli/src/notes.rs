//! The words for what the analysis notes.

use forebay_analysis::Note;

use crate::format::count;

/// A note as the user reads it.
pub fn words(note: &Note) -> String {
    match note {
        Note::Doubt(doubt) => doubt.clone(),
        Note::BadLines(n) => format!("skipped {} bad lines or records", count(*n)),
        Note::OutOfOrder(n) => {
            format!("{} requests came out of order; they count as simultaneous", count(*n))
        }
        Note::NotSimulated { purchase, reason: None } => {
            format!("{purchase}: only two tiers can be simulated; by formulas")
        }
        Note::NotSimulated { purchase, reason: Some(reason) } => {
            format!("{purchase} cannot be simulated, by formulas: {reason}")
        }
        Note::NotReplayed { purchase, reason } => {
            format!("{purchase} cannot be replayed: {reason}")
        }
        Note::Resumed(path) => format!("{}: taken from --resume", path.display()),
        other => format!("{other:?}"),
    }
}
