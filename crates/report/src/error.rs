//! What can go wrong when a report is written.

use std::io;
use std::path::PathBuf;

/// A report could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The file could not be created or filled.
    #[error("cannot write the report {}: {source}; an existing file is unchanged", path.display())]
    Write {
        /// The file asked for.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}
