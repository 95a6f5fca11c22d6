//! Replies, in the three styles that a session may negotiate.
//!
//! Encoders are values, not part of the session: a worker that completes a request later, or out of
//! order, needs only the [`ReplyStyle`] and the [`Request`]. A header is a small array; the driver
//! sends the data after it, straight from the data's own buffer.

use core::ops::Deref;

use crate::ErrorCode;
use crate::request::Request;
use crate::style::{ReplyStyle, StatusExtent, StatusFlags};
use crate::wire::{
    Command, CommandFlags, EXTENDED_REPLY_MAGIC, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX,
    STRUCTURED_REPLY_MAGIC, chunk, clipped,
};

/// The styles whose replies are made of chunks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ChunkStyle {
    /// See [`ReplyStyle::Structured`].
    Structured,
    /// See [`ReplyStyle::Extended`].
    Extended,
}

/// The bytes that precede the data of a reply, or the whole reply if it has no data.
#[derive(Clone, Copy, Debug)]
pub struct ReplyHeader {
    bytes: [u8; ReplyHeader::BYTES_MAX],
    length: u8,
}

impl ReplyHeader {
    /// Length of the longest header, in bytes.
    pub const BYTES_MAX: usize = 48;

    #[inline]
    fn new() -> Self {
        ReplyHeader { bytes: [0; Self::BYTES_MAX], length: 0 }
    }

    #[inline]
    fn put<const N: usize>(mut self, field: [u8; N]) -> Self {
        let at = usize::from(self.length);
        self.bytes[at..at + N].copy_from_slice(&field);
        self.length += N as u8;
        self
    }
}

impl Deref for ReplyHeader {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl ReplyStyle {
    /// The header of a successful read; exactly `request.length` bytes of data must follow. Send it
    /// only when all of the data is available: it cannot be taken back.
    #[inline]
    pub fn data(self, request: &Request) -> ReplyHeader {
        match self {
            ReplyStyle::Simple => simple(0, request),
            ReplyStyle::Structured => {
                ChunkStyle::Structured.data(request, request.offset, request.length, true)
            }
            ReplyStyle::Extended => {
                ChunkStyle::Extended.data(request, request.offset, request.length, true)
            }
        }
    }

    /// The reply to a request that succeeded and returns no data.
    #[inline]
    pub fn done(self, request: &Request) -> ReplyHeader {
        match self {
            ReplyStyle::Simple => simple(0, request),
            // A simple reply is four bytes shorter, and allowed for commands whose replies have no
            // payload.
            ReplyStyle::Structured if !replies_with_chunks(request.command) => simple(0, request),
            ReplyStyle::Structured => ChunkStyle::Structured.none(request),
            ReplyStyle::Extended => ChunkStyle::Extended.none(request),
        }
    }

    /// The reply to a request that failed. A code the protocol does not allow for this request
    /// becomes [`ErrorCode::Invalid`].
    pub fn error(self, request: &Request, code: ErrorCode) -> ReplyHeader {
        let code = admissible(request, code);
        match self.chunks() {
            None => simple(code.number(), request),
            Some(style) => style
                .header(request, chunk::ERROR, 6, true)
                .put(code.number().to_be_bytes())
                .put([0; 2]),
        }
    }

    /// Appends the reply of [`ReplyStyle::error`] to `out`, with a message for people if the style
    /// can carry one.
    pub fn error_with_message(
        self,
        request: &Request,
        code: ErrorCode,
        message: &str,
        out: &mut Vec<u8>,
    ) {
        let Some(style) = self.chunks() else {
            out.extend_from_slice(&self.error(request, code));
            return;
        };
        let message = clipped(message, STRING_BYTES_MAX);
        let code = admissible(request, code);
        let header = style
            .header(request, chunk::ERROR, 6 + message.len() as u64, true)
            .put(code.number().to_be_bytes())
            .put((message.len() as u16).to_be_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(message.as_bytes());
    }

    /// The encoders of single chunks; `None` for simple replies, which have no chunks.
    #[inline]
    pub const fn chunks(self) -> Option<ChunkStyle> {
        match self {
            ReplyStyle::Simple => None,
            ReplyStyle::Structured => Some(ChunkStyle::Structured),
            ReplyStyle::Extended => Some(ChunkStyle::Extended),
        }
    }
}

/// Chunks of one reply may be sent in any order and between other replies, but the chunk marked
/// `last` ends the reply. Together, data and holes must cover a successful read exactly, without
/// overlap; a read with [`CommandFlags::DF`] gets a single chunk of data.
impl ChunkStyle {
    /// The header for `length` bytes of data that begin at byte `offset` of the export. `length`
    /// must be at least 1 and at most `u32::MAX - 8`.
    #[inline]
    pub fn data(self, request: &Request, offset: u64, length: u64, last: bool) -> ReplyHeader {
        debug_assert!(length > 0 && length <= u64::from(u32::MAX) - 8);
        self.header(request, chunk::OFFSET_DATA, 8 + length, last).put(offset.to_be_bytes())
    }

