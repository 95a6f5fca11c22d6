//! Entry points for fuzzers. They feed arbitrary bytes to a session, check the invariants that must
//! hold whatever a peer sends, and panic if one does not.

use forebay_block::Volume;

use crate::client::{self, ClientConfig, ClientEvent, Goal, TlsWish};
use crate::export::{BlockSizes, ExportInfo};
use crate::request::Request;
use crate::server::{
    Event, Handshake, HandshakeEvent, ListPolicy, ServerConfig, TlsPolicy, Transmission,
};
use crate::style::ReplyStyle;
use crate::uri::NbdUri;
use crate::wire::{Command, CommandFlags, TransmissionFlags};

const SIZE_BYTES: u64 = 1 << 20;
const STYLES: [ReplyStyle; 3] = [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended];

/// Fuzzes a whole session of the server half. The first byte chooses the configuration, the second
/// the size of the pieces in which the rest arrives. Returns whether the session received a
/// request.
pub fn fuzz_server(bytes: &[u8]) -> bool {
    let (Some(&choice), Some(&cut)) = (bytes.first(), bytes.get(1)) else { return false };
    let config = ServerConfig {
        tls: [TlsPolicy::Unavailable, TlsPolicy::Required, TlsPolicy::Selective]
            [usize::from(choice % 3)],
        list: if choice & 8 == 0 { ListPolicy::Open } else { ListPolicy::Closed },
        best_style: STYLES[usize::from(choice / 16 % 3)],
        ..ServerConfig::default()
    };
    let exports = exports();
    let mut out = Vec::new();
    let mut feed = Feed::new(&bytes[2..], cut);
    let mut session = Handshake::start(config, &mut out);
    let mut options = 0;
    loop {
        out.clear();
        let before = feed.unread().len();
        let mut unread = feed.unread();
        let event = session.receive(&mut unread, &exports[..], &mut out);
        let left = unread.len();
        assert!(left <= before && out.len() <= 3 * 8300);
        feed.keep(left);
        match event {
            HandshakeEvent::NeedInput => {
                assert!(left < 16);
                if !feed.more() {
                    let reason = session.end_of_input(left);
                    assert!(!reason.is_graceful());
                    return false;
                }
            }
            HandshakeEvent::Answered => options += 1,
            HandshakeEvent::StartTls => {
                assert!(config.tls != TlsPolicy::Unavailable && left == 0);
                session.tls_started();
            }
            HandshakeEvent::Ready(session) => return transmit(*session, feed),
            HandshakeEvent::Close(reason) => {
                let again = session.receive(&mut &[0; 99][..], &exports[..], &mut out);
                assert!(matches!(again, HandshakeEvent::Close(r) if r == reason));
                return false;
            }
        }
        assert!(options <= config.options_max);
    }
}

/// Fuzzes the transmission phase of the server half. The first byte chooses the export and the
/// style, the second the size of the pieces in which the rest arrives. Returns whether the session
/// received a request.
pub fn fuzz_transmission(bytes: &[u8]) -> bool {
    let (Some(&choice), Some(&cut)) = (bytes.first(), bytes.get(1)) else { return false };
    let export = exports()[usize::from(choice) % 3].clone();
    let style = STYLES[usize::from(choice / 4) % 3];
    let allocation = choice & 128 != 0 && export.allocation && style != ReplyStyle::Simple;
    transmit(Transmission::new(export, style, allocation), Feed::new(&bytes[2..], cut))
}

/// Fuzzes a whole session of the client half. The first byte chooses the configuration, the second
/// the size of the pieces in which the rest arrives. Returns whether a request was answered in
/// full.
pub fn fuzz_client(bytes: &[u8]) -> bool {
    let (Some(&choice), Some(&cut)) = (bytes.first(), bytes.get(1)) else { return false };
    let goals = [Goal::Connect("a".into()), Goal::Describe("a".into()), Goal::List];
    let config = ClientConfig {
        goal: goals[usize::from(choice % 4).min(2)].clone(),
        tls: [TlsWish::Never, TlsWish::IfOffered, TlsWish::Always]
            [usize::from(choice / 4 % 4).min(2)],
        best_style: STYLES[usize::from(choice / 16 % 3)],
        allocation: choice & 128 != 0,
        depth_max: 8,
    };
    let mut session = client::Handshake::start(config);
    let mut feed = Feed::new(&bytes[2..], cut);
    let mut out = Vec::new();
    loop {
        out.clear();
        let mut unread = feed.unread();
        let event = session.receive(&mut unread, &mut out);
        let left = unread.len();
        assert!(out.len() <= 8192);
        feed.keep(left);
        match event {
            client::HandshakeEvent::NeedInput if feed.more() => {}
            client::HandshakeEvent::StartTls => session.tls_started(&mut out),
            client::HandshakeEvent::Ready(session) => return receive_replies(*session, feed),
            _ => return false,
        }
    }
}

/// Fuzzes the address parser. Returns whether `text` is an address.
pub fn fuzz_uri(text: &str) -> bool {
    let Ok(uri) = text.parse::<NbdUri>() else { return false };
    assert_eq!(uri.to_string().parse(), Ok(uri));
    true
}

