//! The errors of a server.

use std::io;
use std::path::{Path, PathBuf};

use forebay_engine::EngineError;

use crate::control::TokenError;

/// A server could not be started, or not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Somebody serves there.
    #[error("another process already serves {address}; stop it, or use another address")]
    InUse {
        /// Where.
        address: String,
    },
    /// A backing store is an export of this server.
    #[error(
        "the backing store of volume `{volume}` is {address}, the address of this server itself (serve.nbd); name \
         another NBD server"
    )]
    OwnExport {
        /// The volume.
        volume: String,
        /// Where.
        address: String,
    },
    /// A file is in the way.
    #[error("{} is not a socket; nothing was removed. Use another path", path.display())]
    NotASocket {
        /// Where.
        path: PathBuf,
    },
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The directory of a socket is not there.
    #[error(
        "cannot listen on {address}: the directory {0} does not exist; create it (`mkdir -m 700 \
         {0}`), or set another address in [serve]",
        directory.display()
    )]
    ListenDirectory {
        /// Where.
        address: String,
        /// What is missing.
        directory: PathBuf,
    },
    /// Threads or file descriptors cannot be had.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// The limit of open files leaves no room for clients.
    #[error(
        "the limit on open files (ulimit -n) is {limit}, which leaves no files for NBD clients: \
         raise it to at least {least}"
    )]
    FewFiles {
        /// The limit.
        limit: u64,
        /// What one client needs.
        least: u64,
    },
    /// Nobody of that name.
    #[error("there is no {what} `{name}` on this system: correct the keys in [serve] that name it")]
    NoSuch {
        /// A user or a group.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A socket cannot be given to whom it is for.
    #[error(
        "cannot set the owner, group and mode of {} as configured in [serve]: {source}",
        path.display()
    )]
    Ownership {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The token of the control address.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The recording.
    #[error("cannot record: {0}; nothing was started")]
    Record(#[source] forebay_trace::TraceError),
    /// The directory of the recording is not there.
    #[error(
        "cannot record to {}: the directory {} does not exist; nothing was started",
        path.display(),
        directory.display()
    )]
    RecordDirectory {
        /// The recording.
        path: PathBuf,
        /// What is missing.
        directory: PathBuf,
    },
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ServeError {
    /// Why a recording cannot be created.
    pub(crate) fn recording(path: &Path, error: forebay_trace::TraceError) -> ServeError {
        match missing_directory(path) {
            Some(directory) => ServeError::RecordDirectory { path: path.to_owned(), directory },
            None => ServeError::Record(error),
        }
    }

    /// Why nobody can listen at a path.
    pub(crate) fn listen(address: String, path: &Path, source: io::Error) -> ServeError {
        match missing_directory(path) {
            Some(directory) => ServeError::ListenDirectory { address, directory },
            None => ServeError::Listen { address, source },
        }
    }
}

/// The directory of a file, if there is none.
fn missing_directory(path: &Path) -> Option<PathBuf> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty())?;
    (!parent.exists()).then(|| parent.to_owned())
}