    /// A chunk for a part of a read that is all zeroes. `length` must not be zero, nor the request
    /// have [`CommandFlags::DF`].
    pub fn hole(self, request: &Request, offset: u64, length: u32, last: bool) -> ReplyHeader {
        debug_assert!(length > 0 && !request.flags.contains(CommandFlags::DF));
        self.header(request, chunk::OFFSET_HOLE, 12, last)
            .put(offset.to_be_bytes())
            .put(length.to_be_bytes())
    }

    /// A chunk without content, which ends a reply.
    pub fn none(self, request: &Request) -> ReplyHeader {
        self.header(request, chunk::NONE, 0, true)
    }

    /// Appends the whole reply to BLOCK_STATUS for `base:allocation`. `extents` must be contiguous
    /// and begin at the request's offset. Empty extents are dropped, neighbours with equal flags
    /// are merged, and the list ends where the request or the style requires it. Without any
    /// extent, the reply says "allocated, contents unknown" for the whole request.
    pub fn block_status(
        self,
        request: &Request,
        extents: impl IntoIterator<Item = StatusExtent>,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        let (prefix, entry) = match self {
            ChunkStyle::Structured => (4, 8),
            ChunkStyle::Extended => (8, 16),
        };
        // The payload length is not known yet: reserve room for the header and fill it in
        // afterwards.
        let header_bytes = self.header(request, self.status_chunk(), 0, true).len() + prefix;
        out.resize(start + header_bytes, 0);
        let count = self.put_extents(request, extents, out);
        let payload = (prefix + entry * count) as u64;
        let header = self
            .header(request, self.status_chunk(), payload, true)
            .put(ALLOCATION_CONTEXT_ID.to_be_bytes());
        let header = match self {
            ChunkStyle::Structured => header,
            ChunkStyle::Extended => header.put((count as u32).to_be_bytes()),
        };
        out[start..start + header_bytes].copy_from_slice(&header);
    }

    fn status_chunk(self) -> u16 {
        match self {
            ChunkStyle::Structured => chunk::BLOCK_STATUS,
            ChunkStyle::Extended => chunk::BLOCK_STATUS_EXT,
        }
    }

    /// Appends descriptors and returns their number, which is at least one.
    fn put_extents(
        self,
        request: &Request,
        extents: impl IntoIterator<Item = StatusExtent>,
        out: &mut Vec<u8>,
    ) -> usize {
        let one = request.flags.contains(CommandFlags::REQ_ONE);
        let count_max = if one { 1 } else { EXTENTS_MAX };
        let mut left = request.length;
        let mut count = 0;
        let mut put = |extent: StatusExtent| match self {
            ChunkStyle::Structured => {
                // An extent that had to be shortened ends the list: the next one would not be
                // adjacent.
                let length = extent.length.min(EXTENT_BYTES_MAX_COMPACT) as u32;
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&extent.flags.0.to_be_bytes());
                u64::from(length) == extent.length
            }
            ChunkStyle::Extended => {
                out.extend_from_slice(&extent.length.to_be_bytes());
                out.extend_from_slice(&u64::from(extent.flags.0).to_be_bytes());
                true
            }
        };
        let mut pending: Option<StatusExtent> = None;
        for extent in extents {
            if left == 0 {
                break;
            }
            let extent = StatusExtent { length: extent.length.min(left), ..extent };
            left -= extent.length;
            match &mut pending {
                _ if extent.length == 0 => {}
                None => pending = Some(extent),
                Some(last) if last.flags == extent.flags => last.length += extent.length,
                Some(last) => {
                    count += 1;
                    if !put(*last) || count == count_max {
                        return count;
                    }
                    *last = extent;
                }
            }
        }
        let whole = StatusExtent { length: request.length.max(1), flags: StatusFlags::NONE };
        put(pending.unwrap_or(whole));
        count + 1
    }

