//! A server over a vector of bytes, driven like a real one, and raw messages to send to it.

#![allow(dead_code)] // each test file uses its own part

use forebay_block::Volume;
use forebay_nbd::server::{
    CloseReason, Event, Handshake, HandshakeEvent, ServerConfig, Transmission,
};
use forebay_nbd::{
    BlockSizes, Command, CommandFlags, ErrorCode, ExportInfo, ReplyStyle, Request, StatusExtent,
    StatusFlags, TransmissionFlags,
};

pub const DISK_BYTES: u64 = 64 << 10;

/// How the server answers reads when chunks have been negotiated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadStyle {
    /// One chunk.
    Whole,
    /// 512-byte chunks, last one first; chunks of zeroes as holes.
    Shredded,
}

pub enum Phase {
    Handshake(Handshake),
    Transmission(Box<Transmission>),
    Closed(CloseReason),
}

/// A server that answers at once, or holds answers back to send them in reverse order.
pub struct MemoryServer {
    pub exports: Vec<ExportInfo>,
    pub phase: Phase,
    pub disk: Vec<u8>,
    pub out: Vec<u8>,
    pub read_style: ReadStyle,
    /// Whether answers are held back until the input is used up, then sent last first.
    pub reversed: bool,
    pub tls: bool,
    pub requests: Vec<Request>,
    pub rejected: Vec<ErrorCode>,
    held: Vec<Vec<u8>>,
    unread: Vec<u8>,
    writing: Option<(Request, usize)>,
}

/// An export with all features.
pub fn export(name: &str) -> ExportInfo {
    let mut export = ExportInfo::new(Volume(0), name, DISK_BYTES);
    export.description = format!("about {name}");
    export.features = TransmissionFlags::SEND_FLUSH
        | TransmissionFlags::SEND_FUA
        | TransmissionFlags::SEND_TRIM
        | TransmissionFlags::SEND_WRITE_ZEROES
        | TransmissionFlags::SEND_FAST_ZERO
        | TransmissionFlags::SEND_CACHE
        | TransmissionFlags::CAN_MULTI_CONN;
    export.allocation = true;
    export
}

/// An export whose blocks are 512 bytes and payloads at most 8 KiB.
pub fn strict_export(name: &str) -> ExportInfo {
    ExportInfo { block_sizes: BlockSizes::new(512, 4096, 8192).unwrap(), ..export(name) }
}

pub fn read_only_export(name: &str) -> ExportInfo {
    let export = export(name);
    ExportInfo { features: export.features | TransmissionFlags::READ_ONLY, ..export }
}

impl MemoryServer {
    pub fn new(config: ServerConfig, exports: Vec<ExportInfo>) -> MemoryServer {
        let mut out = Vec::new();
        let handshake = Handshake::start(config, &mut out);
        MemoryServer {
            exports,
            phase: Phase::Handshake(handshake),
            disk: vec![0; DISK_BYTES as usize],
            out,
            read_style: ReadStyle::Whole,
            reversed: false,
            tls: false,
            requests: Vec::new(),
            rejected: Vec::new(),
            held: Vec::new(),
            unread: Vec::new(),
            writing: None,
        }
    }

    /// A server past its handshake, whose greeting and option replies have been taken out.
    pub fn transmitting(style: ReplyStyle, export: ExportInfo) -> MemoryServer {
        let name = export.name.clone();
        let mut server = MemoryServer::new(ServerConfig::default(), vec![export]);
        server.feed(&client_flags(3));
        match style {
            ReplyStyle::Simple => {}
            ReplyStyle::Structured => server.feed(&option(8, &[])),
            ReplyStyle::Extended => server.feed(&option(11, &[])),
        }
        if style != ReplyStyle::Simple {
            server.feed(&option(10, &context_data(&name, &["base:allocation"])));
        }
        server.feed(&option(7, &go_data(&name, &[3])));
        assert!(matches!(server.phase, Phase::Transmission(_)));
        server.out.clear();
        server
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        let mut input = core::mem::take(&mut self.unread);
        input.extend_from_slice(bytes);
        let mut rest = &input[..];
        while self.step(&mut rest) {}
        self.unread = rest.to_vec();
        for held in self.held.drain(..).rev() {
            self.out.extend_from_slice(&held);
        }
    }

    /// Closes the client's side.
    pub fn end_of_input(&mut self) -> CloseReason {
        let unread = self.unread.len();
        match &mut self.phase {
            Phase::Handshake(handshake) => handshake.end_of_input(unread),
            Phase::Transmission(session) => session.end_of_input(unread),
            Phase::Closed(reason) => *reason,
        }
    }

