//! The client half talks to the server half, in memory, cut into fragments of any size. The results
//! must be those of the same operations on a plain array of bytes.

use crate::support::*;
use forebay_nbd::client::{
    ClientConfig, ClientError, ClientEvent, Goal, Handshake, HandshakeEvent, TlsWish, Transmission,
};
use forebay_nbd::server::{CloseReason, ListPolicy, ServerConfig, TlsPolicy};
use forebay_nbd::{
    Command, CommandFlags, ErrorCode, ExportInfo, ReplyStyle, StatusExtent, StatusFlags,
    TransmissionFlags,
};
use proptest::prelude::*;

/// The outcome of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Outcome {
    tag: u64,
    result: Result<(), ErrorCode>,
    data: Vec<u8>,
    extents: Vec<StatusExtent>,
}

struct Client {
    session: Box<Transmission>,
    unread: Vec<u8>,
    buffers: std::collections::HashMap<u64, (Vec<u8>, Vec<StatusExtent>)>,
    filling: Option<(u64, usize)>,
    outcomes: Vec<Outcome>,
    failure: Option<ClientError>,
}

impl Client {
    fn feed(&mut self, bytes: &[u8]) {
        let mut input = core::mem::take(&mut self.unread);
        input.extend_from_slice(bytes);
        let mut rest = &input[..];
        loop {
            match self.session.receive(&mut rest) {
                ClientEvent::NeedInput => break,
                ClientEvent::Data { tag, at, length } => {
                    let _ = length;
                    self.filling = Some((tag, at as usize));
                }
                ClientEvent::Payload(_) => {
                    if rest.is_empty() {
                        break;
                    }
                    let bytes = self.session.take_payload(&mut rest);
                    let (tag, at) = self.filling.unwrap();
                    self.buffers.get_mut(&tag).unwrap().0[at..at + bytes.len()]
                        .copy_from_slice(bytes);
                    self.filling = Some((tag, at + bytes.len()));
                }
                ClientEvent::Zeroes { tag, at, length } => {
                    let buffer = &mut self.buffers.get_mut(&tag).unwrap().0;
                    buffer[at as usize..(at + length) as usize].fill(0);
                }
                ClientEvent::Extent { tag, extent } => {
                    self.buffers.get_mut(&tag).unwrap().1.push(extent);
                }
                ClientEvent::Done { tag, result } => {
                    let (data, extents) = self.buffers.remove(&tag).unwrap();
                    self.outcomes.push(Outcome { tag, result, data, extents });
                }
                ClientEvent::Failed(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }
        self.unread = rest.to_vec();
    }

    /// Submits a request. Returns its bytes on the wire.
    fn submit(
        &mut self,
        tag: u64,
        command: Command,
        flags: CommandFlags,
        range: (u64, u64),
        payload: &[u8],
    ) -> Result<Vec<u8>, ClientError> {
        let header = self.session.submit(tag, command, flags, range.0, range.1)?;
        let size = if command == Command::Read { range.1 as usize } else { 0 };
        self.buffers.insert(tag, (vec![0xee; size], Vec::new()));
        Ok([&header[..], payload].concat())
    }
}

enum Met {
    Ready(Client),
    Event(HandshakeEvent),
}

/// Runs both handshakes against each other, `fragment` bytes at a time.
fn meet(config: ClientConfig, server: &mut MemoryServer, fragment: usize) -> Met {
    let mut handshake = Handshake::start(config);
    let mut unread: Vec<u8> = Vec::new();
    for _ in 0..100_000 {
        let arrived = server.out.len().min(fragment);
        unread.extend(server.out.drain(..arrived));
        let mut rest = &unread[..];
        let mut out = Vec::new();
        let event = handshake.receive(&mut rest, &mut out);
        unread = rest.to_vec();
        for piece in out.chunks(fragment) {
            server.feed(piece);
        }
        match event {
            HandshakeEvent::NeedInput if server.out.is_empty() && server.closed().is_some() => {
                return Met::Event(HandshakeEvent::Failed(handshake.end_of_input()));
            }
            HandshakeEvent::NeedInput => {}
            HandshakeEvent::StartTls => {
                assert!(server.tls, "both sides switch to TLS at the same point");
                let mut out = Vec::new();
                handshake.tls_started(&mut out);
                server.feed(&out);
            }
            HandshakeEvent::Ready(session) => {
                assert!(unread.is_empty());
                let buffers = Default::default();
                let (filling, failure) = (None, None);
                let outcomes = Vec::new();
                return Met::Ready(Client { session, unread, buffers, filling, outcomes, failure });
            }
            event => return Met::Event(event),
        }
    }
    panic!("the handshake does not end");
}

fn connect(config: ClientConfig, server: &mut MemoryServer, fragment: usize) -> Client {
    match meet(config, server, fragment) {
        Met::Ready(client) => client,
        Met::Event(event) => panic!("no transmission but {event:?}"),
    }
}

fn refused(config: ClientConfig, server: &mut MemoryServer) -> ClientError {
    match meet(config, server, 1 << 20) {
        Met::Event(HandshakeEvent::Failed(error)) => error,
        _ => panic!("the handshake succeeded"),
    }
}

fn styled(name: &str, style: ReplyStyle) -> ClientConfig {
    ClientConfig { best_style: style, ..ClientConfig::connect(name) }
}

const STYLES: [ReplyStyle; 3] = [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended];

#[derive(Clone, Debug)]
struct Step {
    command: Command,
    flags: CommandFlags,
    offset: u64,
    length: u64,
    fill: u8,
}

fn step() -> impl Strategy<Value = Step> {
    let commands = prop_oneof![
        3 => Just(Command::Read),
        3 => Just(Command::Write),
        1 => Just(Command::Flush),
        1 => Just(Command::Trim),
        1 => Just(Command::Cache),
        1 => Just(Command::WriteZeroes),
        1 => Just(Command::BlockStatus),
    ];
    (commands, 0u16..32, 0u64..DISK_BYTES, 1u64..9000, any::<u8>()).prop_map(
        |(command, flags, offset, length, fill)| {
            let length = length.min(DISK_BYTES - offset);
            let (offset, length) =
                if command == Command::Flush { (0, 0) } else { (offset, length) };
            let allowed = match command {
                Command::Read => CommandFlags::FUA | CommandFlags::DF,
                Command::WriteZeroes => {
                    CommandFlags::FUA | CommandFlags::NO_HOLE | CommandFlags::FAST_ZERO
                }
                Command::BlockStatus => CommandFlags::FUA | CommandFlags::REQ_ONE,
                _ => CommandFlags::FUA,
            };
            Step { command, flags: CommandFlags(flags & allowed.0), offset, length, fill }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every command in every reply style, in bursts, in fragments, answered in order or in
    /// reverse, in one chunk or many: data, zeroes and extents are those of an array of bytes.
    #[test]
    fn a_conversation_does_what_an_array_of_bytes_does(
        style in prop::sample::select(&STYLES[..]),
        shredded: bool,
        reversed: bool,
        fragments in prop::collection::vec(1usize..5000, 1..20),
        bursts in prop::collection::vec(prop::collection::vec(step(), 1..6), 1..8),
    ) {
        let mut server = MemoryServer::new(ServerConfig::default(), vec![export("disk")]);
        server.read_style = if shredded { ReadStyle::Shredded } else { ReadStyle::Whole };
        server.reversed = reversed;
        let mut client = connect(styled("disk", style), &mut server, fragments[0]);
        prop_assert_eq!(client.session.reply_style(), style);
        prop_assert_eq!(client.session.has_allocation(), style != ReplyStyle::Simple);
        let mut model = vec![0u8; DISK_BYTES as usize];
        let mut cuts = fragments.iter().copied().cycle();
        let mut tag = 0;
        for burst in bursts {
            let mut wire = Vec::new();
            let mut expected = Vec::new();
            for step in burst {
                let Step { command, mut flags, offset, length, fill } = step;
                if style == ReplyStyle::Simple {
                    if command == Command::BlockStatus { continue; }
                    flags = flags.without(CommandFlags::DF);
                }
                let payload: Vec<u8> = if command == Command::Write {
                    (0..length).map(|n| fill.wrapping_mul(n as u8 | 1)).collect()
                } else {
                    Vec::new()
                };
                tag += 1;
                wire.extend(client.submit(tag, command, flags, (offset, length), &payload).unwrap());
                // The server executes requests in order of arrival, so the model does too.
                let range = offset as usize..(offset + length) as usize;
                match command {
                    Command::Write => model[range].copy_from_slice(&payload),
                    Command::Trim | Command::WriteZeroes => model[range].fill(0),
                    Command::Read => expected.push((tag, model[range].to_vec())),
                    Command::BlockStatus => expected.push((tag, model[range].to_vec())),
                    _ => {}
                }
            }
            let mut wire = &wire[..];
            while !wire.is_empty() {
                let (head, tail) = wire.split_at(cuts.next().unwrap().min(wire.len()));
                server.feed(head);
                wire = tail;
            }
            let sent = server.take_out();
            let mut sent = &sent[..];
            while !sent.is_empty() {
                let (head, tail) = sent.split_at(cuts.next().unwrap().min(sent.len()));
                client.feed(head);
                sent = tail;
            }
            prop_assert_eq!(&client.failure, &None);
            prop_assert_eq!(client.session.in_flight().count(), 0);
            for outcome in client.outcomes.drain(..) {
                prop_assert_eq!(outcome.result, Ok(()));
                let Some((_, truth)) = expected.iter().find(|(tag, _)| *tag == outcome.tag) else {
                    continue;
                };
                if outcome.extents.is_empty() {
                    prop_assert_eq!(&outcome.data, truth);
                }
                let mut at = 0;
                for extent in outcome.extents {
                    let end = at + extent.length as usize;
                    prop_assert!(end <= truth.len());
                    if extent.flags == StatusFlags::HOLE_ZERO {
                        prop_assert!(is_zero(&truth[at..end]));
                    }
                    at = end;
                }
            }
        }
        let bye = client.session.disconnect();
        server.feed(&bye);
        prop_assert_eq!(server.closed(), Some(CloseReason::Disconnected));
        prop_assert_eq!(&server.disk, &model);
        prop_assert!(server.rejected.is_empty());
    }

    /// The handshake ends the same way however its bytes are split.
    #[test]
    fn fragments_do_not_change_a_handshake(fragment in 1usize..40, style in prop::sample::select(&STYLES[..])) {
        let mut server = MemoryServer::new(ServerConfig::default(), vec![export("disk")]);
        let client = connect(styled("disk", style), &mut server, fragment);
        let remote = client.session.export();
        prop_assert_eq!((remote.name.as_str(), remote.size_bytes), ("disk", DISK_BYTES));
        prop_assert_eq!(remote.description.as_str(), "about disk");
        prop_assert_eq!(remote.block_sizes, export("disk").block_sizes);
        prop_assert!(remote.features.contains(TransmissionFlags::CAN_MULTI_CONN));
    }
}

#[test]
fn a_client_settles_for_the_best_style_the_server_has() {
    for theirs in STYLES {
        for ours in STYLES {
            let config = ServerConfig { best_style: theirs, ..ServerConfig::default() };
            let mut server = MemoryServer::new(config, vec![export("disk")]);
            let client = connect(styled("disk", ours), &mut server, 1 << 20);
            assert_eq!(client.session.reply_style(), ours.min(theirs));
        }
    }
}

#[test]
fn an_export_that_does_not_exist_is_refused_with_its_name() {
    let mut server = MemoryServer::new(ServerConfig::default(), vec![export("disk")]);
    let error = refused(ClientConfig::connect("dsik"), &mut server);
    assert!(error.to_string().contains("there is no such export"), "{error}");
    assert!(error.to_string().contains("dsik"), "{error}");
    assert_eq!(server.closed(), Some(CloseReason::Aborted));
}

#[test]
fn exports_can_be_listed_and_described_unless_the_policy_forbids_it() {
    let exports = vec![export("a"), export("b")];
    let list = ClientConfig { goal: Goal::List, ..ClientConfig::connect("") };
    let mut server = MemoryServer::new(ServerConfig::default(), exports.clone());
    let Met::Event(HandshakeEvent::Listed(listed)) = meet(list.clone(), &mut server, 3) else {
        panic!("no list");
    };
    let names: Vec<_> = listed.iter().map(|e| (e.name.as_str(), e.description.as_str())).collect();
    assert_eq!(names, [("a", "about a"), ("b", "about b")]);
    assert_eq!(server.closed(), Some(CloseReason::Aborted));

    let closed = ServerConfig { list: ListPolicy::Closed, ..ServerConfig::default() };
    let mut server = MemoryServer::new(closed, exports.clone());
    assert!(matches!(refused(list, &mut server), ClientError::Refused { option: 3, .. }));

    let describe = ClientConfig { goal: Goal::Describe("b".into()), ..ClientConfig::connect("") };
    let mut server = MemoryServer::new(ServerConfig::default(), exports);
    let Met::Event(HandshakeEvent::Described(found)) = meet(describe, &mut server, 7) else {
        panic!("no description");
    };
    assert_eq!((found.name.as_str(), found.size_bytes), ("b", DISK_BYTES));
}

#[test]
fn tls_is_used_as_both_sides_wish() {
    use TlsPolicy::*;
    use TlsWish::*;
    for (policy, wish, expected) in [
        (Unavailable, Never, Ok(false)),
        (Unavailable, IfOffered, Ok(false)),
        (Unavailable, Always, Err(ClientError::TlsRefused)),
        (Selective, Never, Ok(false)),
        (Selective, IfOffered, Ok(true)),
        (Selective, Always, Ok(true)),
        (Required, IfOffered, Ok(true)),
        (Required, Always, Ok(true)),
    ] {
        let config = ServerConfig { tls: policy, ..ServerConfig::default() };
        let mut server = MemoryServer::new(config, vec![export("disk")]);
        let wishes = ClientConfig { tls: wish, ..ClientConfig::connect("disk") };
        match meet(wishes, &mut server, 1 << 20) {
            Met::Ready(_) => assert_eq!(Ok(server.tls), expected, "{policy:?} {wish:?}"),
            Met::Event(HandshakeEvent::Failed(error)) => assert_eq!(Err(error), expected),
            Met::Event(event) => panic!("{event:?}"),
        }
    }
    let config = ServerConfig { tls: Required, ..ServerConfig::default() };
    let mut server = MemoryServer::new(config, vec![export("disk")]);
    let error = refused(ClientConfig::connect("disk"), &mut server);
    assert!(error.to_string().contains("requires TLS"), "{error}");
}

/// A server that is older than this client: it speaks fixed newstyle but supports only EXPORT_NAME.
#[test]
fn a_server_without_go_is_reached_by_export_name() {
    let mut handshake = Handshake::start(ClientConfig::connect("disk"));
    let mut out = Vec::new();
    let mut greeting: &[u8] = b"NBDMAGICIHAVEOPT\0\x01";
    let mut receive = |bytes: &mut &[u8], out: &mut Vec<u8>| handshake.receive(bytes, out);
    assert!(matches!(receive(&mut greeting, &mut out), HandshakeEvent::NeedInput));
    assert_eq!(out, [&client_flags(1)[..], &option(11, &[])].concat());
    for asked in [11u32, 8, 7] {
        let mut reply = Vec::new();
        reply.extend_from_slice(&0x0003_e889_0455_65a9u64.to_be_bytes());
        reply.extend_from_slice(&asked.to_be_bytes());
        reply.extend_from_slice(&0x8000_0001u32.to_be_bytes());
        reply.extend_from_slice(&0u32.to_be_bytes());
        out.clear();
        assert!(matches!(receive(&mut &reply[..], &mut out), HandshakeEvent::NeedInput));
    }
    assert_eq!(out, option(1, b"disk"));
    // Without NO_ZEROES, 124 zero bytes follow.
    let mut answer = (1u64 << 20).to_be_bytes().to_vec();
    answer.extend_from_slice(&[0, 1]);
    answer.extend_from_slice(&[0; 124]);
    assert!(matches!(receive(&mut &answer[..133], &mut out), HandshakeEvent::NeedInput));
    let HandshakeEvent::Ready(session) = receive(&mut &answer[..], &mut out) else {
        panic!("not ready");
    };
    assert_eq!(session.export().size_bytes, 1 << 20);
    assert_eq!(session.reply_style(), ReplyStyle::Simple);
    // The server did not send block sizes, so the client uses sectors.
    assert_eq!(session.export().block_sizes.minimum_bytes(), 512);
}

#[test]
fn requests_the_server_would_refuse_are_not_sent() {
    let mut server = MemoryServer::new(ServerConfig::default(), vec![strict_export("disk")]);
    let mut client = connect(styled("disk", ReplyStyle::Structured), &mut server, 1 << 20);
    let none = CommandFlags::NONE;
    for (command, flags, range) in [
        (Command::Read, none, (100, 512)),
        (Command::Read, none, (0, 100)),
        (Command::Read, none, (0, 16384)),
        (Command::Read, none, (DISK_BYTES, 512)),
        (Command::Read, none, (u64::MAX - 511, 512)),
        (Command::Write, none, (0, 0)),
        (Command::Write, CommandFlags::DF, (0, 512)),
        (Command::Flush, none, (0, 512)),
        (Command::Disconnect, none, (0, 0)),
    ] {
        let error = client.submit(1, command, flags, range, &[]).unwrap_err();
        assert!(matches!(error, ClientError::Request(_)), "{command:?} {range:?}: {error}");
    }
    assert_eq!(client.session.in_flight().count(), 0);
}

#[test]
fn no_more_requests_are_in_flight_than_agreed_on() {
    let mut server = MemoryServer::new(ServerConfig::default(), vec![export("disk")]);
    let config = ClientConfig { depth_max: 2, ..ClientConfig::connect("disk") };
    let mut client = connect(config, &mut server, 1 << 20);
    let mut read = |tag| client.submit(tag, Command::Read, CommandFlags::NONE, (0, 512), &[]);
    let wire = [read(1).unwrap(), read(2).unwrap()].concat();
    assert_eq!(read(3), Err(ClientError::Full));
    server.feed(&wire);
    client.feed(&server.take_out());
    assert_eq!(client.outcomes.len(), 2);
    assert!(client.submit(3, Command::Read, CommandFlags::NONE, (0, 512), &[]).is_ok());
}

#[test]
fn an_error_reaches_the_client_with_its_message_and_only_its_request_fails() {
    for style in STYLES {
        let exports: Vec<ExportInfo> = vec![export("disk")];
        let mut server = MemoryServer::new(ServerConfig::default(), exports);
        let mut client = connect(styled("disk", style), &mut server, 1 << 20);
        let none = CommandFlags::NONE;
        client.submit(1, Command::Read, none, (0, 512), &[]).unwrap();
        let second = client.submit(2, Command::Read, none, (512, 512), &[]).unwrap();
        // The first request is answered by hand, with an error.
        let first = forebay_nbd::Request {
            cookie: forebay_nbd::Cookie(1 << 32),
            command: Command::Read,
            flags: none,
            offset: 0,
            length: 512,
        };
        let mut reply = Vec::new();
        style.error_with_message(&first, ErrorCode::Io, "the disk is on fire", &mut reply);
        client.feed(&reply);
        server.feed(&second);
        client.feed(&server.take_out());
        assert_eq!(client.failure, None);
        let results: Vec<_> = client.outcomes.iter().map(|o| (o.tag, o.result)).collect();
        assert_eq!(results, [(1, Err(ErrorCode::Io)), (2, Ok(()))]);
        let message = if style == ReplyStyle::Simple { "" } else { "the disk is on fire" };
        assert_eq!(client.session.last_message(), message);
    }
}

/// The client detects a server that violates the protocol, and lists the requests in flight.
#[test]
fn a_server_that_breaks_the_protocol_is_found_out() {
    let read = forebay_nbd::Request {
        cookie: forebay_nbd::Cookie(1 << 32),
        command: Command::Read,
        flags: CommandFlags::NONE,
        offset: 4096,
        length: 1024,
    };
    let chunks = ReplyStyle::Structured.chunks().unwrap();
    let data = |offset: u64, length: usize, last: bool| {
        [&chunks.data(&read, offset, length as u64, last)[..], &vec![7; length]].concat()
    };
    let other = forebay_nbd::Request { cookie: forebay_nbd::Cookie(99), ..read };
    for (case, wire) in [
        ("a gap", data(4096, 512, true)),
        ("an overlap", [data(4096, 512, false), data(4607, 513, true)].concat()),
        ("before the request", data(4095, 512, true)),
        ("beyond the request", data(4608, 513, true)),
        ("nothing at all", chunks.none(&read).to_vec()),
        ("a foreign cookie", chunks.none(&other).to_vec()),
        ("a simple reply", ReplyStyle::Simple.data(&read).to_vec()),
        ("an extended reply", ReplyStyle::Extended.done(&read).to_vec()),
        ("no reply", b"HTTP/1.1 400 Bad Request".to_vec()),
        ("a status", {
            let mut out = Vec::new();
            chunks.block_status(&read, [], &mut out);
            out
        }),
    ] {
        let mut server = MemoryServer::new(ServerConfig::default(), vec![export("disk")]);
        let mut client = connect(styled("disk", ReplyStyle::Structured), &mut server, 1 << 20);
        client.submit(5, Command::Read, CommandFlags::NONE, (4096, 1024), &[]).unwrap();
        client.feed(&wire);
        assert!(matches!(client.failure, Some(ClientError::Protocol(_))), "{case}");
        assert!(client.outcomes.is_empty(), "{case}");
        assert_eq!(client.session.in_flight().collect::<Vec<_>>(), [5], "{case}");
        let again = client.submit(6, Command::Flush, CommandFlags::NONE, (0, 0), &[]);
        assert!(again.is_err(), "{case}");
    }
}

#[test]
fn a_connection_that_ends_leaves_the_requests_in_flight_behind() {
    let mut server = MemoryServer::new(ServerConfig::default(), vec![export("disk")]);
    let mut client = connect(ClientConfig::connect("disk"), &mut server, 1 << 20);
    client.submit(8, Command::Flush, CommandFlags::NONE, (0, 0), &[]).unwrap();
    assert_eq!(client.session.end_of_input(), ClientError::Closed);
    assert_eq!(client.session.in_flight().collect::<Vec<_>>(), [8]);
}
