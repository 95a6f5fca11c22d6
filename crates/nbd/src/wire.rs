//! The numbers of the protocol, and the big-endian fields messages are made of.
//!
//! Names and values are those of the NBD protocol document (`doc/proto.md` of the reference
//! implementation) and of its extended-headers extension. Everything on the wire is big-endian.

/// A set of named bits carried in a fixed-width field.
macro_rules! bit_set {
    ($(#[$doc:meta])* $name:ident($int:ty) { $($(#[$bit_doc:meta])* $bit:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(pub $int);

        impl $name {
            /// No bit set.
            pub const NONE: $name = $name(0);
            $($(#[$bit_doc])* pub const $bit: $name = $name($value);)*

            /// Whether every bit of `other` is set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
            /// The bits of both.
            pub const fn union(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
            /// The bits of `self` that are not in `other`.
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }
            /// `self`, with the bits of `other` added if `condition` holds.
            pub const fn with_if(self, condition: bool, other: $name) -> $name {
                if condition { self.union(other) } else { self }
            }
        }

        impl core::ops::BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                self.union(other)
            }
        }
    };
}

bit_set! {
    /// Handshake flags: what the server says in its greeting.
    HandshakeFlags(u16) {
        /// The server speaks the fixed newstyle handshake.
        FIXED_NEWSTYLE = 1;
        /// The server can leave out the 124 zero bytes after an export name.
        NO_ZEROES = 2;
    }
}

bit_set! {
    /// Client flags: the client's answer to the greeting.
    ClientFlags(u32) {
        /// The client speaks the fixed newstyle handshake.
        FIXED_NEWSTYLE = 1;
        /// The client does not want the 124 zero bytes.
        NO_ZEROES = 2;
    }
}

bit_set! {
    /// Transmission flags: what an export supports.
    TransmissionFlags(u16) {
        /// Always set.
        HAS_FLAGS = 1;
        /// Writes are refused.
        READ_ONLY = 1 << 1;
        /// FLUSH is supported.
        SEND_FLUSH = 1 << 2;
        /// The FUA command flag is supported.
        SEND_FUA = 1 << 3;
        /// The medium rotates.
        ROTATIONAL = 1 << 4;
        /// TRIM is supported.
        SEND_TRIM = 1 << 5;
        /// WRITE_ZEROES is supported, with NO_HOLE.
        SEND_WRITE_ZEROES = 1 << 6;
        /// The DF command flag is supported (structured or extended replies only).
        SEND_DF = 1 << 7;
        /// FLUSH and FUA hold over all connections to the export.
        CAN_MULTI_CONN = 1 << 8;
        /// CACHE is supported.
        SEND_CACHE = 1 << 10;
        /// The FAST_ZERO command flag is supported.
        SEND_FAST_ZERO = 1 << 11;
        /// BLOCK_STATUS takes a payload that selects contexts (extended headers only).
        BLOCK_STATUS_PAYLOAD = 1 << 12;
    }
}

bit_set! {
    /// Command flags: how to carry out a request.
    CommandFlags(u16) {
        /// Reply only once the data is durable.
        FUA = 1;
        /// WRITE_ZEROES must leave the range allocated.
        NO_HOLE = 1 << 1;
        /// READ must be answered by one content chunk.
        DF = 1 << 2;
        /// BLOCK_STATUS must return one extent only.
        REQ_ONE = 1 << 3;
        /// WRITE_ZEROES must fail rather than be as slow as writing.
        FAST_ZERO = 1 << 4;
        /// The length field counts payload bytes (extended headers only).
        PAYLOAD_LEN = 1 << 5;
    }
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum Command {
    /// Read bytes.
    Read = 0,
    /// Write the bytes that follow.
    Write = 1,
    /// End the session; has no reply.
    Disconnect = 2,
    /// Make every completed write durable.
    Flush = 3,
    /// The range is no longer needed.
    Trim = 4,
    /// The range will be read soon.
    Cache = 5,
    /// Write zeroes.
    WriteZeroes = 6,
    /// Report which parts of the range are holes or zeroes.
    BlockStatus = 7,
}

impl Command {
    /// The command numbered `n`, if there is one.
    pub const fn from_u16(n: u16) -> Option<Command> {
        Some(match n {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            _ => return None,
        })
    }

    /// Whether the command changes the export, so that a read-only one refuses it.
    pub const fn modifies(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }
}

/// Identifies a request. The client chooses it; the server does not interpret it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cookie(pub u64);

/// `NBDMAGIC`, which opens the server's greeting.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, which follows [`GREETING_MAGIC`] and opens every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Follows [`GREETING_MAGIC`] in the oldstyle handshake, which this crate does not support.
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// Opens every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Opens a compact request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Opens an extended request.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Opens a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Opens a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Opens an extended reply chunk.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Bytes of a compact request header.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of an extended request header, the longest header a server waits for.
pub const EXTENDED_REQUEST_BYTES: usize = 32;
/// The longest string (name, description, message, query) of the protocol, in bytes.
pub const STRING_BYTES_MAX: usize = 4096;
/// The largest payload every server should take, and the default maximum: 32 MiB.
pub const PAYLOAD_BYTES_DEFAULT: u32 = 1 << 25;

/// Option numbers.
pub mod option {
    /// Choose an export and start transmission, without a way to report failure.
    pub const EXPORT_NAME: u32 = 1;
    /// Abort the negotiation.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Continue over TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and start transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use extended headers.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Option reply types.
pub mod option_reply {
    /// Done, or accepted.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One piece of information about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The bit that marks an error.
    pub const ERROR_BIT: u32 = 1 << 31;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = ERROR_BIT + 1;
    /// The server's policy forbids it.
    pub const ERR_POLICY: u32 = ERROR_BIT + 2;
    /// The option is malformed or out of place.
    pub const ERR_INVALID: u32 = ERROR_BIT + 3;
    /// The server's platform cannot do it.
    pub const ERR_PLATFORM: u32 = ERROR_BIT + 4;
    /// TLS must be started first.
    pub const ERR_TLS_REQD: u32 = ERROR_BIT + 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = ERROR_BIT + 6;
    /// The server is shutting down.
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT + 7;
    /// The client must ask for the block sizes first.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT + 8;
    /// The option or its answer is too large.
    pub const ERR_TOO_BIG: u32 = ERROR_BIT + 9;
    /// Extended headers are required, or already in use.
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR_BIT + 10;
}

/// Information types of INFO and GO.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// A description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum and preferred block size, maximum payload.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Chunk types of structured and extended replies.
pub mod chunk {
    /// Nothing more; always the last chunk.
    pub const NONE: u16 = 0;
    /// Bytes of a read.
    pub const OFFSET_DATA: u16 = 1;
    /// Part of a read that is all zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents with 32-bit lengths.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents with 64-bit lengths.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// The bit that marks an error.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// The request failed.
    pub const ERROR: u16 = ERROR_BIT + 1;
    /// The request failed at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT + 2;
    /// The flag of the last chunk of a reply.
    pub const FLAG_DONE: u16 = 1;
}

/// The metadata context that reports holes and zeroes.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// Reads fields from the front of a byte slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The string in `bytes`, if it is one the protocol allows: UTF-8, no NUL, at most 4,096 bytes.
pub(crate) fn protocol_string(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > STRING_BYTES_MAX || bytes.contains(&0) {
        return None;
    }
    core::str::from_utf8(bytes).ok()
}

/// `text`, cut on a character boundary to at most `bytes_max` bytes and to the length of a protocol
/// string, and before any NUL.
pub(crate) fn clipped(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max.min(STRING_BYTES_MAX));
    if let Some(nul) = text.as_bytes()[..end].iter().position(|&b| b == 0) {
        end = nul;
    }
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_the_protocol_forbids_are_refused() {
        assert_eq!(protocol_string(b"disk"), Some("disk"));
        assert_eq!(protocol_string(b""), Some(""));
        assert_eq!(protocol_string(b"a\0b"), None);
        assert_eq!(protocol_string(&[0xff]), None);
        assert!(protocol_string(&[b'x'; STRING_BYTES_MAX]).is_some());
        assert!(protocol_string(&[b'x'; STRING_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn clipping_keeps_whole_characters() {
        assert_eq!(clipped("naïve", 3), "na");
        assert_eq!(clipped("naïve", 4), "naï");
        assert_eq!(clipped("a\0b", 9), "a");
        assert_eq!(clipped(&"x".repeat(5000), 9999).len(), STRING_BYTES_MAX);
    }

    #[test]
    fn command_numbers_are_those_of_the_protocol() {
        for n in 0..8 {
            assert_eq!(Command::from_u16(n).unwrap() as u16, n);
        }
        assert_eq!(Command::from_u16(8), None);
    }
}
