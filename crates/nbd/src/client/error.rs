//! What can go wrong for a client.

use core::fmt;

use crate::rules::Refusal;

/// Why a session failed, or why a request was not sent.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The peer does not greet like an NBD server.
    NotNbd,
    /// The peer is an NBD server of a kind that is too old.
    TooOld(&'static str),
    /// The server refused an option: its number, the reply's, and what the server says about it.
    Refused {
        /// The option.
        option: u32,
        /// The error.
        reply: u32,
        /// The server's words; may be empty.
        message: String,
    },
    /// TLS was insisted on, and the server has none.
    TlsRefused,
    /// The server closed the connection.
    Closed,
    /// The server broke the protocol; nothing more it says can be trusted.
    Protocol(&'static str),
    /// As many requests as agreed on are in flight.
    Full,
    /// The request makes no sense on this connection; nothing was sent.
    Request(Refusal),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::NotNbd => f.write_str("the peer is not an NBD server"),
            ClientError::TooOld(what) => write!(f, "the NBD server is too old: {what}"),
            ClientError::Refused { reply, message, .. } => {
                write!(f, "the NBD server refused: {}", meaning(*reply))?;
                if message.is_empty() { Ok(()) } else { write!(f, " ({message:?})") }
            }
            ClientError::TlsRefused => f.write_str("the NBD server does not offer TLS"),
            ClientError::Closed => f.write_str("the NBD server closed the connection"),
            ClientError::Protocol(what) => write!(f, "the NBD server broke the protocol: {what}"),
            ClientError::Full => f.write_str("too many NBD requests are in flight"),
            ClientError::Request(refusal) => write!(f, "the NBD request was not sent: {refusal}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<Refusal> for ClientError {
    fn from(refusal: Refusal) -> Self {
        ClientError::Request(refusal)
    }
}

fn meaning(reply: u32) -> &'static str {
    use crate::wire::option_reply::*;
    match reply {
        ERR_UNSUP => "the option is unknown to it",
        ERR_POLICY => "its configuration forbids it",
        ERR_INVALID => "it found the option invalid",
        ERR_PLATFORM => "its platform cannot do it",
        ERR_TLS_REQD => "it requires TLS",
        ERR_UNKNOWN => "there is no such export",
        ERR_SHUTDOWN => "it is shutting down",
        ERR_BLOCK_SIZE_REQD => "it requires its block sizes to be obeyed",
        ERR_TOO_BIG => "the option is too large for it",
        ERR_EXT_HEADER_REQD => "it requires extended headers",
        _ => "it gave an unknown reason",
    }
}
