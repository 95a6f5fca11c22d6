//! The client's side of the transmission phase: it sends requests and receives replies in any
//! order.

use super::coverage::Coverage;
use super::error::ClientError;
use super::handshake::RemoteExport;
use crate::ErrorCode;
use crate::request::{Request, RequestHeader};
use crate::rules::{Refusal, Rules};
use crate::style::{ReplyStyle, StatusExtent, StatusFlags};
use crate::wire::{
    Command, CommandFlags, Cookie, EXTENDED_REPLY_MAGIC, Fields, SIMPLE_REPLY_MAGIC,
    STRING_BYTES_MAX, STRUCTURED_REPLY_MAGIC, chunk,
};

/// Maximum number of error chunks in one reply: one for each sector of the longest payload.
const ERRORS_MAX: u32 = 1 << 16;

/// What [`Transmission::receive`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// No whole message is left. Keep the rest (at most 48 bytes), and append more input to it.
    NeedInput,
    /// `length` bytes of data for the read with tag `tag` follow; they begin `at` bytes into it.
    /// Take them with [`Transmission::take_payload`] or [`Transmission::payload_received`].
    Data {
        /// Tag of the request.
        tag: u64,
        /// Where in the request's range the data begins, in bytes from its start.
        at: u64,
        /// Length in bytes.
        length: u64,
    },
    /// `length` bytes of the read with tag `tag` are zero; they begin `at` bytes into it.
    Zeroes {
        /// Tag of the request.
        tag: u64,
        /// Where in the request's range the zeroes begin, in bytes from its start.
        at: u64,
        /// Length in bytes.
        length: u64,
    },
    /// The next extent of the block status request with tag `tag`.
    Extent {
        /// Tag of the request.
        tag: u64,
        /// Its length and status.
        extent: StatusExtent,
    },
    /// The request with tag `tag` is done.
    Done {
        /// Tag of the request.
        tag: u64,
        /// Whether the request succeeded. If a read failed, do not use its data.
        result: Result<(), ErrorCode>,
    },
    /// The driver has not taken all of the announced data; this many bytes remain.
    Payload(u64),
    /// The session is over. [`Transmission::in_flight`] lists the requests that got no reply.
    Failed(ClientError),
}

/// A session in its transmission phase.
#[derive(Debug)]
pub struct Transmission {
    state: State,
    rules: Rules,
    context: Option<u32>,
    export: RemoteExport,
    slots: Vec<Slot>,
    free: Vec<u32>,
    message: Vec<u8>,
    failure: Option<ClientError>,
}

/// A slot for one request in flight; free if `request` is `None`.
#[derive(Debug, Default)]
struct Slot {
    request: Option<Request>,
    tag: u64,
    error: Option<ErrorCode>,
    /// Number of error chunks received.
    errors: u32,
    /// The bytes of a read that have arrived.
    coverage: Coverage,
    /// Number of block status extents received.
    extents: u64,
    generation: u32,
}

/// The slot that a chunk answers, and whether the chunk is the last of its reply.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    slot: u32,
    last: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    Data { left: u64, chunk: Chunk },
    Extents { left: u64, chunk: Chunk },
    Skip { left: u64, chunk: Chunk },
    Message { length: usize, skip: u64, chunk: Chunk },
    Failed,
}

/// The header of a reply or chunk.
#[derive(Clone, Copy, Debug)]
struct Header {
    style: ReplyStyle,
    flags: u16,
    kind: u16,
    cookie: Cookie,
    /// The error number of a simple reply, or the payload length of a chunk in bytes.
    value: u64,
}

impl Transmission {
    pub(super) fn new(
        export: RemoteExport,
        style: ReplyStyle,
        context: Option<u32>,
        depth_max: u32,
    ) -> Transmission {
        let (size, sizes) = (export.size_bytes, export.block_sizes);
        Transmission {
            state: State::Header,
            rules: Rules::new(style, export.features, context.is_some(), size, sizes),
            context,
            export,
            slots: (0..depth_max).map(|_| Slot::default()).collect(),
            free: (0..depth_max).rev().collect(),
            message: Vec::new(),
            failure: None,
        }
    }

