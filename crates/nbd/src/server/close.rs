//! Why a session ends.

use crate::wire::{OPTION_MAGIC, REQUEST_MAGIC};

/// Why the server ends a session. Afterwards the session accepts no more input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The client sent DISC: answer the requests in flight, then close.
    #[error("the client disconnected")]
    Disconnected,
    /// The client sent NBD_OPT_ABORT: send the acknowledgement, then close.
    #[error("the client aborted the negotiation")]
    Aborted,
    /// The client closed its side between messages.
    #[error("the client closed the connection without sending a disconnect request")]
    EndOfInput,
    /// The client closed its side inside a message, of which this many bytes had arrived.
    #[error("the client closed the connection {0} bytes into a message")]
    Truncated(usize),
    /// A message of the handshake does not start with its magic.
    #[error("an option begins with {0:#018x} instead of {OPTION_MAGIC:#018x}")]
    OptionMagic(u64),
    /// A message of the transmission phase does not start with its magic.
    #[error(
        "a request begins with {0:#010x}, which is not the negotiated magic \
         ({REQUEST_MAGIC:#010x}, or its extended form)"
    )]
    RequestMagic(u32),
    /// The client set flags that are unknown or were not offered.
    #[error("the client set flags that were not offered: {0:#010x}")]
    ClientFlags(u32),
    /// An option other than EXPORT_NAME from a client that does not speak fixed newstyle.
    #[error("the client sent options without negotiating the fixed newstyle handshake")]
    NotFixedNewstyle,
    /// NBD_OPT_EXPORT_NAME for an export that does not exist or that the client may not use this
    /// way; the option has no error reply.
    #[error("the client named an export that it cannot use")]
    ExportRefused,
    /// NBD_OPT_EXPORT_NAME after extended headers were agreed on.
    #[error("the client used NBD_OPT_EXPORT_NAME with extended headers")]
    ExportNameWithExtendedHeaders,
    /// More options, or more bytes of options, than any honest client sends.
    #[error("the client sent too many options")]
    OptionFlood,
    /// Bytes arrived after NBD_OPT_STARTTLS and before TLS started; they may not be the client's.
    #[error("the client sent plaintext after NBD_OPT_STARTTLS")]
    PlaintextAfterStartTls,
    /// The client announced a payload of this many bytes, which is too large to read and discard.
    #[error("the client announced a payload of {0} bytes")]
    PayloadTooLarge(u64),
}

impl CloseReason {
    /// Whether the client ended the session properly. If so, the server answers the requests in
    /// flight before it closes the connection; otherwise it closes the connection at once. Either
    /// way, the effects of requests in flight remain.
    pub const fn is_graceful(self) -> bool {
        matches!(self, CloseReason::Disconnected | CloseReason::Aborted)
    }
}