    pub fn take_out(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.out)
    }

    pub fn closed(&self) -> Option<CloseReason> {
        match self.phase {
            Phase::Closed(reason) => Some(reason),
            _ => None,
        }
    }

    /// Handles one event. Returns false when nothing more can be done.
    fn step(&mut self, rest: &mut &[u8]) -> bool {
        match &mut self.phase {
            Phase::Closed(_) => false,
            Phase::Handshake(handshake) => {
                match handshake.receive(rest, &self.exports[..], &mut self.out) {
                    HandshakeEvent::NeedInput => return false,
                    HandshakeEvent::Answered => {}
                    HandshakeEvent::StartTls => {
                        self.tls = true;
                        handshake.tls_started();
                        return false;
                    }
                    HandshakeEvent::Ready(session) => self.phase = Phase::Transmission(session),
                    HandshakeEvent::Close(reason) => self.phase = Phase::Closed(reason),
                }
                true
            }
            Phase::Transmission(session) => match session.receive(rest, &mut self.out) {
                Event::NeedInput => false,
                Event::Request(request) => {
                    self.requests.push(request);
                    if request.payload_bytes() > 0 {
                        self.writing = Some((request, request.offset as usize));
                    } else {
                        self.answer(request);
                    }
                    true
                }
                Event::Payload(missing) => {
                    if rest.is_empty() {
                        return false;
                    }
                    let bytes = session.take_payload(rest);
                    let (request, at) = self.writing.as_mut().unwrap();
                    self.disk[*at..*at + bytes.len()].copy_from_slice(bytes);
                    *at += bytes.len();
                    if bytes.len() as u64 == missing {
                        let request = *request;
                        self.answer(request);
                    }
                    true
                }
                Event::Rejected(_, code) => {
                    self.rejected.push(code);
                    true
                }
                Event::Close(reason) => {
                    self.phase = Phase::Closed(reason);
                    false
                }
            },
        }
    }

    fn answer(&mut self, request: Request) {
        let Phase::Transmission(session) = &self.phase else { return };
        let style = session.reply_style();
        let mut reply = Vec::new();
        let range = request.offset as usize..(request.offset + request.length) as usize;
        match request.command {
            Command::Read => self.answer_read(style, &request, &mut reply),
            Command::Trim | Command::WriteZeroes => {
                self.disk[range].fill(0);
                reply.extend_from_slice(&style.done(&request));
            }
            Command::BlockStatus => {
                let extents = self.disk[range].chunks(512).map(|chunk| StatusExtent {
                    length: chunk.len() as u64,
                    flags: if is_zero(chunk) { StatusFlags::HOLE_ZERO } else { StatusFlags::NONE },
                });
                style.chunks().unwrap().block_status(&request, extents, &mut reply);
            }
            _ => reply.extend_from_slice(&style.done(&request)),
        }
        if self.reversed {
            self.held.push(reply);
        } else {
            self.out.extend_from_slice(&reply);
        }
    }

    fn answer_read(&self, style: ReplyStyle, request: &Request, reply: &mut Vec<u8>) {
        let data = &self.disk[request.offset as usize..][..request.length as usize];
        let whole = self.read_style == ReadStyle::Whole || request.flags.contains(CommandFlags::DF);
        let Some(chunks) = style.chunks().filter(|_| !whole) else {
            reply.extend_from_slice(&style.data(request));
            reply.extend_from_slice(data);
            return;
        };
        for (index, piece) in data.chunks(512).enumerate().rev() {
            let offset = request.offset + index as u64 * 512;
            if is_zero(piece) {
                let length = piece.len() as u32;
                reply.extend_from_slice(&chunks.hole(request, offset, length, index == 0));
            } else {
                let length = piece.len() as u64;
                reply.extend_from_slice(&chunks.data(request, offset, length, index == 0));
                reply.extend_from_slice(piece);
            }
        }
    }
}

pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| b == 0)
}

// Messages as a client sends them, built here byte by byte, independently of the library.

pub fn client_flags(flags: u32) -> Vec<u8> {
    flags.to_be_bytes().to_vec()
}

pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

pub fn go_data(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|w| data.extend_from_slice(&w.to_be_bytes()));
    data
}

pub fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend_from_slice(&(query.len() as u32).to_be_bytes());
        data.extend_from_slice(query.as_bytes());
    }
    data
}

pub fn compact(command: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

pub fn extended(command: u16, flags: u16, cookie: u64, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = 0x21e4_1c71u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

/// A reply to an option: the option, the reply type, the data.
pub type OptionReply = (u32, u32, Vec<u8>);

/// Parses what a server sent during the handshake, without the greeting.
pub fn option_replies(mut bytes: &[u8]) -> Vec<OptionReply> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], 0x0003_e889_0455_65a9u64.to_be_bytes());
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let length = word(16) as usize;
        replies.push((word(8), word(12), bytes[20..20 + length].to_vec()));
        bytes = &bytes[20 + length..];
    }
    replies
}

/// A reply of the transmission phase: cookie, whether it is the last chunk, error, payload kind
/// (`None` for simple replies), payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub cookie: u64,
    pub last: bool,
    pub kind: Option<u16>,
    pub error: u32,
    pub payload: Vec<u8>,
}

/// Parses what a server sent in the transmission phase. `read_bytes` is the length of the data that
/// follows a successful simple reply.
pub fn replies(mut bytes: &[u8], read_bytes: usize) -> Vec<Reply> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        let half = |at: usize| u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap());
        let (header, length) = match word(0) {
            0x6744_6698 => {
                let error = word(4);
                let length = if error == 0 { read_bytes } else { 0 };
                let payload = bytes[16..16 + length].to_vec();
                replies.push(Reply { cookie: long(8), last: true, kind: None, error, payload });
                bytes = &bytes[16 + length..];
                continue;
            }
            0x668e_33ef => (20, word(16) as usize),
            0x6e8a_278c => (32, long(24) as usize),
            magic => panic!("no reply begins with {magic:#x}"),
        };
        let payload = bytes[header..header + length].to_vec();
        let kind = half(6);
        let error = if kind & 0x8000 != 0 { word(header) } else { 0 };
        let last = half(4) == 1;
        replies.push(Reply { cookie: long(8), last, kind: Some(kind), error, payload });
        bytes = &bytes[header + length..];
    }
    replies
}
