//! Why there is no page of documents.

use std::io;
use std::path::PathBuf;

/// A document cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OverviewError {
    /// A file could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        error: io::Error,
    },
    /// A file is something else.
    #[error("{} is not a JSON document ({error})", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// A document lacks what its command writes today.
    #[error("{label} is not a complete document of {command} ({error})")]
    Incomplete {
        /// What the document is called.
        label: String,
        /// The command that writes such documents.
        command: String,
        /// What is wrong with it.
        error: String,
    },
    /// A document of another kind.
    #[error("{0} is not a document that a report can show")]
    Unknown(String),
}
