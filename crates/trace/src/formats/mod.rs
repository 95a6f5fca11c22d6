//! The trace formats: one file and one line of [`FORMATS`] each.
//!
//! A text format implements [`text::LineParser`], a binary format [`records::RecordParser`]; the
//! code that reads, counts, reports and skips lines and records is shared. Detection asks every
//! format for its confidence that the file's first bytes have this format.

mod arc;
mod blkparse;
mod blktrace;
mod clouds;
mod csv;
mod cydonia;
mod fiu;
pub(crate) mod format;
pub(crate) mod iolog;
mod lcs;
mod msr;
mod oracle_general;
mod params;
mod records;
pub(crate) mod scan;
mod simulators;
mod spc;
pub(crate) mod text;
mod vscsi;

pub use format::Format;
use std::io;

use format::Head;
pub(crate) use params::Params;

use crate::{Result, TraceError, parquet, source::Source};

/// Every format, in the order in which they are listed to users.
pub const FORMATS: &[Format] = &[
    parquet::FORMAT,
    csv::FORMAT,
    msr::FORMAT,
    vscsi::V1,
    vscsi::V2,
    vscsi::CSV,
    oracle_general::FORMAT,
    lcs::FORMAT,
    blktrace::FORMAT,
    blkparse::TEXT,
    blkparse::CSV,
    fiu::FORMAT,
    cydonia::FORMAT,
    simulators::DISKSIM,
    simulators::MQSIM,
    arc::FORMAT,
    spc::FORMAT,
    clouds::ALIBABA,
    clouds::TENCENT,
    clouds::SYSTOR,
    iolog::FORMAT,
];

/// The formats' names, for messages.
pub(crate) fn names() -> String {
    FORMATS.iter().map(|f| f.name).collect::<Vec<_>>().join(", ")
}

/// Finds a format by its name, in upper or lower case.
pub(crate) fn by_name(name: &str) -> Result<&'static Format> {
    FORMATS
        .iter()
        .find(|f| f.name.eq_ignore_ascii_case(name))
        .ok_or_else(|| TraceError::NoSuchFormat { name: name.to_owned(), known: names() })
}

/// Rejects the format that the user named if the file begins with the magic number of another
/// format.
///
/// # Errors
/// [`TraceError::OtherFormat`], if it does.
pub(crate) fn check_named(named: &Format, source: &Source) -> Result<()> {
    let head = Head::new(&source.head, source.head_is_all());
    match FORMATS.iter().find(|f| (f.detect)(&head) == CERTAIN) {
        Some(found) if found.name != named.name => Err(TraceError::OtherFormat {
            path: source.path.clone(),
            found: found.name,
            named: named.name,
        }),
        _ => Ok(()),
    }
}

/// Score of a format whose magic number the file has.
const CERTAIN: u8 = 100;

/// Detects the format of a file from its beginning.
pub(crate) fn detect(source: &Source) -> Result<&'static Format> {
    let unknown = |hint: &str| TraceError::UnknownFormat {
        path: source.path.clone(),
        hint: hint.to_owned(),
        known: names(),
    };
    if source.head.is_empty() {
        // A recording that was cut off before its first checkpoint may be empty; naming a format
        // would not help.
        return Err(match source.path.extension().is_some_and(|ext| ext == "partial") {
            true => source.error(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it is empty: nothing was saved, so nothing can be recovered",
            )),
            false => TraceError::Empty { path: source.path.clone() },
        });
    }
    let head = Head::new(&source.head, source.head_is_all());
    let best = FORMATS.iter().map(|f| ((f.detect)(&head), f)).max_by_key(|(score, _)| *score);
    match best {
        Some((score, format)) if score > 0 => Ok(format),
        _ if head.text => Err(unknown(&format!(
            ": its first line is \"{}\"",
            text::shown(head.lines().next().unwrap_or_default())
        ))),
        _ => Err(unknown(": it is a binary file of an unknown kind")),
    }
}
