//! What can go wrong with serving.

use std::io;
use std::path::PathBuf;

use forebay_engine::EngineError;

use crate::control::TokenError;

/// A server could not be started, or not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Somebody serves there.
    #[error("{address} is served by a live process already; stop that one, or use another address")]
    InUse {
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
    /// Threads or file descriptors cannot be had.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// The limit of open files leaves no room for clients.
    #[error(
        "at most {limit} files may be open (ulimit -n), which leaves none for NBD clients: allow at \
         least {least}"
    )]
    FewFiles {
        /// The limit.
        limit: u64,
        /// What one client needs.
        least: u64,
    },
    /// Nobody of that name.
    #[error("there is no {what} `{name}` on this system: correct the keys of [serve] that name it")]
    NoSuch {
        /// A user or a group.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A socket cannot be given to whom it is for.
    #[error(
        "cannot give {} to the owner, the group and the mode that [serve] names: {source}",
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
    #[error("the recording: {0}; the cache itself is not affected")]
    Record(#[from] forebay_trace::TraceError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
