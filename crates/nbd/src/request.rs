//! Requests as both halves represent them, and their two wire formats.

use forebay_block::{Flags, Nanos, Op, Volume};

use crate::wire::{
    Command, CommandFlags, Cookie, EXTENDED_REQUEST_BYTES, EXTENDED_REQUEST_MAGIC, Fields,
    REQUEST_BYTES, REQUEST_MAGIC,
};

/// One request of the transmission phase.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// Identifies the request; every reply to it carries the cookie.
    pub cookie: Cookie,
    /// What to do.
    pub command: Command,
    /// Modifies how the command is carried out.
    pub flags: CommandFlags,
    /// First byte addressed.
    pub offset: u64,
    /// Number of bytes addressed; 0 for FLUSH.
    pub length: u64,
}

impl Request {
    /// Number of payload bytes that follow the header.
    pub const fn payload_bytes(&self) -> u64 {
        match self.command {
            Command::Write => self.length,
            _ => 0,
        }
    }

    /// Encodes the header as a client sends it. An extended write gets the payload flag. For a
    /// compact header, the length must fit in 32 bits.
    pub fn encode(&self, extended: bool) -> RequestHeader {
        let payload = extended && self.command == Command::Write;
        let flags = self.flags.with_if(payload, CommandFlags::PAYLOAD_LEN).0;
        let Request { cookie, command, offset, length, .. } = *self;
        RawRequest { flags, command: command as u16, cookie, offset, length }.encode(extended)
    }

    /// Converts the request to the cache's request type, or returns `None` for commands that are
    /// not part of a workload (CACHE, BLOCK_STATUS, DISC).
    pub fn to_block(&self, time: Nanos, volume: Volume) -> Option<forebay_block::Request> {
        let op = match self.command {
            Command::Read => Op::Read,
            Command::Write => Op::Write,
            Command::Trim => Op::Trim,
            Command::Flush => Op::Flush,
            Command::WriteZeroes => Op::WriteZeroes,
            Command::Cache | Command::BlockStatus | Command::Disconnect => return None,
        };
        let mut flags = Flags::NONE;
        for (here, there) in [
            (CommandFlags::FUA, Flags::FUA),
            (CommandFlags::NO_HOLE, Flags::NO_HOLE),
            (CommandFlags::FAST_ZERO, Flags::FAST_ZERO),
        ] {
            if self.flags.contains(here) {
                flags = flags.union(there);
            }
        }
        let (offset, length) = (self.offset, self.length);
        Some(forebay_block::Request { time, volume, op, flags, offset, length })
    }
}

/// A request header as received, not yet validated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RawRequest {
    pub flags: u16,
    pub command: u16,
    pub cookie: Cookie,
    pub offset: u64,
    pub length: u64,
}

/// Why no header could be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderError {
    Incomplete,
    Magic(u32),
}

impl RawRequest {
    /// Takes a header off the front of `input`. On error, `input` is unchanged.
    #[inline]
    pub fn take(input: &mut &[u8], extended: bool) -> Result<RawRequest, HeaderError> {
        let size = if extended { EXTENDED_REQUEST_BYTES } else { REQUEST_BYTES };
        let Some((header, rest)) = input.split_at_checked(size) else {
            return Err(HeaderError::Incomplete);
        };
        let raw = Self::decode(header, extended)?;
        *input = rest;
        Ok(raw)
    }

    #[inline]
    fn decode(header: &[u8], extended: bool) -> Result<RawRequest, HeaderError> {
        let mut fields = Fields(header);
        let mut parse = || {
            let magic = fields.u32()?;
            let (flags, command) = (fields.u16()?, fields.u16()?);
            let (cookie, offset) = (Cookie(fields.u64()?), fields.u64()?);
            let length = if extended { fields.u64()? } else { u64::from(fields.u32()?) };
            Some((magic, RawRequest { flags, command, cookie, offset, length }))
        };
        let (magic, raw) = parse().ok_or(HeaderError::Incomplete)?;
        let expected = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        if magic == expected { Ok(raw) } else { Err(HeaderError::Magic(magic)) }
    }

    /// Encodes the header. For a compact header, the length must fit in 32 bits.
    pub fn encode(&self, extended: bool) -> RequestHeader {
        let mut bytes = [0; EXTENDED_REQUEST_BYTES];
        let magic = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        bytes[0..4].copy_from_slice(&magic.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        if extended {
            bytes[24..32].copy_from_slice(&self.length.to_be_bytes());
            RequestHeader { bytes, length: EXTENDED_REQUEST_BYTES as u8 }
        } else {
            debug_assert!(self.length <= u64::from(u32::MAX));
            bytes[24..28].copy_from_slice(&(self.length as u32).to_be_bytes());
            RequestHeader { bytes, length: REQUEST_BYTES as u8 }
        }
    }
}

/// An encoded request header. The payload of a write follows it on the wire.
#[derive(Clone, Copy, Debug)]
pub struct RequestHeader {
    bytes: [u8; EXTENDED_REQUEST_BYTES],
    length: u8,
}

impl core::ops::Deref for RequestHeader {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: RawRequest = RawRequest {
        flags: 1,
        command: 6,
        cookie: Cookie(0x0102_0304_0506_0708),
        offset: 0x1000,
        length: 0x2000,
    };

    #[test]
    fn a_compact_request_is_these_28_bytes() {
        let golden = [
            0x25, 0x60, 0x95, 0x13, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0,
            0, 0, 0x20, 0,
        ];
        assert_eq!(*RAW.encode(false), golden);
        let mut input = &golden[..];
        assert_eq!(RawRequest::take(&mut input, false), Ok(RAW));
        assert!(input.is_empty());
    }

    #[test]
    fn an_extended_request_is_these_32_bytes() {
        let golden = [
            0x21, 0xe4, 0x1c, 0x71, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0,
            0, 0, 0, 0, 0, 0, 0x20, 0,
        ];
        assert_eq!(*RAW.encode(true), golden);
        assert_eq!(RawRequest::take(&mut &golden[..], true), Ok(RAW));
    }

    #[test]
    fn a_short_or_foreign_header_takes_nothing() {
        let header = RAW.encode(false);
        let mut input = &header[..27];
        assert_eq!(RawRequest::take(&mut input, false), Err(HeaderError::Incomplete));
        assert_eq!(input.len(), 27);
        let mut input = &RAW.encode(true)[..];
        let error = RawRequest::take(&mut input, false);
        assert_eq!(error, Err(HeaderError::Magic(EXTENDED_REQUEST_MAGIC)));
        assert_eq!(input.len(), 32);
    }

    #[test]
    fn flags_and_operations_translate_to_the_words_of_the_cache() {
        let mut request = Request {
            cookie: Cookie(1),
            command: Command::WriteZeroes,
            flags: CommandFlags::FUA | CommandFlags::NO_HOLE | CommandFlags::FAST_ZERO,
            offset: 4096,
            length: 512,
        };
        let block = request.to_block(Nanos(5), Volume(2)).unwrap();
        assert_eq!((block.op, block.offset, block.length), (Op::WriteZeroes, 4096, 512));
        assert_eq!(block.flags, Flags::FUA.union(Flags::NO_HOLE).union(Flags::FAST_ZERO));
        request.command = Command::Cache;
        assert_eq!(request.to_block(Nanos(5), Volume(2)), None);
    }
}
