//! The fixed newstyle handshake: flags, then options until an export is chosen.

use super::close::CloseReason;
use super::options::{ContextQueries, InfoRequest, put_info, put_reply, put_server};
use super::reply::ALLOCATION_CONTEXT_ID;
use super::transmission::Transmission;
use crate::export::{ExportInfo, Exports};
use crate::style::ReplyStyle;
use crate::wire::{
    BASE_ALLOCATION, ClientFlags, Fields, GREETING_MAGIC, HandshakeFlags, OPTION_MAGIC,
    STRING_BYTES_MAX, clipped, option, option_reply as rep, protocol_string,
};

/// How the server treats TLS on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TlsPolicy {
    /// The server does not offer TLS; it refuses STARTTLS.
    #[default]
    Unavailable,
    /// Until TLS is active, the server refuses every option except STARTTLS and ABORT.
    Required,
    /// TLS is optional, except for exports that require it.
    Selective,
}

/// Whether clients may list the exports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ListPolicy {
    /// Clients may list the exports.
    #[default]
    Open,
    /// Clients may not list the exports; they must know the name of one.
    Closed,
}

/// What a server offers during the handshake, and its limits on what clients send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerConfig {
    /// See [`TlsPolicy`].
    pub tls: TlsPolicy,
    /// See [`ListPolicy`].
    pub list: ListPolicy,
    /// The best reply style to offer; clients may choose a simpler one.
    pub best_style: ReplyStyle,
    /// Maximum number of options; the server closes the session of a client that sends more.
    pub options_max: u32,
    /// Maximum total length of options in bytes, headers included; the server closes the session of
    /// a client that sends more.
    pub option_bytes_max: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            tls: TlsPolicy::Unavailable,
            list: ListPolicy::Open,
            best_style: ReplyStyle::Extended,
            options_max: 256,
            option_bytes_max: 64 << 20,
        }
    }
}

/// What [`Handshake::receive`] found.
#[derive(Debug)]
pub enum HandshakeEvent {
    /// No whole message is left. Keep the rest (at most 15 bytes), and append more input to it.
    NeedInput,
    /// An option was answered: send `out`, then continue. (A driver that sends before it continues
    /// holds at most one option's answer, however many options the client has queued.)
    Answered,
    /// Send `out`, run the TLS handshake on the connection, call [`Handshake::tls_started`], and
    /// continue with the decrypted stream. If TLS fails, close the connection.
    StartTls,
    /// An export was chosen: send `out` and continue with the transmission. The handshake is over.
    Ready(Box<Transmission>),
    /// The session is over; send `out` before closing.
    Close(CloseReason),
}

/// A session in its handshake.
#[derive(Debug)]
pub struct Handshake {
    config: ServerConfig,
    state: State,
    client: ClientFlags,
    style: ReplyStyle,
    /// The export for which `base:allocation` was selected.
    allocation_of: Option<String>,
    tls_active: bool,
    shutting_down: bool,
    options_left: u32,
    option_bytes_left: u64,
    data: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    ClientFlags,
    Option,
    Data { option: u32, length: usize },
    Skip { option: u32, left: u64, answer: u32 },
    Tls,
    Closed(CloseReason),
}

/// Maximum length of option data that the server parses, in bytes. Enough for a name and a dozen
/// queries of maximum length.
const DATA_BYTES_MAX: usize = 64 << 10;

