//! The errors of a client.

use crate::rules::Refusal;

/// Why a session failed, or why a request was not sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The peer's greeting is not that of an NBD server.
    #[error("the peer is not an NBD server")]
    NotNbd,
    /// The NBD server is too old.
    #[error("the NBD server is too old: {0}")]
    TooOld(&'static str),
    /// The server refused an option.
    #[error("the NBD server refused: {}{}", meaning(*reply), quoted(message))]
    Refused {
        /// Number of the option.
        option: u32,
        /// Type of the error reply.
        reply: u32,
        /// The server's message; may be empty.
        message: String,
    },
    /// The client requires TLS, and the server does not offer it.
    #[error("the NBD server does not offer TLS")]
    TlsRefused,
    /// The server closed the connection.
    #[error("the NBD server closed the connection")]
    Closed,
    /// The server violated the protocol; nothing it sends afterwards can be trusted.
    #[error("the NBD server violated the protocol: {0}")]
    Protocol(&'static str),
    /// The maximum number of requests is already in flight.
    #[error("too many NBD requests are in flight")]
    Full,
    /// The request is invalid on this connection; it was not sent.
    #[error("the NBD request was not sent: {0}")]
    Request(Refusal),
}

impl From<Refusal> for ClientError {
    fn from(refusal: Refusal) -> Self {
        ClientError::Request(refusal)
    }
}

/// The server's message, quoted for display; empty if there is none.
fn quoted(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message:?})") }
}

fn meaning(reply: u32) -> &'static str {
    use crate::wire::option_reply::*;
    match reply {
        ERR_UNSUP => "it does not know the option",
        ERR_POLICY => "its configuration forbids the option",
        ERR_INVALID => "it considers the option invalid",
        ERR_PLATFORM => "its platform does not support the option",
        ERR_TLS_REQD => "it requires TLS",
        ERR_UNKNOWN => "there is no such export",
        ERR_SHUTDOWN => "it is shutting down",
        ERR_BLOCK_SIZE_REQD => "it requires clients to respect its block sizes",
        ERR_TOO_BIG => "the option is too large for it",
        ERR_EXT_HEADER_REQD => "it requires extended headers",
        _ => "it gave an unknown reason",
    }
}
