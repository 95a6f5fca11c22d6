//! The errors of an export of an NBD server.

use std::io;

use forebay_nbd::UriError;
use forebay_nbd::client::ClientError;

/// An export cannot be had, or no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdError {
    /// An address cannot be understood.
    #[error("{address}: {source}")]
    Uri {
        /// What was given.
        address: String,
        /// What is wrong with it.
        source: UriError,
    },
    /// A server cannot be reached, or the connection to it broke.
    #[error("{address}: cannot {action}: {source}")]
    Socket {
        /// The server.
        address: String,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A session failed.
    #[error("{address}: {source}")]
    Session {
        /// The server.
        address: String,
        /// Why.
        source: ClientError,
    },
    /// The address asks for TLS.
    #[error("{0}: Forebay connects to NBD servers only without TLS; use nbd:// or nbd+unix://")]
    Tls(String),
    /// Nothing that is written could ever be known to be durable.
    #[error(
        "{0}: the server offers no flush, so Forebay could not make writes durable; enable flush \
         on that server, or set read_only"
    )]
    NoFlush(String),
    /// A thread or an event could not be had.
    #[error("{address}: cannot {action}: {source}")]
    System {
        /// The server.
        address: String,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}