impl Handshake {
    /// Begins a session and appends the greeting to `out`.
    pub fn start(config: ServerConfig, out: &mut Vec<u8>) -> Handshake {
        let flags = HandshakeFlags::FIXED_NEWSTYLE | HandshakeFlags::NO_ZEROES;
        out.extend_from_slice(&GREETING_MAGIC.to_be_bytes());
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&flags.0.to_be_bytes());
        Handshake {
            config,
            state: State::ClientFlags,
            client: ClientFlags::NONE,
            style: ReplyStyle::Simple,
            allocation_of: None,
            tls_active: false,
            shutting_down: false,
            options_left: config.options_max,
            option_bytes_left: config.option_bytes_max,
            data: Vec::new(),
        }
    }

    /// Takes the next message off the front of `input` and appends the answer to `out`.
    pub fn receive(
        &mut self,
        input: &mut &[u8],
        exports: &(impl Exports + ?Sized),
        out: &mut Vec<u8>,
    ) -> HandshakeEvent {
        loop {
            match self.state {
                State::Closed(reason) => return HandshakeEvent::Close(reason),
                State::Tls => {
                    if input.is_empty() {
                        return HandshakeEvent::StartTls;
                    }
                    return self.close(CloseReason::PlaintextAfterStartTls);
                }
                State::ClientFlags => {
                    let mut fields = Fields(input);
                    let Some(flags) = fields.u32() else { return HandshakeEvent::NeedInput };
                    *input = fields.0;
                    self.client = ClientFlags(flags);
                    let known = ClientFlags::FIXED_NEWSTYLE | ClientFlags::NO_ZEROES;
                    if self.client.without(known) != ClientFlags::NONE {
                        return self.close(CloseReason::ClientFlags(flags));
                    }
                    self.state = State::Option;
                }
                State::Option => {
                    if let Some(event) = self.option_header(input) {
                        return event;
                    }
                }
                State::Skip { option, left, answer } => {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    *input = &input[take..];
                    let left = left - take as u64;
                    self.state = State::Skip { option, left, answer };
                    if left > 0 {
                        return HandshakeEvent::NeedInput;
                    }
                    self.state = State::Option;
                    let message = refusal(answer).as_bytes();
                    put_reply(option, answer, &[message], out);
                    return HandshakeEvent::Answered;
                }
                State::Data { option, length } => {
                    let take = (length - self.data.len()).min(input.len());
                    self.data.extend_from_slice(&input[..take]);
                    *input = &input[take..];
                    if self.data.len() < length {
                        return HandshakeEvent::NeedInput;
                    }
                    self.state = State::Option;
                    let data = core::mem::take(&mut self.data);
                    let event = self.answer(option, &data, exports, out);
                    self.data = data;
                    self.data.clear();
                    if let (State::Tls, false) = (self.state, input.is_empty()) {
                        return self.close(CloseReason::PlaintextAfterStartTls);
                    }
                    return event;
                }
            }
        }
    }

    /// Tells the session that TLS is established. The session discards everything negotiated
    /// before.
    pub fn tls_started(&mut self) {
        if let State::Tls = self.state {
            self.tls_active = true;
            self.style = ReplyStyle::Simple;
            self.allocation_of = None;
            self.state = State::Option;
        }
    }

    /// Makes the session refuse every later option except ABORT because the server is shutting
    /// down.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Tells the session that the client closed its side while `unread` bytes were left.
    pub fn end_of_input(&mut self, unread: usize) -> CloseReason {
        let reason = match self.state {
            State::Closed(reason) => return reason,
            State::ClientFlags | State::Option if unread == 0 => CloseReason::EndOfInput,
            _ => CloseReason::Truncated(unread + self.data.len()),
        };
        self.close(reason);
        reason
    }

    fn close(&mut self, reason: CloseReason) -> HandshakeEvent {
        self.state = State::Closed(reason);
        HandshakeEvent::Close(reason)
    }

    /// Reads an option's header and decides whether to parse its data or to skip it and answer with
    /// an error.
    fn option_header(&mut self, input: &mut &[u8]) -> Option<HandshakeEvent> {
        let mut fields = Fields(input);
        let (Some(magic), Some(option), Some(length)) = (fields.u64(), fields.u32(), fields.u32())
        else {
            return Some(HandshakeEvent::NeedInput);
        };
        if magic != OPTION_MAGIC {
            return Some(self.close(CloseReason::OptionMagic(magic)));
        }
        *input = fields.0;
        let cost = 16 + u64::from(length);
        if self.options_left == 0 || cost > self.option_bytes_left {
            return Some(self.close(CloseReason::OptionFlood));
        }
        self.options_left -= 1;
        self.option_bytes_left -= cost;
        if option == option::EXPORT_NAME {
            if length as usize > STRING_BYTES_MAX {
                return Some(self.close(CloseReason::ExportRefused));
            }
        } else if !self.client.contains(ClientFlags::FIXED_NEWSTYLE) {
            return Some(self.close(CloseReason::NotFixedNewstyle));
        }
        let left = u64::from(length);
        self.state = match self.refused_outright(option, length) {
            Some(answer) => State::Skip { option, left, answer },
            None => State::Data { option, length: length as usize },
        };
        None
    }

    /// The error for an option that the server can refuse without parsing its data.
    fn refused_outright(&self, option: u32, length: u32) -> Option<u32> {
        use option::*;
        if matches!(option, EXPORT_NAME) {
            return None;
        }
        if option == ABORT {
            return (length as usize > DATA_BYTES_MAX).then_some(rep::ERR_TOO_BIG);
        }
        if self.config.tls == TlsPolicy::Required && !self.tls_active && option != STARTTLS {
            return Some(rep::ERR_TLS_REQD);
        }
        if self.shutting_down {
            return Some(rep::ERR_SHUTDOWN);
        }
        match option {
            LIST | STARTTLS | STRUCTURED_REPLY | EXTENDED_HEADERS if length > 0 => {
                Some(rep::ERR_INVALID)
            }
            LIST if self.config.list == ListPolicy::Closed => Some(rep::ERR_POLICY),
            STARTTLS if self.tls_active => Some(rep::ERR_INVALID),
            STARTTLS if self.config.tls == TlsPolicy::Unavailable => Some(rep::ERR_POLICY),
            STRUCTURED_REPLY if self.config.best_style == ReplyStyle::Simple => {
                Some(rep::ERR_UNSUP)
            }
            STRUCTURED_REPLY if self.style == ReplyStyle::Extended => {
                Some(rep::ERR_EXT_HEADER_REQD)
            }
            EXTENDED_HEADERS if self.config.best_style != ReplyStyle::Extended => {
                Some(rep::ERR_UNSUP)
            }
            LIST_META_CONTEXT | SET_META_CONTEXT
                if self.config.best_style == ReplyStyle::Simple =>
            {
                Some(rep::ERR_UNSUP)
            }
            LIST | STARTTLS | STRUCTURED_REPLY | EXTENDED_HEADERS => None,
            INFO | GO | LIST_META_CONTEXT | SET_META_CONTEXT => {
                (length as usize > DATA_BYTES_MAX).then_some(rep::ERR_TOO_BIG)
            }
            _ => Some(rep::ERR_UNSUP),
        }
    }

    fn answer(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &(impl Exports + ?Sized),
        out: &mut Vec<u8>,
    ) -> HandshakeEvent {
        match option {
            option::EXPORT_NAME => return self.export_name(data, exports, out),
            option::GO | option::INFO => return self.info_or_go(option, data, exports, out),
            option::ABORT => {
                put_reply(option, rep::ACK, &[], out);
                return self.close(CloseReason::Aborted);
            }
            option::STARTTLS => {
                put_reply(option, rep::ACK, &[], out);
                self.state = State::Tls;
                return HandshakeEvent::StartTls;
            }
            option::LIST => {
                exports.list(&mut |export| {
                    if self.tls_active || !export.tls_required {
                        put_server(option, export, out);
                    }
                });
                put_reply(option, rep::ACK, &[], out);
            }
            option::STRUCTURED_REPLY => {
                self.style = ReplyStyle::Structured;
                put_reply(option, rep::ACK, &[], out);
            }
            option::EXTENDED_HEADERS => {
                self.style = ReplyStyle::Extended;
                put_reply(option, rep::ACK, &[], out);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                let answer = self.meta_context(option, data, exports, out);
                let message: &[u8] =
                    if answer == rep::ACK { &[] } else { refusal(answer).as_bytes() };
                put_reply(option, answer, &[message], out);
            }
            _ => put_reply(option, rep::ERR_UNSUP, &[refusal(rep::ERR_UNSUP).as_bytes()], out),
        }
        HandshakeEvent::Answered
    }

    fn export_name(
        &mut self,
        data: &[u8],
        exports: &(impl Exports + ?Sized),
        out: &mut Vec<u8>,
    ) -> HandshakeEvent {
        if self.style == ReplyStyle::Extended {
            return self.close(CloseReason::ExportNameWithExtendedHeaders);
        }
        let tls_missing = self.config.tls == TlsPolicy::Required && !self.tls_active;
        let found = protocol_string(data)
            .and_then(|name| self.find(name, exports).ok().map(|export| (name, export)));
        match found {
            Some((name, export))
                if !tls_missing && !self.shutting_down && exports.admit(&export) =>
            {
                let flags = export.transmission_flags(self.style != ReplyStyle::Simple);
                out.extend_from_slice(&export.advertised_bytes().to_be_bytes());
                out.extend_from_slice(&flags.0.to_be_bytes());
                if !self.client.contains(ClientFlags::NO_ZEROES) {
                    out.extend_from_slice(&[0; 124]);
                }
                self.ready(name, export)
            }
            _ => self.close(CloseReason::ExportRefused),
        }
    }

    fn info_or_go(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &(impl Exports + ?Sized),
        out: &mut Vec<u8>,
    ) -> HandshakeEvent {
        let Some(request) = InfoRequest::parse(data) else {
            put_reply(option, rep::ERR_INVALID, &[refusal(rep::ERR_INVALID).as_bytes()], out);
            return HandshakeEvent::Answered;
        };
        match self.find(request.name, exports) {
            Ok(export) if option == option::GO && !exports.admit(&export) => {
                let text =
                    format!("\"{}\" has reached its limit of client connections", export.name);
                put_reply(option, rep::ERR_POLICY, &[clipped(&text, 4096).as_bytes()], out);
            }
            Ok(export) => {
                let flags = export.transmission_flags(self.style != ReplyStyle::Simple);
                put_info(option, &request, &export, flags, out);
                put_reply(option, rep::ACK, &[], out);
                if option == option::GO {
                    return self.ready(request.name, export);
                }
            }
            Err(rep::ERR_UNKNOWN) => {
                let text = format!("there is no export \"{}\"", request.name);
                put_reply(option, rep::ERR_UNKNOWN, &[clipped(&text, 4096).as_bytes()], out);
            }
            Err(answer) => put_reply(option, answer, &[refusal(answer).as_bytes()], out),
        }
        HandshakeEvent::Answered
    }

    /// Finds the export called `name`, or returns the error for INFO and GO.
    fn find(&self, name: &str, exports: &(impl Exports + ?Sized)) -> Result<ExportInfo, u32> {
        // Clients without TLS must not learn which of the hidden names exist.
        let hides = self.config.tls == TlsPolicy::Selective && !self.tls_active;
        match exports.lookup(name) {
            // (Where TLS is not offered, such an export does not exist.)
            Some(export) if self.tls_active || !export.tls_required => Ok(export),
            _ if hides => Err(rep::ERR_TLS_REQD),
            _ => Err(rep::ERR_UNKNOWN),
        }
    }

    /// Appends the replies that name contexts, and returns the type of the final reply, which the
    /// caller appends.
    fn meta_context(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &(impl Exports + ?Sized),
        out: &mut Vec<u8>,
    ) -> u32 {
        let select = option == option::SET_META_CONTEXT;
        if select {
            self.allocation_of = None; // this option replaces the selection, even if it fails
        }
        if self.style == ReplyStyle::Simple {
            return rep::ERR_INVALID;
        }
        let Some(asked) = ContextQueries::parse(data) else { return rep::ERR_INVALID };
        let Ok(export) = self.find(asked.export, exports) else { return rep::ERR_UNKNOWN };
        let matches = asked.queries().any(|q| q == BASE_ALLOCATION || (!select && q == "base:"));
        let all = !select && asked.count == 0;
        if export.allocation && (matches || all) {
            let id = if select { ALLOCATION_CONTEXT_ID } else { 0 };
            let data: [&[u8]; 2] = [&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()];
            put_reply(option, rep::META_CONTEXT, &data, out);
            if select {
                self.allocation_of = Some(asked.export.to_owned());
            }
        }
        rep::ACK
    }

    fn ready(&mut self, name: &str, export: ExportInfo) -> HandshakeEvent {
        let allocation = self.allocation_of.as_deref() == Some(name) && export.allocation;
        // This state machine accepts no more input: the transmission phase owns the stream.
        self.state = State::Closed(CloseReason::Disconnected);
        HandshakeEvent::Ready(Box::new(Transmission::new(export, self.style, allocation)))
    }
}

/// The message for people that goes with an error.
fn refusal(answer: u32) -> &'static str {
    match answer {
        rep::ERR_UNSUP => "this server does not support this option",
        rep::ERR_POLICY => "this server is configured not to allow this option",
        rep::ERR_INVALID => "this option is malformed, or not allowed at this point",
        rep::ERR_TLS_REQD => "TLS must be started first",
        rep::ERR_UNKNOWN => "there is no such export",
        rep::ERR_SHUTDOWN => "the server is shutting down",
        rep::ERR_TOO_BIG => "the option is too large",
        rep::ERR_EXT_HEADER_REQD => "extended headers are already in use",
        _ => "",
    }
}
