//! The transmission phase: requests in, judged and handed to the driver.
//!
//! A request that reaches the driver is sound: its command and flags are known and were offered,
//! its range lies within the export, is not empty and is aligned, and it does not write to what
//! is read-only. All others are answered here, their payloads thrown away.

use super::close::CloseReason;
use super::reply::ReplyStyle;
use crate::ErrorCode;
use crate::export::ExportInfo;
use crate::request::{HeaderError, RawRequest, Request};
use crate::wire::{Command, CommandFlags, Cookie, PAYLOAD_BYTES_DEFAULT, TransmissionFlags};

/// What [`Transmission::receive`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Nothing whole is left: keep the rest (at most 31 bytes), read more behind it.
    NeedInput,
    /// A sound request. After a write, take [`Request::payload_bytes`] bytes of payload with
    /// [`Transmission::take_payload`] or [`Transmission::payload_received`].
    Request(Request),
    /// The payload of the write before has not been taken; so many bytes are missing.
    Payload(u64),
    /// A request that cannot be done. The error reply is in `out`.
    Rejected(Cookie, ErrorCode),
    /// The session is over.
    Close(CloseReason),
}

/// A session in its transmission phase.
#[derive(Debug)]
pub struct Transmission {
    state: State,
    style: ReplyStyle,
    shutting_down: bool,
    limits: Limits,
    export: ExportInfo,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    Payload(u64),
    Discard { left: u64, request: Request, error: Rejection },
    Closed(CloseReason),
}

