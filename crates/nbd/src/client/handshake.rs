//! The client's side of the handshake. It sends one option at a time; each reply decides the next
//! option.

use super::error::ClientError;
use super::transmission::Transmission;
use crate::export::BlockSizes;
use crate::style::ReplyStyle;
use crate::wire::{
    BASE_ALLOCATION, ClientFlags, Fields, GREETING_MAGIC, HandshakeFlags, OLDSTYLE_MAGIC,
    OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_BYTES_DEFAULT, TransmissionFlags, info, option,
    option_reply as rep,
};

/// What a client connects to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Goal {
    /// Use the export with this name.
    Connect(String),
    /// Describe the export with this name.
    Describe(String),
    /// List the exports.
    List,
}

/// Whether a client uses TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TlsWish {
    /// Never use TLS.
    #[default]
    Never,
    /// Use TLS if the server offers it. Does not protect against an attacker on the network path.
    IfOffered,
    /// Use TLS, or fail if the server does not offer it.
    Always,
}

/// What a client asks of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientConfig {
    /// See [`Goal`].
    pub goal: Goal,
    /// See [`TlsWish`].
    pub tls: TlsWish,
    /// The best reply style to request; the server may support only a simpler one.
    pub best_style: ReplyStyle,
    /// Whether to ask for `base:allocation`.
    pub allocation: bool,
    /// Maximum number of requests in flight.
    pub depth_max: u32,
}

impl ClientConfig {
    /// A configuration for using the export called `name`, without TLS, with the best reply style
    /// that the server offers and at most 128 requests in flight.
    pub fn connect(name: impl Into<String>) -> ClientConfig {
        ClientConfig {
            goal: Goal::Connect(name.into()),
            tls: TlsWish::Never,
            best_style: ReplyStyle::Extended,
            allocation: true,
            depth_max: 128,
        }
    }
}

/// An export as its server describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteExport {
    /// The canonical name, or the requested name if the server sent none.
    pub name: String,
    /// A one-line description for people.
    pub description: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The features it supports.
    pub features: TransmissionFlags,
    /// Its block sizes; 512 bytes, 4 KiB and 32 MiB (minimum, preferred, maximum payload) if the
    /// server sent none.
    pub block_sizes: BlockSizes,
}

/// An entry of a server's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedExport {
    /// Its name.
    pub name: String,
    /// A one-line description for people.
    pub description: String,
}

/// What [`Handshake::receive`] found. Send `out` after every event.
#[derive(Debug)]
pub enum HandshakeEvent {
    /// No whole message is left. Keep the rest, and append more input to it.
    NeedInput,
    /// Run the TLS handshake, then call [`Handshake::tls_started`].
    StartTls,
    /// The transmission begins. The handshake is over.
    Ready(Box<Transmission>),
    /// The answer to [`Goal::Describe`]. The handshake is over; send `out` and close.
    Described(RemoteExport),
    /// The answer to [`Goal::List`]. The handshake is over; send `out` and close.
    Listed(Vec<ListedExport>),
    /// The handshake failed; send `out` and close.
    Failed(ClientError),
}

/// A session in its handshake.
#[derive(Debug)]
pub struct Handshake {
    config: ClientConfig,
    stage: Stage,
    style: ReplyStyle,
    no_zeroes: bool,
    context: Option<u32>,
    found: RemoteExport,
    described: bool,
    listed: Vec<ListedExport>,
    bytes_left: usize,
}

/// What the client waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Greeting,
    Reply(u32),
    ExportName,
    Tls,
    Over,
}

/// Maximum data length of a reply to an option, in bytes.
const REPLY_BYTES_MAX: usize = 64 << 10;
/// Maximum total length of the replies to all options, in bytes: room for a very long list.
const HANDSHAKE_BYTES_MAX: usize = 64 << 20;

