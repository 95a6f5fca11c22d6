//! The transmission phase: parses requests, checks them and passes them to the driver.
//!
//! A request that reaches the driver is valid: its command and flags are known and were offered,
//! its range is within the export, not empty and aligned, and it does not write to a read-only
//! export. All other requests are answered here, and their payloads are discarded.

use super::close::CloseReason;
use crate::ErrorCode;
use crate::export::ExportInfo;
use crate::request::{HeaderError, RawRequest, Request};
use crate::rules::{Refusal, Rules};
use crate::style::ReplyStyle;
use crate::wire::{Command, CommandFlags, Cookie, PAYLOAD_BYTES_DEFAULT, TransmissionFlags};

/// What [`Transmission::receive`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// No whole message is left. Keep the rest (at most 31 bytes), and append more input to it.
    NeedInput,
    /// A valid request. After a write, take [`Request::payload_bytes`] bytes of payload with
    /// [`Transmission::take_payload`] or [`Transmission::payload_received`].
    Request(Request),
    /// The driver has not taken all of the last write's payload; this many bytes remain.
    Payload(u64),
    /// A request that was refused. The error reply is in `out`.
    Rejected(Cookie, ErrorCode),
    /// The session is over.
    Close(CloseReason),
}

/// A session in its transmission phase.
#[derive(Debug)]
pub struct Transmission {
    state: State,
    shutting_down: bool,
    rules: Rules,
    export: ExportInfo,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    Payload(u64),
    Discard { left: u64, raw: RawRequest, error: Refusal },
    Closed(CloseReason),
}

impl Transmission {
    pub(crate) fn new(export: ExportInfo, style: ReplyStyle, allocation: bool) -> Self {
        let features = export.transmission_flags(style != ReplyStyle::Simple);
        let size = export.advertised_bytes();
        let rules = Rules::new(style, features, allocation, size, export.block_sizes);
        Transmission { state: State::Header, shutting_down: false, rules, export }
    }