fn exports() -> [ExportInfo; 3] {
    let mut plain = ExportInfo::new(Volume(0), "a", SIZE_BYTES);
    plain.description = "plain".into();
    plain.features = TransmissionFlags(!TransmissionFlags::READ_ONLY.0);
    plain.allocation = true;
    let mut strict = ExportInfo { name: "b".into(), tls_required: true, ..plain.clone() };
    strict.block_sizes = BlockSizes::new(512, 512, 4096).unwrap_or_default();
    let read_only = ExportInfo {
        name: "c".into(),
        features: TransmissionFlags::READ_ONLY,
        allocation: false,
        ..plain.clone()
    };
    [plain, strict, read_only]
}

fn transmit(mut session: Transmission, mut feed: Feed<'_>) -> bool {
    let export = session.export().clone();
    let (mut out, mut requests) = (Vec::new(), 0);
    loop {
        out.clear();
        let mut unread = feed.unread();
        let event = session.receive(&mut unread, &mut out);
        let left = unread.len();
        assert!(out.len() <= 256);
        feed.keep(left);
        match event {
            Event::NeedInput => {
                assert!(left < 32);
                if !feed.more() {
                    session.end_of_input(left);
                    return requests > 0;
                }
            }
            Event::Request(request) => {
                check_request(&request, &export, session.reply_style());
                requests += 1;
            }
            Event::Payload(missing) => {
                assert!(
                    missing > 0 && missing <= u64::from(export.block_sizes.payload_bytes_max())
                );
                let mut unread = feed.unread();
                session.take_payload(&mut unread);
                let left = unread.len();
                feed.keep(left);
                if left == 0 && !feed.more() {
                    return requests > 0;
                }
            }
            Event::Rejected(..) => assert!(!out.is_empty()),
            Event::Close(reason) => {
                assert_eq!(session.receive(&mut &[0; 99][..], &mut out), Event::Close(reason));
                return requests > 0;
            }
        }
    }
}

/// Checks what the driver relies on.
fn check_request(request: &Request, export: &ExportInfo, style: ReplyStyle) {
    let read_only = export.features.contains(TransmissionFlags::READ_ONLY);
    assert!(!(read_only && request.command.modifies()));
    assert!(request.command != Command::Disconnect);
    let end = request.offset.checked_add(request.length).expect("validated ranges do not overflow");
    assert!(end <= export.advertised_bytes());
    assert_eq!(request.length == 0, request.command == Command::Flush);
    let minimum = u64::from(export.block_sizes.minimum_bytes());
    assert!(request.offset.is_multiple_of(minimum) && request.length.is_multiple_of(minimum));
    let payload_max = u64::from(export.block_sizes.payload_bytes_max());
    if matches!(request.command, Command::Read | Command::Write) {
        assert!(request.length <= payload_max);
    }
    assert!(!request.flags.contains(CommandFlags::PAYLOAD_LEN));
    if request.command == Command::BlockStatus {
        assert!(export.allocation && style.chunks().is_some());
    }
}

fn receive_replies(mut session: client::Transmission, mut feed: Feed<'_>) -> bool {
    let none = CommandFlags::NONE;
    let minimum = u64::from(session.export().block_sizes.minimum_bytes());
    let submit = |session: &mut client::Transmission, tag: u64| {
        let commands = [Command::Read, Command::BlockStatus, Command::Write, Command::Read];
        let command = commands[tag as usize % 4];
        let _ = session.submit(tag, command, none, tag % 4 * minimum, 8 * minimum);
    };
    (0..8).for_each(|tag| submit(&mut session, tag));
    let (mut events, mut done) = (0, 0);
    loop {
        let mut unread = feed.unread();
        let event = session.receive(&mut unread);
        let left = unread.len();
        feed.keep(left);
        match event {
            ClientEvent::NeedInput => {
                assert!(left < 48);
                if !feed.more() {
                    return done > 0;
                }
            }
            ClientEvent::Data { at, length, .. } | ClientEvent::Zeroes { at, length, .. } => {
                assert!(length > 0 && at + length <= 8 * minimum, "inside the read's buffer");
            }
            ClientEvent::Payload(_) => {
                let mut unread = feed.unread();
                session.take_payload(&mut unread);
                let left = unread.len();
                feed.keep(left);
                if left == 0 && !feed.more() {
                    return done > 0;
                }
            }
            ClientEvent::Extent { extent, .. } => assert!(extent.length > 0),
            ClientEvent::Done { tag, .. } => {
                done += 1;
                submit(&mut session, tag + 8);
            }
            ClientEvent::Failed(_) => return done > 0,
        }
        events += 1;
        assert!(events <= 8 * feed.bytes.len() + 64, "every event consumes input");
    }
}

/// Bytes that arrive in pieces.
struct Feed<'a> {
    bytes: &'a [u8],
    start: usize,
    end: usize,
    cut: usize,
}

impl<'a> Feed<'a> {
    fn new(bytes: &'a [u8], cut: u8) -> Self {
        Feed { bytes, start: 0, end: 0, cut: usize::from(cut) + 1 }
    }
    fn unread(&self) -> &'a [u8] {
        &self.bytes[self.start..self.end]
    }
    fn keep(&mut self, left: usize) {
        self.start = self.end - left;
    }
    fn more(&mut self) -> bool {
        let end = (self.end + self.cut).min(self.bytes.len());
        core::mem::replace(&mut self.end, end) < end
    }
}