impl Handshake {
    /// Begins a session. The server speaks first.
    pub fn start(config: ClientConfig) -> Handshake {
        let name = match &config.goal {
            Goal::Connect(name) | Goal::Describe(name) => name.clone(),
            Goal::List => String::new(),
        };
        let block_sizes = BlockSizes::new(512, 4096, PAYLOAD_BYTES_DEFAULT).unwrap_or_default();
        Handshake {
            config,
            stage: Stage::Greeting,
            style: ReplyStyle::Simple,
            no_zeroes: false,
            context: None,
            found: RemoteExport {
                name,
                description: String::new(),
                size_bytes: 0,
                features: TransmissionFlags::NONE,
                block_sizes,
            },
            described: false,
            listed: Vec::new(),
            bytes_left: HANDSHAKE_BYTES_MAX,
        }
    }

    /// Takes whole messages off the front of `input` and appends the bytes to send to `out`. The
    /// receive buffer must have room for a whole message: 65,556 bytes.
    pub fn receive(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> HandshakeEvent {
        loop {
            let step = match self.stage {
                Stage::Greeting => self.greeting(input, out),
                Stage::Reply(option) => self.reply(option, input, out),
                Stage::ExportName => self.export_name(input),
                Stage::Tls if input.is_empty() => return HandshakeEvent::StartTls,
                Stage::Tls => Err(ClientError::Protocol("plaintext after TLS was negotiated")),
                Stage::Over => Err(ClientError::Closed),
            };
            match step {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(error) => {
                    self.stage = Stage::Over;
                    return HandshakeEvent::Failed(error);
                }
            }
        }
    }

    /// Tells the session that TLS is established.
    pub fn tls_started(&mut self, out: &mut Vec<u8>) {
        if self.stage == Stage::Tls {
            self.after_tls(out);
        }
    }

    /// The error that results if the server closes its side now.
    pub fn end_of_input(&self) -> ClientError {
        match self.stage {
            // A server can refuse this option only by closing the connection.
            Stage::ExportName => ClientError::Refused {
                option: option::EXPORT_NAME,
                reply: rep::ERR_UNKNOWN,
                message: String::new(),
            },
            _ => ClientError::Closed,
        }
    }

    fn greeting(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Step {
        let mut fields = Fields(input);
        let Some(magic) = fields.u64() else { return NEED_INPUT };
        if magic != GREETING_MAGIC {
            return Err(ClientError::NotNbd);
        }
        match fields.u64() {
            None => return NEED_INPUT,
            Some(OPTION_MAGIC) => {}
            Some(OLDSTYLE_MAGIC) => {
                return Err(ClientError::TooOld("it uses oldstyle negotiation"));
            }
            Some(_) => return Err(ClientError::NotNbd),
        }
        let Some(flags) = fields.u16().map(HandshakeFlags) else { return NEED_INPUT };
        *input = fields.0;
        self.no_zeroes = flags.contains(HandshakeFlags::NO_ZEROES);
        let fixed = flags.contains(HandshakeFlags::FIXED_NEWSTYLE);
        let answer = ClientFlags::NONE
            .with_if(fixed, ClientFlags::FIXED_NEWSTYLE)
            .with_if(self.no_zeroes, ClientFlags::NO_ZEROES);
        out.extend_from_slice(&answer.0.to_be_bytes());
        if fixed {
            match self.config.tls {
                TlsWish::Never => self.after_tls(out),
                TlsWish::IfOffered | TlsWish::Always => self.ask(option::STARTTLS, &[], out),
            }
            return Ok(None);
        }
        if self.config.tls == TlsWish::Always {
            return Err(ClientError::TlsRefused);
        }
        match self.config.goal {
            Goal::Connect(_) => self.ask_export_name(out),
            _ => return Err(ClientError::TooOld("it can neither list nor describe exports")),
        }
        Ok(None)
    }

    fn after_tls(&mut self, out: &mut Vec<u8>) {
        match (&self.config.goal, self.config.best_style) {
            (Goal::List, _) => self.ask(option::LIST, &[], out),
            (_, ReplyStyle::Extended) => self.ask(option::EXTENDED_HEADERS, &[], out),
            (_, ReplyStyle::Structured) => self.ask(option::STRUCTURED_REPLY, &[], out),
            (_, ReplyStyle::Simple) => self.ask_for_export(out),
        }
    }

    fn after_style(&mut self, out: &mut Vec<u8>) {
        if !self.config.allocation || self.style == ReplyStyle::Simple {
            return self.ask_for_export(out);
        }
        let name = self.found.name.clone();
        let (name_bytes, query_bytes) = (name.len() as u32, BASE_ALLOCATION.len() as u32);
        let parts: [&[u8]; 5] = [
            &name_bytes.to_be_bytes(),
            name.as_bytes(),
            &1u32.to_be_bytes(),
            &query_bytes.to_be_bytes(),
            BASE_ALLOCATION.as_bytes(),
        ];
        self.ask(option::SET_META_CONTEXT, &parts, out);
    }

    fn ask_for_export(&mut self, out: &mut Vec<u8>) {
        let name = self.found.name.clone();
        let mut wanted = Vec::with_capacity(8);
        for word in [3, info::BLOCK_SIZE, info::NAME, info::DESCRIPTION] {
            wanted.extend_from_slice(&word.to_be_bytes());
        }
        let option = match self.config.goal {
            Goal::Connect(_) => option::GO,
            _ => option::INFO,
        };
        let name_bytes = name.len() as u32;
        self.ask(option, &[&name_bytes.to_be_bytes(), name.as_bytes(), &wanted], out);
    }

    fn ask_export_name(&mut self, out: &mut Vec<u8>) {
        let name = self.found.name.clone();
        put_option(option::EXPORT_NAME, &[name.as_bytes()], out);
        self.stage = Stage::ExportName;
    }

    fn ask(&mut self, option: u32, data: &[&[u8]], out: &mut Vec<u8>) {
        put_option(option, data, out);
        self.stage = Stage::Reply(option);
    }

    /// The answer to EXPORT_NAME has no magic.
    fn export_name(&mut self, input: &mut &[u8]) -> Step {
        let mut fields = Fields(input);
        let (Some(size), Some(flags)) = (fields.u64(), fields.u16()) else { return NEED_INPUT };
        if !self.no_zeroes && fields.bytes(124).is_none() {
            return NEED_INPUT;
        }
        *input = fields.0;
        self.found.size_bytes = size;
        self.found.features = TransmissionFlags(flags);
        Ok(Some(self.ready()))
    }

    fn reply(&mut self, option: u32, input: &mut &[u8], out: &mut Vec<u8>) -> Step {
        let mut fields = Fields(input);
        let (Some(magic), Some(of), Some(kind), Some(length)) =
            (fields.u64(), fields.u32(), fields.u32(), fields.u32())
        else {
            return NEED_INPUT;
        };
        if magic != OPTION_REPLY_MAGIC || of != option {
            return Err(ClientError::Protocol("a reply to an option that was not sent"));
        }
        let length = length as usize;
        if length > REPLY_BYTES_MAX || length + 20 > self.bytes_left {
            return Err(ClientError::Protocol("a reply to an option that is too long"));
        }
        let Some(data) = fields.bytes(length) else { return NEED_INPUT };
        self.bytes_left -= length + 20;
        *input = fields.0;
        if kind & rep::ERROR_BIT != 0 {
            return self.refused(option, kind, data, out);
        }
        match (option, kind) {
            (_, rep::ACK) => self.accepted(option, out),
            (option::LIST, rep::SERVER) => self.list_entry(data),
            (option::GO | option::INFO, rep::INFO) => self.information(data),
            (option::SET_META_CONTEXT, rep::META_CONTEXT) => {
                let mut fields = Fields(data);
                let id =
                    fields.u32().ok_or(ClientError::Protocol("a truncated metadata context"))?;
                if fields.0 == BASE_ALLOCATION.as_bytes() {
                    self.context = Some(id);
                }
                Ok(None)
            }
            _ => Err(ClientError::Protocol("an unexpected reply to an option")),
        }
    }

    fn accepted(&mut self, option: u32, out: &mut Vec<u8>) -> Step {
        match option {
            option::STARTTLS => {
                self.stage = Stage::Tls;
                return Ok(None);
            }
            option::EXTENDED_HEADERS => {
                self.style = ReplyStyle::Extended;
                self.after_style(out);
            }
            option::STRUCTURED_REPLY => {
                self.style = ReplyStyle::Structured;
                self.after_style(out);
            }
            option::SET_META_CONTEXT => self.ask_for_export(out),
            option::LIST => {
                put_option(option::ABORT, &[], out);
                self.stage = Stage::Over;
                let listed = core::mem::take(&mut self.listed);
                return Ok(Some(HandshakeEvent::Listed(listed)));
            }
            _ if !self.described => {
                return Err(ClientError::Protocol("an export was accepted but not described"));
            }
            option::INFO => {
                put_option(option::ABORT, &[], out);
                self.stage = Stage::Over;
                return Ok(Some(HandshakeEvent::Described(self.found.clone())));
            }
            _ => return Ok(Some(self.ready())),
        }
        Ok(None)
    }

    fn refused(&mut self, option: u32, reply: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        let hopeless = matches!(reply, rep::ERR_TLS_REQD | rep::ERR_SHUTDOWN);
        match option {
            option::STARTTLS if self.config.tls == TlsWish::Always => {
                put_option(option::ABORT, &[], out);
                return Err(ClientError::TlsRefused);
            }
            _ if hopeless => {}
            option::STARTTLS => {
                self.after_tls(out);
                return Ok(None);
            }
            option::EXTENDED_HEADERS => {
                self.ask(option::STRUCTURED_REPLY, &[], out);
                return Ok(None);
            }
            option::STRUCTURED_REPLY => {
                self.after_style(out);
                return Ok(None);
            }
            option::SET_META_CONTEXT => {
                self.context = None;
                self.ask_for_export(out);
                return Ok(None);
            }
            option::GO if reply == rep::ERR_UNSUP && self.style != ReplyStyle::Extended => {
                self.ask_export_name(out);
                return Ok(None);
            }
            _ => {}
        }
        put_option(option::ABORT, &[], out);
        let message = String::from_utf8_lossy(data).into_owned();
        Err(ClientError::Refused { option, reply, message })
    }

    fn list_entry(&mut self, data: &[u8]) -> Step {
        let mut fields = Fields(data);
        let name = fields.u32().and_then(|n| fields.bytes(usize::try_from(n).ok()?));
        let name = name.ok_or(ClientError::Protocol("an invalid entry in the list of exports"))?;
        self.listed.push(ListedExport {
            name: String::from_utf8_lossy(name).into_owned(),
            description: String::from_utf8_lossy(fields.0).into_owned(),
        });
        Ok(None)
    }

    fn information(&mut self, data: &[u8]) -> Step {
        let mut fields = Fields(data);
        let broken = ClientError::Protocol("invalid information about the export");
        match fields.u16() {
            Some(info::EXPORT) => {
                let (Some(size), Some(flags)) = (fields.u64(), fields.u16()) else {
                    return Err(broken);
                };
                self.found.size_bytes = size;
                self.found.features = TransmissionFlags(flags);
                self.described = true;
            }
            Some(info::NAME) => self.found.name = String::from_utf8_lossy(fields.0).into_owned(),
            Some(info::DESCRIPTION) => {
                self.found.description = String::from_utf8_lossy(fields.0).into_owned();
            }
            Some(info::BLOCK_SIZE) => {
                let (Some(minimum), Some(preferred), Some(payload_max)) =
                    (fields.u32(), fields.u32(), fields.u32())
                else {
                    return Err(broken);
                };
                self.found.block_sizes = BlockSizes::new(minimum, preferred, payload_max)
                    .map_err(|_| ClientError::Protocol("invalid block sizes"))?;
            }
            Some(_) => {}
            None => return Err(broken),
        }
        Ok(None)
    }

    fn ready(&mut self) -> HandshakeEvent {
        self.stage = Stage::Over;
        let (style, context) = (self.style, self.context);
        let depth_max = self.config.depth_max;
        let session = Transmission::new(self.found.clone(), style, context, depth_max);
        HandshakeEvent::Ready(Box::new(session))
    }
}

type Step = Result<Option<HandshakeEvent>, ClientError>;
const NEED_INPUT: Step = Ok(Some(HandshakeEvent::NeedInput));

fn put_option(option: u32, data: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = data.iter().map(|d| d.len()).sum();
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&(length as u32).to_be_bytes());
    for part in data {
        out.extend_from_slice(part);
    }
}
