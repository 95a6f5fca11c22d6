//! The errors of a client.

use crate::rules::Refusal;

/// Why a session failed, or why a request was not sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The peer does not greet like an NBD server.
    #[error("the peer is not an NBD server")]
    NotNbd,
    /// The peer is an NBD server of a kind that is too old.
    #[error("the NBD server is too old: {0}")]
    TooOld(&'static str),
    /// The server refused an option: its number, the reply's, and what the server says about it.
    #[error("the NBD server refused: {}{}", meaning(*reply), quoted(message))]
    Refused {
        /// The option.
        option: u32,
        /// The error.
        reply: u32,
        /// The server's words; may be empty.
        message: String,
    },
    /// TLS was insisted on, and the server has none.
    #[error("the NBD server does not offer TLS")]
    TlsRefused,
    /// The server closed the connection.
    #[error("the NBD server closed the connection")]
    Closed,
    /// The server broke the protocol; nothing more it says can be trusted.
    #[error("the NBD server violated the protocol: {0}")]
    Protocol(&'static str),
    /// As many requests as agreed on are in flight.
    #[error("too many NBD requests are in flight")]
    Full,
    /// The request makes no sense on this connection; nothing was sent.
    #[error("the NBD request was not sent: {0}")]
    Request(Refusal),
}

impl From<Refusal> for ClientError {
    fn from(refusal: Refusal) -> Self {
        ClientError::Request(refusal)
    }
}

/// What is shown of the server's words.
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