    /// Registers a request and returns the header to send; for a write, `length` bytes of payload
    /// must follow it. The events of the request carry `tag`.
    ///
    /// # Errors
    /// [`ClientError::Full`] when too many requests are in flight, [`ClientError::Request`] when
    /// the server would refuse the request, or the error that ended the session. Nothing is
    /// registered then.
    pub fn submit(
        &mut self,
        tag: u64,
        command: Command,
        flags: CommandFlags,
        offset: u64,
        length: u64,
    ) -> Result<RequestHeader, ClientError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if command == Command::Disconnect {
            return Err(Refusal::NotOffered.into());
        }
        self.rules.check(command, flags, offset, length)?;
        let extended = self.rules.style.is_extended();
        if !extended && length > u64::from(u32::MAX) {
            return Err(Refusal::TooLong.into());
        }
        let index = self.free.pop().ok_or(ClientError::Full)?;
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let cookie = Cookie(u64::from(slot.generation) << 32 | u64::from(index));
        let request = Request { cookie, command, flags, offset, length };
        slot.request = Some(request);
        slot.tag = tag;
        slot.error = None;
        (slot.errors, slot.extents) = (0, 0);
        slot.coverage.clear();
        Ok(request.encode(extended))
    }

    /// Ends the session and returns the request to send. Call this only when nothing is in flight.
    pub fn disconnect(&mut self) -> RequestHeader {
        self.state = State::Failed;
        self.failure = Some(ClientError::Closed);
        let (command, flags) = (Command::Disconnect, CommandFlags::NONE);
        let request = Request { cookie: Cookie(0), command, flags, offset: 0, length: 0 };
        request.encode(self.rules.style.is_extended())
    }

    /// The tags of the requests in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().filter(|slot| slot.request.is_some()).map(|slot| slot.tag)
    }

    /// The export in use.
    pub fn export(&self) -> &RemoteExport {
        &self.export
    }

    /// How replies are encoded.
    pub fn reply_style(&self) -> ReplyStyle {
        self.rules.style
    }

    /// Whether block status requests are possible.
    pub fn has_allocation(&self) -> bool {
        self.context.is_some()
    }

    /// The server's message for the last error; empty if it sent none.
    pub fn last_message(&self) -> String {
        String::from_utf8_lossy(&self.message).into_owned()
    }

    /// Tells the session that the server closed its side.
    pub fn end_of_input(&mut self) -> ClientError {
        self.fail(ClientError::Closed)
    }

    /// Takes the next message, or a piece of one, off the front of `input`.
    pub fn receive(&mut self, input: &mut &[u8]) -> ClientEvent {
        loop {
            let step = match self.state {
                State::Failed => {
                    let failure = self.failure.clone().unwrap_or(ClientError::Closed);
                    return ClientEvent::Failed(failure);
                }
                State::Data { left: 0, chunk }
                | State::Extents { left: 0, chunk }
                | State::Skip { left: 0, chunk } => {
                    self.state = State::Header;
                    if chunk.last { self.done(chunk.slot) } else { Ok(None) }
                }
                State::Data { left, .. } => return ClientEvent::Payload(left),
                State::Header => self.header(input),
                State::Extents { left, chunk } => self.extent(left, chunk, input),
                State::Message { length, skip, chunk } => {
                    let missing = (length - self.message.len()).min(input.len());
                    self.message.extend_from_slice(&input[..missing]);
                    *input = &input[missing..];
                    if self.message.len() < length {
                        return ClientEvent::NeedInput;
                    }
                    self.state = State::Skip { left: skip, chunk };
                    Ok(None)
                }
                State::Skip { left, chunk } => {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    *input = &input[take..];
                    self.state = State::Skip { left: left - take as u64, chunk };
                    if left > take as u64 {
                        return ClientEvent::NeedInput;
                    }
                    Ok(None)
                }
            };
            match step {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(what) => {
                    return ClientEvent::Failed(self.fail(ClientError::Protocol(what)));
                }
            }
        }
    }

    /// Takes announced data off the front of `input`: all that remains, or as much as `input`
    /// holds. Returns an empty slice when none remains.
    pub fn take_payload<'a>(&mut self, input: &mut &'a [u8]) -> &'a [u8] {
        let State::Data { left, .. } = self.state else { return &[] };
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let (payload, rest) = input.split_at(take);
        *input = rest;
        self.payload_received(take as u64);
        payload
    }

    /// Tells the session that the driver read `bytes` bytes of data itself, straight from the
    /// socket into their destination.
    ///
    /// # Panics
    /// If `bytes` is more than remains: the session would lose its place in the stream.
    pub fn payload_received(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let State::Data { left, chunk } = self.state else { panic!("no payload is expected") };
        assert!(bytes <= left, "{bytes} bytes of payload received, but only {left} were expected");
        self.state = State::Data { left: left - bytes, chunk };
    }

    fn fail(&mut self, error: ClientError) -> ClientError {
        self.state = State::Failed;
        self.failure.get_or_insert(error).clone()
    }

    /// Reads a header and, for chunks that have any, the fixed part of the payload.
    fn header(&mut self, input: &mut &[u8]) -> Step {
        let mut fields = Fields(input);
        let Some(header) = self.parse_header(&mut fields)? else { return NEED_INPUT };
        let index = header.cookie.0 as u32;
        let slot = self.slots.get(index as usize).and_then(|slot| slot.request);
        let Some(request) = slot.filter(|request| request.cookie == header.cookie) else {
            return Err("a reply to a request that is not in flight");
        };
        let last = header.style == ReplyStyle::Simple || header.flags & chunk::FLAG_DONE != 0;
        let at = Chunk { slot: index, last };
        let step = match header.style {
            ReplyStyle::Simple => self.simple(header, request, at)?,
            _ => match self.chunk(header, request, at, &mut fields)? {
                Some(event) => event,
                None => return NEED_INPUT,
            },
        };
        *input = fields.0;
        Ok(step)
    }

    fn parse_header(&self, fields: &mut Fields<'_>) -> Result<Option<Header>, Broken> {
        let Some(magic) = fields.u32() else { return Ok(None) };
        let style = match (magic, self.rules.style) {
            (SIMPLE_REPLY_MAGIC, ReplyStyle::Simple | ReplyStyle::Structured) => ReplyStyle::Simple,
            (STRUCTURED_REPLY_MAGIC, ReplyStyle::Structured) => ReplyStyle::Structured,
            (EXTENDED_REPLY_MAGIC, ReplyStyle::Extended) => ReplyStyle::Extended,
            _ => return Err("a kind of reply that was not negotiated"),
        };
        let mut parse = || match style {
            ReplyStyle::Simple => {
                let (value, cookie) = (u64::from(fields.u32()?), Cookie(fields.u64()?));
                Some((Header { style, flags: 0, kind: 0, cookie, value }, None))
            }
            _ => {
                let (flags, kind, cookie) = (fields.u16()?, fields.u16()?, Cookie(fields.u64()?));
                let extended = style.is_extended();
                let offset = if extended { Some(fields.u64()?) } else { None };
                let value = if extended { fields.u64()? } else { u64::from(fields.u32()?) };
                Some((Header { style, flags, kind, cookie, value }, offset))
            }
        };
        let Some((header, offset)) = parse() else { return Ok(None) };
        let slot = self.slots.get(header.cookie.0 as u32 as usize).and_then(|s| s.request);
        match (offset, slot) {
            (Some(offset), Some(request)) if offset != request.offset => {
                Err("a reply whose offset differs from the request's")
            }
            _ => Ok(Some(header)),
        }
    }

    fn simple(
        &mut self,
        header: Header,
        request: Request,
        at: Chunk,
    ) -> Result<Option<ClientEvent>, Broken> {
        let structured = self.rules.style == ReplyStyle::Structured;
        if structured && matches!(request.command, Command::Read) {
            return Err("a simple reply to a read, although structured replies were negotiated");
        }
        let error = ErrorCode::from_number(u32::try_from(header.value).unwrap_or(u32::MAX));
        if structured && request.command == Command::BlockStatus && error.is_none() {
            return Err("a simple reply to a block status request");
        }
        let slot = &mut self.slots[at.slot as usize];
        slot.error = error;
        if error.is_some() {
            self.message.clear();
        }
        if request.command == Command::Read && error.is_none() {
            slot.coverage.add(0, request.length);
            self.state = State::Data { left: request.length, chunk: at };
            return Ok(Some(ClientEvent::Data { tag: slot.tag, at: 0, length: request.length }));
        }
        self.state = State::Skip { left: 0, chunk: at };
        Ok(None)
    }

    /// Handles a chunk. Returns `Ok(None)` when the fixed part of its payload has not arrived.
    fn chunk(
        &mut self,
        header: Header,
        request: Request,
        at: Chunk,
        fields: &mut Fields<'_>,
    ) -> Result<Option<Option<ClientEvent>>, Broken> {
        let length = header.value;
        let event = match header.kind {
            chunk::NONE if length == 0 && at.last => {
                self.state = State::Skip { left: 0, chunk: at };
                None
            }
            chunk::OFFSET_DATA if length > 8 && request.command == Command::Read => {
                let Some(offset) = fields.u64() else { return Ok(None) };
                let length = length - 8;
                let begin = self.cover(request, at, offset, length)?;
                self.state = State::Data { left: length, chunk: at };
                let tag = self.slots[at.slot as usize].tag;
                Some(ClientEvent::Data { tag, at: begin, length })
            }
            chunk::OFFSET_HOLE if length == 12 && request.command == Command::Read => {
                let (Some(offset), Some(hole)) = (fields.u64(), fields.u32()) else {
                    return Ok(None);
                };
                let length = u64::from(hole);
                let begin = self.cover(request, at, offset, length)?;
                self.state = State::Skip { left: 0, chunk: at };
                let tag = self.slots[at.slot as usize].tag;
                Some(ClientEvent::Zeroes { tag, at: begin, length })
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => {
                if !self.status(header, request, at, fields)? {
                    return Ok(None);
                }
                None
            }
            kind if kind & chunk::ERROR_BIT != 0 => {
                let (Some(code), Some(text)) = (fields.u32(), fields.u16()) else {
                    return if length < 6 {
                        Err("an error chunk that is too short")
                    } else {
                        Ok(None)
                    };
                };
                let text = usize::from(text);
                let rest = length.checked_sub(6 + text as u64);
                let too_long = length > (STRING_BYTES_MAX + 64) as u64;
                let Some(skip) = rest.filter(|_| !too_long) else {
                    return Err("an error chunk of the wrong length");
                };
                let code =
                    ErrorCode::from_number(code).ok_or("an error chunk without an error code")?;
                let slot = &mut self.slots[at.slot as usize];
                slot.error.get_or_insert(code);
                slot.errors += 1;
                if slot.errors > ERRORS_MAX {
                    return Err("a reply with too many errors");
                }
                self.message.clear();
                self.state = State::Message { length: text, skip, chunk: at };
                None
            }
            _ => return Err("a chunk that does not answer its request"),
        };
        Ok(Some(event))
    }

    /// Marks part of a read as arrived, and returns its offset in bytes from the start of the
    /// request.
    fn cover(
        &mut self,
        request: Request,
        at: Chunk,
        offset: u64,
        length: u64,
    ) -> Result<u64, Broken> {
        let begin = offset.checked_sub(request.offset).ok_or(OUTSIDE)?;
        let end = begin.checked_add(length).filter(|&end| end <= request.length).ok_or(OUTSIDE)?;
        let fits = length > 0 && self.slots[at.slot as usize].coverage.add(begin, end);
        if fits { Ok(begin) } else { Err("a chunk that overlaps another") }
    }

    /// Reads the head of a block status chunk. Returns false when it has not arrived.
    fn status(
        &mut self,
        header: Header,
        request: Request,
        at: Chunk,
        fields: &mut Fields<'_>,
    ) -> Result<bool, Broken> {
        let extended = header.style.is_extended();
        let (head, entry) = if extended { (8, 16) } else { (4, 8) };
        let expected = if extended { chunk::BLOCK_STATUS_EXT } else { chunk::BLOCK_STATUS };
        let list = header.value.checked_sub(head).filter(|&list| list > 0 && list % entry == 0);
        let Some(list) = list else { return Err("a block status of the wrong length") };
        if request.command != Command::BlockStatus || header.kind != expected || list > 16 << 20 {
            return Err("a block status that was not requested");
        }
        let Some(context) = fields.u32() else { return Ok(false) };
        if extended {
            let Some(count) = fields.u32() else { return Ok(false) };
            if u64::from(count) * entry != list {
                return Err("a block status with the wrong number of extents");
            }
        }
        let slot = &mut self.slots[at.slot as usize];
        if Some(context) != self.context || slot.extents > 0 {
            return Err("a block status for another context, or a duplicate");
        }
        self.state = State::Extents { left: list, chunk: at };
        Ok(true)
    }

    fn extent(&mut self, left: u64, at: Chunk, input: &mut &[u8]) -> Step {
        let mut fields = Fields(input);
        let (length, flags, size) = if self.rules.style.is_extended() {
            let (Some(length), Some(flags)) = (fields.u64(), fields.u64()) else {
                return NEED_INPUT;
            };
            (length, flags as u32, 16)
        } else {
            let (Some(length), Some(flags)) = (fields.u32(), fields.u32()) else {
                return NEED_INPUT;
            };
            (u64::from(length), flags, 8)
        };
        if length == 0 {
            return Err("an empty extent");
        }
        *input = fields.0;
        self.state = State::Extents { left: left - size, chunk: at };
        let slot = &mut self.slots[at.slot as usize];
        slot.extents += 1;
        let extent = StatusExtent { length, flags: StatusFlags(flags) };
        Ok(Some(ClientEvent::Extent { tag: slot.tag, extent }))
    }

    /// Ends a request and frees its slot.
    fn done(&mut self, index: u32) -> Step {
        let slot = &mut self.slots[index as usize];
        let Some(request) = slot.request.take() else {
            return Err("a reply to a request that is not in flight");
        };
        self.free.push(index);
        let result = match slot.error {
            Some(code) => Err(code),
            None => {
                let missing = match request.command {
                    Command::Read => !slot.coverage.is_whole(request.length),
                    Command::BlockStatus => slot.extents == 0,
                    _ => false,
                };
                if missing {
                    slot.request = Some(request);
                    return Err("an incomplete reply");
                }
                Ok(())
            }
        };
        Ok(Some(ClientEvent::Done { tag: slot.tag, result }))
    }
}

/// How the server violated the protocol.
type Broken = &'static str;
type Step = Result<Option<ClientEvent>, Broken>;
const NEED_INPUT: Step = Ok(Some(ClientEvent::NeedInput));
const OUTSIDE: Broken = "a chunk outside its request";
