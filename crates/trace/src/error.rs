//! Errors in reading and writing traces, with messages that a user can act on.

use std::{fmt, io, path::PathBuf};

/// A result whose error is a [`TraceError`].
pub type Result<T, E = TraceError> = std::result::Result<T, E>;

/// Why a trace could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// An operation on a file failed.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted, such as "open".
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// No format recognises the file's first bytes.
    #[error("{}: not a known trace format{hint}; specify one with --format ({known})", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Details of what was found, starting with punctuation; may be empty.
        hint: String,
        /// Names of the known formats.
        known: String,
    },
    /// The file is empty.
    #[error("{}: the file is empty, so it is not a trace", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// No format has this name.
    #[error("there is no trace format \"{name}\"; the formats are {known}")]
    NoSuchFormat {
        /// The name given.
        name: String,
        /// Names of the known formats.
        known: String,
    },
    /// The file has a format other than the one that the user named.
    #[error("{} has the format {found}, not {named}", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Format that the file's magic number indicates.
        found: &'static str,
        /// Format that the user named.
        named: &'static str,
    },
    /// A line or record does not follow the format.
    #[error("{}:{at}: expected {expected}, found {found}{}", path.display(), skip_hint(*.at))]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// Position in the file.
        at: Position,
        /// What the format requires there.
        expected: String,
        /// The beginning of what was found instead.
        found: String,
    },
    /// A binary file ends within a record.
    #[error(
        "{}: ends {trailing} byte{} into a record of {record_bytes} bytes: the file is truncated or \
         in another format; {records} whole record{} read",
        path.display(),
        if *trailing == 1 { "" } else { "s" },
        if *records == 1 { " was" } else { "s were" }
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Whole records before the end.
        records: u64,
        /// Bytes after the last whole record.
        trailing: u64,
        /// Bytes in a whole record.
        record_bytes: u64,
    },
    /// A Parquet file is damaged, incomplete or does not have our schema.
    #[error("{}: {what}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        what: String,
    },
    /// The file was written by a newer Forebay.
    #[error(
        "{}: trace format version {found}, but this program reads only up to version {known}; use \
         a newer program",
        path.display()
    )]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that this program reads.
        known: u32,
    },
    /// An option is invalid.
    #[error("{0}")]
    Options(String),
}

fn skip_hint(at: Position) -> &'static str {
    match at {
        Position::Line(_) => " (--skip-bad-lines skips and counts such lines)",
        _ => "",
    }
}

/// A place in a trace file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// Line number, from 1, in the decompressed text.
    Line(u64),
    /// Record number from 0 and its byte offset in the decompressed file.
    Record {
        /// Number of the record.
        number: u64,
        /// Byte offset of its first byte.
        offset: u64,
    },
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line(n) => write!(f, "{n}"),
            Position::Record { number, offset } => write!(f, " record {number} (byte {offset})"),
        }
    }
}
