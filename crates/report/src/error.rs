//! Errors when writing a report.

use std::io;
use std::path::PathBuf;

/// A report could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The file could not be created or written.
    #[error("cannot write the report {}: {source}; any existing file is unchanged", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}