    #[inline]
    fn header(self, request: &Request, kind: u16, payload: u64, last: bool) -> ReplyHeader {
        let flags = if last { chunk::FLAG_DONE } else { 0 };
        let header = ReplyHeader::new();
        match self {
            ChunkStyle::Structured => header
                .put(STRUCTURED_REPLY_MAGIC.to_be_bytes())
                .put(flags.to_be_bytes())
                .put(kind.to_be_bytes())
                .put(request.cookie.0.to_be_bytes())
                .put((payload as u32).to_be_bytes()),
            ChunkStyle::Extended => header
                .put(EXTENDED_REPLY_MAGIC.to_be_bytes())
                .put(flags.to_be_bytes())
                .put(kind.to_be_bytes())
                .put(request.cookie.0.to_be_bytes())
                .put(request.offset.to_be_bytes())
                .put(payload.to_be_bytes()),
        }
    }
}

/// The longest extent that a 32-bit descriptor may report, in bytes: a multiple of every minimum
/// block size.
const EXTENT_BYTES_MAX_COMPACT: u64 = u32::MAX as u64 - 0xffff;

/// Maximum number of descriptors in one reply; the client sends another request for the rest.
const EXTENTS_MAX: usize = 4096;

/// The context ID of `base:allocation` in replies.
pub(crate) const ALLOCATION_CONTEXT_ID: u32 = 1;

#[inline]
fn simple(error: u32, request: &Request) -> ReplyHeader {
    ReplyHeader::new()
        .put(SIMPLE_REPLY_MAGIC.to_be_bytes())
        .put(error.to_be_bytes())
        .put(request.cookie.0.to_be_bytes())
}

const fn replies_with_chunks(command: Command) -> bool {
    matches!(command, Command::Read | Command::BlockStatus)
}

/// Returns `code`, or EINVAL in place of the two codes that the protocol reserves for certain
/// requests.
fn admissible(request: &Request, code: ErrorCode) -> ErrorCode {
    let allowed = match code {
        ErrorCode::NotSupported => {
            request.command == Command::WriteZeroes
                && request.flags.contains(CommandFlags::FAST_ZERO)
        }
        ErrorCode::Overflow => !matches!(request.command, Command::Write | Command::Flush),
        _ => true,
    };
    if allowed { code } else { ErrorCode::Invalid }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Cookie;

    fn request(command: Command) -> Request {
        let flags = CommandFlags::NONE;
        Request { cookie: Cookie(0x0102_0304_0506_0708), command, flags, offset: 4096, length: 512 }
    }

    const COOKIE: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    const OFFSET: [u8; 8] = [0, 0, 0, 0, 0, 0, 0x10, 0];

    fn golden(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn simple_replies_are_these_16_bytes() {
        let read = request(Command::Read);
        let good = golden(&[&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], &COOKIE]);
        assert_eq!(*ReplyStyle::Simple.data(&read), good);
        assert_eq!(*ReplyStyle::Simple.done(&request(Command::Write)), good);
        let bad = golden(&[&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5], &COOKIE]);
        assert_eq!(*ReplyStyle::Simple.error(&read, ErrorCode::Io), bad);
    }

    #[test]
    fn structured_chunks_are_these_bytes() {
        let (style, read) = (ReplyStyle::Structured, request(Command::Read));
        let magic = [0x66, 0x8e, 0x33, 0xef];
        let data = golden(&[&magic, &[0, 1, 0, 1], &COOKIE, &[0, 0, 2, 8], &OFFSET]);
        assert_eq!(*style.data(&read), data);
        let chunks = style.chunks().unwrap();
        let hole =
            golden(&[&magic, &[0, 0, 0, 2], &COOKIE, &[0, 0, 0, 12], &OFFSET, &[0, 0, 1, 0]]);
        assert_eq!(*chunks.hole(&read, 4096, 256, false), hole);
        let none = golden(&[&magic, &[0, 1, 0, 0], &COOKIE, &[0, 0, 0, 0]]);
        assert_eq!(*style.done(&read), none);
        let error =
            golden(&[&magic, &[0, 1, 0x80, 1], &COOKIE, &[0, 0, 0, 6], &[0, 0, 0, 5, 0, 0]]);
        assert_eq!(*style.error(&read, ErrorCode::Io), error);
        // Success without payload gets a simple reply: it is shorter, and every client accepts it.
        assert_eq!(style.done(&request(Command::Write)).len(), 16);
    }