/// Why a request is refused.
type Rejection = (ErrorCode, &'static str);

#[derive(Clone, Copy, Debug)]
struct Limits {
    size_bytes: u64,
    alignment_mask: u64,
    payload_bytes_max: u64,
    features: TransmissionFlags,
    command_flags: CommandFlags,
    allocation: bool,
}

impl Transmission {
    pub(super) fn new(export: ExportInfo, style: ReplyStyle, allocation: bool) -> Self {
        let features = export.transmission_flags(style != ReplyStyle::Simple);
        let fua = features.contains(TransmissionFlags::SEND_FUA);
        let limits = Limits {
            size_bytes: export.advertised_bytes(),
            alignment_mask: u64::from(export.block_sizes.minimum_bytes()) - 1,
            payload_bytes_max: u64::from(export.block_sizes.payload_bytes_max()),
            features,
            command_flags: CommandFlags::NONE.with_if(fua, CommandFlags::FUA),
            allocation,
        };
        Transmission { state: State::Header, style, shutting_down: false, limits, export }
    }

    /// Takes the next message off the front of `input`. An error reply, if that is all there is
    /// to say, is appended to `out`.
    #[inline]
    pub fn receive(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Event {
        match self.state {
            State::Header => {}
            State::Payload(left) => return Event::Payload(left),
            State::Closed(reason) => return Event::Close(reason),
            State::Discard { .. } => return self.discard(input, out),
        }
        let raw = match RawRequest::take(input, self.style == ReplyStyle::Extended) {
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

    /// Takes payload of the last request off the front of `input`: all that is missing, or what
    /// there is. Empty when none is missing.
    pub fn take_payload<'a>(&mut self, input: &mut &'a [u8]) -> &'a [u8] {
        let State::Payload(left) = self.state else { return &[] };
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let (payload, rest) = input.split_at(take);
        *input = rest;
        self.payload_received(take as u64);
        payload
    }

    /// Tells the session that the driver read `bytes` bytes of payload itself, straight from
    /// the socket to where they belong.
    ///
    /// # Panics
    /// If that is more than is missing: the stream would be read out of step, and data taken
    /// for requests.
    pub fn payload_received(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let State::Payload(left) = self.state else { panic!("no payload is expected") };
        assert!(bytes <= left, "{bytes} bytes of payload taken where {left} were missing");
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

    /// From now on every request is answered with ESHUTDOWN; those handed out before are the
    /// driver's to finish.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// How replies are to be encoded.
    pub fn reply_style(&self) -> ReplyStyle {
        self.style
    }

    /// The export in use.
    pub fn export(&self) -> &ExportInfo {
        &self.export
    }

    /// The transmission flags that the client was told.
    pub fn features(&self) -> TransmissionFlags {
        self.limits.features
    }

    fn close(&mut self, reason: CloseReason) -> Event {
        self.state = State::Closed(reason);
        Event::Close(reason)
    }

    /// Bytes that follow the header, whether or not the request is any good.
    #[inline]
    fn payload_announced(&self, raw: &RawRequest) -> u64 {
        let carries = match self.style {
            ReplyStyle::Extended => raw.flags & CommandFlags::PAYLOAD_LEN.0 != 0,
            _ => raw.command == Command::Write as u16,
        };
        if carries { raw.length } else { 0 }
    }

    #[inline]
    fn judge(&self, raw: &RawRequest) -> Result<Request, Rejection> {
        let command =
            Command::from_u16(raw.command).ok_or((ErrorCode::Invalid, "unknown command"))?;
        if command == Command::Disconnect {
            return Ok(self.sound(raw, command));
        }
        if self.shutting_down {
            return Err((ErrorCode::Shutdown, "the server is shutting down"));
        }
        self.judge_command(raw, command)?;
        if command == Command::Flush {
            if raw.offset != 0 || raw.length != 0 {
                return Err((ErrorCode::Invalid, "a flush has no offset and no length"));
            }
        } else {
            self.judge_range(raw, command)?;
        }
        Ok(self.sound(raw, command))
    }

    #[inline]
    fn judge_command(&self, raw: &RawRequest, command: Command) -> Result<(), Rejection> {
        let features = self.limits.features;
        let mut flags = self.limits.command_flags;
        let needed = match command {
            Command::Read => {
                flags = flags.with_if(self.style != ReplyStyle::Simple, CommandFlags::DF);
                TransmissionFlags::NONE
            }
            Command::Write => {
                let extended = self.style == ReplyStyle::Extended;
                if extended && raw.flags & CommandFlags::PAYLOAD_LEN.0 == 0 {
                    return Err((ErrorCode::Invalid, "a write without the payload flag"));
                }
                flags = flags.with_if(extended, CommandFlags::PAYLOAD_LEN);
                TransmissionFlags::NONE
            }
            Command::Flush => TransmissionFlags::SEND_FLUSH,
            Command::Trim => TransmissionFlags::SEND_TRIM,
            Command::Cache => TransmissionFlags::SEND_CACHE,
            Command::WriteZeroes => {
                let fast = features.contains(TransmissionFlags::SEND_FAST_ZERO);
                flags = flags.union(CommandFlags::NO_HOLE).with_if(fast, CommandFlags::FAST_ZERO);
                TransmissionFlags::SEND_WRITE_ZEROES
            }
            Command::BlockStatus => {
                if !self.limits.allocation {
                    return Err((ErrorCode::Invalid, "no metadata context was selected"));
                }
                flags = flags.union(CommandFlags::REQ_ONE);
                TransmissionFlags::NONE
            }
            Command::Disconnect => TransmissionFlags::NONE,
        };
        if command.modifies() && features.contains(TransmissionFlags::READ_ONLY) {
            return Err((ErrorCode::NotPermitted, "the export is read-only"));
        }
        if !features.contains(needed) {
            return Err((ErrorCode::Invalid, "the export does not offer this command"));
        }
        if raw.flags & !flags.0 != 0 {
            return Err((ErrorCode::Invalid, "a flag that this command does not have"));
        }
        Ok(())
    }

    #[inline]
    fn judge_range(&self, raw: &RawRequest, command: Command) -> Result<(), Rejection> {
        if raw.length == 0 {
            return Err((ErrorCode::Invalid, "the length is zero"));
        }
        let inside =
            raw.offset.checked_add(raw.length).is_some_and(|e| e <= self.limits.size_bytes);
        if !inside {
            let code = match command {
                Command::Write | Command::WriteZeroes => ErrorCode::NoSpace,
                _ => ErrorCode::Invalid,
            };
            return Err((code, "the range ends beyond the export"));
        }
        if (raw.offset | raw.length) & self.limits.alignment_mask != 0 {
            return Err((ErrorCode::Invalid, "not aligned to the minimum block size"));
        }
        if raw.length > self.limits.payload_bytes_max {
            match command {
                Command::Read if self.style != ReplyStyle::Simple => {
                    return Err((ErrorCode::Overflow, "longer than the maximum payload"));
                }
                Command::Read | Command::Write => {
                    return Err((ErrorCode::Invalid, "longer than the maximum payload"));
                }
                _ => {}
            }
        }
        Ok(())
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

    /// Answers a bad request, once its payload is out of the way.
    #[cold]
    fn reject(
        &mut self,
        raw: &RawRequest,
        payload: u64,
        error: Rejection,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Event {
        // With extended headers the client knows the limit and has no excuse; otherwise up to
        // 32 MiB are not held against it, whatever was advertised.
        let discard_max = match self.style {
            ReplyStyle::Extended => self.limits.payload_bytes_max,
            _ => self.limits.payload_bytes_max.max(u64::from(PAYLOAD_BYTES_DEFAULT)),
        };
        if payload > discard_max {
            return self.close(CloseReason::PayloadTooLarge(payload));
        }
        // An unknown command is answered like one without a payload.
        let command = Command::from_u16(raw.command).unwrap_or(Command::Flush);
        let request = self.sound(raw, command);
        self.state = State::Discard { left: payload, request, error };
        self.discard(input, out)
    }

    #[cold]
    fn discard(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Event {
        let State::Discard { left, request, error, .. } = &mut self.state else {
            return Event::NeedInput;
        };
        let take = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
        *input = &input[take..];
        *left -= take as u64;
        if *left > 0 {
            return Event::NeedInput;
        }
        let (request, (code, message)) = (*request, *error);
        self.state = State::Header;
        self.style.error_with_message(&request, code, message, out);
        Event::Rejected(request.cookie, code)
    }
}