    /// Takes the next message off the front of `input`. If the message is an invalid request, the
    /// error reply is appended to `out`.
    #[inline]
    pub fn receive(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Event {
        match self.state {
            State::Header => {}
            State::Payload(left) => return Event::Payload(left),
            State::Closed(reason) => return Event::Close(reason),
            State::Discard { .. } => return self.discard(input, out),
        }
        let raw = match RawRequest::take(input, self.rules.style.is_extended()) {
            Ok(raw) => raw,
            Err(HeaderError::Incomplete) => return Event::NeedInput,
            Err(HeaderError::Magic(magic)) => return self.close(CloseReason::RequestMagic(magic)),
        };
        let payload = self.payload_announced(&raw);
        match self.judge(&raw) {
            Ok(request) if request.command == Command::Disconnect => {
                self.close(CloseReason::Disconnected)
            }
            Ok(request) => {
                if payload > 0 {
                    self.state = State::Payload(payload);
                }
                Event::Request(request)
            }
            Err(error) => self.reject(&raw, payload, error, input, out),
        }
    }

    /// Takes payload of the last request off the front of `input`: all that remains, or as much as
    /// `input` holds. Returns an empty slice when none remains.
    pub fn take_payload<'a>(&mut self, input: &mut &'a [u8]) -> &'a [u8] {
        let State::Payload(left) = self.state else { return &[] };
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let (payload, rest) = input.split_at(take);
        *input = rest;
        self.payload_received(take as u64);
        payload
    }

    /// Tells the session that the driver read `bytes` bytes of payload itself, straight from the
    /// socket into their destination.
    ///
    /// # Panics
    /// If `bytes` is more than remains: the session would lose its place in the stream and mistake
    /// data for requests.
    pub fn payload_received(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let State::Payload(left) = self.state else { panic!("no payload is expected") };
        assert!(bytes <= left, "{bytes} bytes of payload received, but only {left} were expected");
        self.state = if bytes == left { State::Header } else { State::Payload(left - bytes) };
    }

    /// Tells the session that the client closed its side while `unread` bytes were left.
    pub fn end_of_input(&mut self, unread: usize) -> CloseReason {
        let reason = match self.state {
            State::Closed(reason) => return reason,
            State::Header if unread == 0 => CloseReason::EndOfInput,
            _ => CloseReason::Truncated(unread),
        };
        self.close(reason);
        reason
    }

    /// Makes the session answer every later request except DISC with ESHUTDOWN. The driver must
    /// finish the requests that it already has.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// The style in which to encode replies.
    pub fn reply_style(&self) -> ReplyStyle {
        self.rules.style
    }

    /// The export in use.
    pub fn export(&self) -> &ExportInfo {
        &self.export
    }

    /// The transmission flags that were advertised to the client.
    pub fn features(&self) -> TransmissionFlags {
        self.rules.features
    }

    fn close(&mut self, reason: CloseReason) -> Event {
        self.state = State::Closed(reason);
        Event::Close(reason)
    }

    /// Number of bytes that follow the header, even if the request is invalid.
    #[inline]
    fn payload_announced(&self, raw: &RawRequest) -> u64 {
        let carries = match self.rules.style {
            ReplyStyle::Extended => raw.flags & CommandFlags::PAYLOAD_LEN.0 != 0,
            _ => raw.command == Command::Write as u16,
        };
        if carries { raw.length } else { 0 }
    }

    #[inline]
    fn judge(&self, raw: &RawRequest) -> Result<Request, Refusal> {
        let command = Command::from_u16(raw.command).ok_or(Refusal::UnknownCommand)?;
        let request = self.sound(raw, command);
        if command == Command::Disconnect {
            return Ok(request);
        }
        if self.shutting_down {
            return Err(Refusal::ShuttingDown);
        }
        let mut flags = CommandFlags(raw.flags);
        if command == Command::Write && self.rules.style.is_extended() {
            if !flags.contains(CommandFlags::PAYLOAD_LEN) {
                return Err(Refusal::NoPayload);
            }
            flags = flags.without(CommandFlags::PAYLOAD_LEN);
        }
        self.rules.check(command, flags, raw.offset, raw.length)?;
        Ok(request)
    }

    #[inline]
    fn sound(&self, raw: &RawRequest, command: Command) -> Request {
        Request {
            cookie: raw.cookie,
            command,
            flags: CommandFlags(raw.flags).without(CommandFlags::PAYLOAD_LEN),
            offset: raw.offset,
            length: raw.length,
        }
    }

    /// Answers an invalid request once its payload has been discarded.
    #[cold]
    fn reject(
        &mut self,
        raw: &RawRequest,
        payload: u64,
        error: Refusal,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Event {
        // With extended headers the client must respect the advertised limit; otherwise payloads of
        // up to 32 MiB are tolerated, whatever was advertised.
        let discard_max = match self.rules.style {
            ReplyStyle::Extended => self.rules.payload_bytes_max,
            _ => self.rules.payload_bytes_max.max(u64::from(PAYLOAD_BYTES_DEFAULT)),
        };
        if payload > discard_max {
            return self.close(CloseReason::PayloadTooLarge(payload));
        }
        self.state = State::Discard { left: payload, raw: *raw, error };
        self.discard(input, out)
    }

    #[cold]
    fn discard(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Event {
        let State::Discard { left, raw, error } = &mut self.state else {
            return Event::NeedInput;
        };
        let take = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
        *input = &input[take..];
        *left -= take as u64;
        if *left > 0 {
            return Event::NeedInput;
        }
        let (raw, error) = (*raw, *error);
        self.state = State::Header;
        let (command, style) = (Command::from_u16(raw.command), self.rules.style);
        let code = error.code(command, style);
        // An unknown command is answered like one that has no payload.
        let request = self.sound(&raw, command.unwrap_or(Command::Flush));
        style.error_with_message(&request, code, error.message(), out);
        Event::Rejected(raw.cookie, code)
    }
}