    #[test]
    fn extended_chunks_are_these_bytes() {
        let (style, read) = (ReplyStyle::Extended, request(Command::Read));
        let magic = [0x6e, 0x8a, 0x27, 0x8c];
        let data =
            golden(&[&magic, &[0, 1, 0, 1], &COOKIE, &OFFSET, &[0, 0, 0, 0, 0, 0, 2, 8], &OFFSET]);
        assert_eq!(*style.data(&read), data);
        let none = golden(&[&magic, &[0, 1, 0, 0], &COOKIE, &OFFSET, &[0; 8]]);
        assert_eq!(*style.done(&request(Command::Flush)), none);
    }

    #[test]
    fn an_error_message_follows_its_length() {
        let mut out = Vec::new();
        let read = request(Command::Read);
        ReplyStyle::Structured.error_with_message(&read, ErrorCode::Invalid, "why", &mut out);
        assert_eq!(out[16..20], [0, 0, 0, 9]);
        assert_eq!(&out[20..], b"\0\0\0\x16\0\x03why");
        out.clear();
        ReplyStyle::Simple.error_with_message(&read, ErrorCode::Invalid, "why", &mut out);
        assert_eq!(out.len(), 16);
    }

    #[test]
    fn codes_kept_for_special_requests_become_invalid_elsewhere() {
        let mut zero = request(Command::WriteZeroes);
        assert_eq!(admissible(&zero, ErrorCode::NotSupported), ErrorCode::Invalid);
        zero.flags = CommandFlags::FAST_ZERO;
        assert_eq!(admissible(&zero, ErrorCode::NotSupported), ErrorCode::NotSupported);
        let write = request(Command::Write);
        assert_eq!(admissible(&write, ErrorCode::Overflow), ErrorCode::Invalid);
        assert_eq!(admissible(&write, ErrorCode::Io), ErrorCode::Io);
    }

    fn extents(list: &[(u64, u32)]) -> Vec<StatusExtent> {
        list.iter()
            .map(|&(length, flags)| StatusExtent { length, flags: StatusFlags(flags) })
            .collect()
    }

    fn compact_status(request: &Request, list: &[(u64, u32)]) -> Vec<(u32, u32)> {
        let mut out = Vec::new();
        ChunkStyle::Structured.block_status(request, extents(list), &mut out);
        let word = |at: usize| u32::from_be_bytes(out[at..at + 4].try_into().unwrap());
        assert_eq!(word(16) as usize, out.len() - 20);
        assert_eq!(word(20), ALLOCATION_CONTEXT_ID);
        (24..out.len()).step_by(8).map(|at| (word(at), word(at + 4))).collect()
    }

    #[test]
    fn block_status_joins_equal_neighbours_and_stops_at_the_request() {
        let status = request(Command::BlockStatus);
        assert_eq!(
            compact_status(&status, &[(100, 0), (0, 3), (100, 0), (900, 3)]),
            [(200, 0), (312, 3)]
        );
        assert_eq!(compact_status(&status, &[]), [(512, 0)]);
        let one = Request { flags: CommandFlags::REQ_ONE, ..status };
        assert_eq!(compact_status(&one, &[(100, 0), (100, 0), (900, 3)]), [(200, 0)]);
        let long = Request { length: 1 << 33, ..status };
        let list = [(1 << 33, 3), (512, 0)];
        assert_eq!(compact_status(&long, &list), [(0xffff_0000, 3)]);
    }

    #[test]
    fn extended_block_status_has_64_bit_lengths_and_a_count() {
        let status = Request { length: 1 << 40, ..request(Command::BlockStatus) };
        let mut out = Vec::new();
        let list = extents(&[(1 << 33, 3), (1 << 41, 0)]);
        ChunkStyle::Extended.block_status(&status, list, &mut out);
        let word = |at: usize| u64::from_be_bytes(out[at..at + 8].try_into().unwrap());
        assert_eq!((word(24), word(32)), (40, 1 << 32 | 2));
        assert_eq!(
            [word(40), word(48), word(56), word(64)],
            [1 << 33, 3, (1 << 40) - (1 << 33), 0]
        );
        assert_eq!(out.len(), 72);
    }
}
