//! Why a session ends.

use core::fmt;

use crate::wire::{OPTION_MAGIC, REQUEST_MAGIC};

/// Why the server ends a session. After any of these the session takes no more input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CloseReason {
    /// The client sent DISC: answer what is in flight, then close.
    Disconnected,
    /// The client sent NBD_OPT_ABORT: send the acknowledgement, then close.
    Aborted,
    /// The client closed its side between messages.
    EndOfInput,
    /// The client closed its side inside a message, of which so many bytes had arrived.
    Truncated(usize),
    /// A message of the handshake does not start with its magic.
    OptionMagic(u64),
    /// A message of the transmission phase does not start with its magic.
    RequestMagic(u32),
    /// Client flags that mean nothing or were not offered.
    ClientFlags(u32),
    /// An option other than EXPORT_NAME from a client that does not speak fixed newstyle.
    NotFixedNewstyle,
    /// NBD_OPT_EXPORT_NAME for an export that does not exist or may not be used this way; the
    /// option has no way to say so.
    ExportRefused,
    /// NBD_OPT_EXPORT_NAME after extended headers were agreed on.
    ExportNameWithExtendedHeaders,
    /// More options, or more bytes of options, than any honest client sends.
    OptionFlood,
    /// Bytes after NBD_OPT_STARTTLS before the answer to it; they may not be the client's.
    PlaintextAfterStartTls,
    /// A payload too large to be read and thrown away, in bytes.
    PayloadTooLarge(u64),
}

impl CloseReason {
    /// Whether the client ended the session properly, so that requests in flight are answered
    /// before the connection is closed; otherwise it is closed at once (their effects stay).
    pub const fn is_graceful(self) -> bool {
        matches!(self, CloseReason::Disconnected | CloseReason::Aborted)
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CloseReason::Disconnected => f.write_str("the client disconnected"),
            CloseReason::Aborted => f.write_str("the client gave up negotiating"),
            CloseReason::EndOfInput => {
                f.write_str("the client closed the connection without saying so")
            }
            CloseReason::Truncated(bytes) => {
                write!(f, "the client closed the connection {bytes} bytes into a message")
            }
            CloseReason::OptionMagic(magic) => {
                write!(f, "an option begins with {magic:#018x} instead of {OPTION_MAGIC:#018x}")
            }
            CloseReason::RequestMagic(magic) => write!(
                f,
                "a request begins with {magic:#010x}, which is not the magic agreed on \
                 ({REQUEST_MAGIC:#010x}, or its extended form)"
            ),
            CloseReason::ClientFlags(flags) => {
                write!(f, "the client set flags that were not offered: {flags:#010x}")
            }
            CloseReason::NotFixedNewstyle => {
                f.write_str("the client sent options without speaking the fixed newstyle handshake")
            }
            CloseReason::ExportRefused => {
                f.write_str("the export that the client named cannot be used by it")
            }
            CloseReason::ExportNameWithExtendedHeaders => {
                f.write_str("the client used NBD_OPT_EXPORT_NAME with extended headers")
            }
            CloseReason::OptionFlood => f.write_str("the client sent too many options"),
            CloseReason::PlaintextAfterStartTls => {
                f.write_str("the client sent plaintext after NBD_OPT_STARTTLS")
            }
            CloseReason::PayloadTooLarge(bytes) => {
                write!(f, "the client announced a payload of {bytes} bytes")
            }
        }
    }
}

impl std::error::Error for CloseReason {}
