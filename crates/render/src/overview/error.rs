//! Errors when combining documents in a page.

use std::io;
use std::path::PathBuf;

/// The reason why a page cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OverviewError {
    /// A file could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A file is not JSON.
    #[error("{} is not a JSON document ({error})", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        error: serde_json::Error,
    },
    /// A document lacks fields that its command writes today.
    #[error("{label} is not a complete document from {command} ({error})")]
    Incomplete {
        /// Label of the document.
        label: String,
        /// The command that writes such documents.
        command: String,
        /// What is missing or wrong.
        error: String,
    },
    /// A document of a kind that the page cannot show. Contains the argument that names it.
    #[error("{0} is not a document that a report can show")]
    Unknown(String),
}
