//! Errors of NBD exports.

use std::io;

use forebay_nbd::UriError;
use forebay_nbd::client::ClientError;

/// An export cannot be opened, or has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdError {
    /// An address is invalid.
    #[error("{address}: {source}")]
    Uri {
        /// The address.
        address: String,
        /// The error.
        source: UriError,
    },
    /// A server cannot be reached, or the connection to it broke.
    #[error("{address}: cannot {action}: {source}")]
    Socket {
        /// The server.
        address: String,
        /// The failed action.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A session failed.
    #[error("{address}: {source}")]
    Session {
        /// The server.
        address: String,
        /// The error.
        source: ClientError,
    },
    /// The address requires TLS.
    #[error(
        "{0}: Forebay does not support TLS connections to NBD servers; use nbd:// or nbd+unix://"
    )]
    Tls(String),
    /// The server offers no flush, so no write could be made durable.
    #[error(
        "{0}: the server does not support flush, so Forebay could not make writes durable; enable \
         flush on that server, or set read_only"
    )]
    NoFlush(String),
    /// The server had not answered when the owner of the session gave it up.
    #[error("{0}: the server did not answer before Forebay stopped")]
    GivenUp(String),
    /// A thread or an event could not be created.
    #[error("{address}: cannot {action}: {source}")]
    System {
        /// The server.
        address: String,
        /// The failed action.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}
