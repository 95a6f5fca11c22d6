//! The errors of a server.

use std::io;
use std::path::{Path, PathBuf};

use forebay_engine::EngineError;

use crate::control::TokenError;

/// Why a server could not start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another process serves the address.
    #[error("another process already serves {address}; stop it, or use another address")]
    InUse {
        /// The address.
        address: String,
    },
    /// A backing store is an export of this server.
    #[error(
        "the backing store of volume `{volume}` is {address}, which is the address of this server \
         (serve.nbd); use another NBD server"
    )]
    OwnExport {
        /// The volume.
        volume: String,
        /// The address.
        address: String,
    },
    /// The path of a socket is taken by another file.
    #[error("{} is not a socket; nothing was removed. Use another path", path.display())]
    NotASocket {
        /// The path of the socket.
        path: PathBuf,
    },
    /// The system refuses the address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The directory of a socket does not exist.
    #[error(
        "cannot listen on {address}: the directory {0} does not exist; create it (`mkdir -m 700 \
         {0}`), or set another address in [serve]",
        directory.display()
    )]
    ListenDirectory {
        /// The address.
        address: String,
        /// The missing directory.
        directory: PathBuf,
    },
    /// This process may not create a socket in its directory, or not use the socket that is there.
    #[error(
        "cannot listen on {address}: {source}. This process runs as user {user}, which needs write \
         access to the directory {} and to the socket, if it exists; run it as another user, or set \
         another address in [serve]",
        directory.display()
    )]
    ListenDenied {
        /// The address.
        address: String,
        /// The directory of the socket.
        directory: PathBuf,
        /// The number of the user.
        user: u32,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refuses threads or file descriptors.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// The limit on open files leaves no room for clients.
    #[error(
        "the limit on open files (ulimit -n) is {limit}, which leaves none for NBD clients: raise \
         it to at least {least}"
    )]
    FewFiles {
        /// The limit.
        limit: u64,
        /// The lowest limit that allows one client.
        least: u64,
    },
    /// No user or group has the name.
    #[error("there is no {what} `{name}` on this system: correct the keys in [serve] that name it")]
    NoSuch {
        /// Whether it is a user or a group.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The owner, group or mode of a socket cannot be set.
    #[error(
        "cannot set the owner, group and mode of {} as configured in [serve]: {source}",
        path.display()
    )]
    Ownership {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The token of the control address cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The recording cannot be created.
    #[error("cannot record: {0}; nothing was started")]
    Record(#[source] forebay_trace::TraceError),
    /// The directory of the recording does not exist.
    #[error(
        "cannot record to {}: the directory {} does not exist; nothing was started",
        path.display(),
        directory.display()
    )]
    RecordDirectory {
        /// The trace file.
        path: PathBuf,
        /// The missing directory.
        directory: PathBuf,
    },
    /// The engine failed.
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

    /// Why the server cannot listen at a path.
    pub(crate) fn listen(address: String, path: &Path, source: io::Error) -> ServeError {
        match missing_directory(path) {
            Some(directory) => ServeError::ListenDirectory { address, directory },
            None if source.kind() == io::ErrorKind::PermissionDenied => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let directory = parent.unwrap_or(Path::new(".")).to_owned();
                let user = rustix::process::geteuid().as_raw();
                ServeError::ListenDenied { address, directory, user, source }
            }
            None => ServeError::Listen { address, source },
        }
    }
}

/// The directory of a file, if it does not exist.
fn missing_directory(path: &Path) -> Option<PathBuf> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty())?;
    (!parent.exists()).then(|| parent.to_owned())
}
