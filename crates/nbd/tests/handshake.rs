//! What the protocol requires of a server during the handshake, one claim per test. The tests build
//! and parse messages byte by byte. `docs/nbd.md` says which sentence each test covers.

use crate::support::*;
use forebay_nbd::server::{
    CloseReason, Handshake, HandshakeEvent, ListPolicy, ServerConfig, TlsPolicy,
};
use forebay_nbd::{ErrorCode, ExportInfo, Exports, ReplyStyle};

const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFO: u32 = 3;
const META_CONTEXT: u32 = 4;
const UNSUP: u32 = 0x8000_0001;
const POLICY: u32 = 0x8000_0002;
const INVALID: u32 = 0x8000_0003;
const TLS_REQD: u32 = 0x8000_0005;
const UNKNOWN: u32 = 0x8000_0006;
const SHUTDOWN: u32 = 0x8000_0007;
const TOO_BIG: u32 = 0x8000_0009;
const EXT_HEADER_REQD: u32 = 0x8000_000a;

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const STARTTLS: u32 = 5;
const OPT_INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED: u32 = 8;
const LIST_CONTEXTS: u32 = 9;
const SET_CONTEXTS: u32 = 10;
const EXTENDED: u32 = 11;

fn exports() -> Vec<ExportInfo> {
    vec![export("disk"), export("other")]
}

/// A server that has been greeted by a client with both flags.
fn server_with(config: ServerConfig) -> MemoryServer {
    server_of(config, exports())
}

fn server_of(config: ServerConfig, exports: Vec<ExportInfo>) -> MemoryServer {
    let mut server = MemoryServer::new(config, exports);
    server.feed(&client_flags(3));
    server.out.clear();
    server
}

fn server() -> MemoryServer {
    server_with(ServerConfig::default())
}

/// Sends one option. Returns the replies to it.
fn ask(server: &mut MemoryServer, number: u32, data: &[u8]) -> Vec<OptionReply> {
    server.feed(&option(number, data));
    option_replies(&server.take_out())
}

/// Sends one option. Returns the type of the last reply.
fn verdict(server: &mut MemoryServer, number: u32, data: &[u8]) -> u32 {
    let replies = ask(server, number, data);
    assert!(replies.iter().all(|reply| reply.0 == number));
    replies.last().expect("every option has a final reply").1
}

fn transmission_flags(replies: &[OptionReply]) -> u16 {
    let (.., data) = replies.iter().find(|r| r.1 == INFO && r.2[..2] == [0, 0]).unwrap();
    assert_eq!(data.len(), 12);
    u16::from_be_bytes(data[10..12].try_into().unwrap())
}

#[test]
fn the_greeting_is_fixed_newstyle_and_can_leave_out_zeroes() {
    let server = MemoryServer::new(ServerConfig::default(), exports());
    assert_eq!(server.out, b"NBDMAGICIHAVEOPT\0\x03");
}

#[test]
fn unknown_client_flags_end_the_session() {
    for flags in [4, 8, 0x8000_0000, 0xffff_ffff] {
        let mut server = MemoryServer::new(ServerConfig::default(), exports());
        server.feed(&client_flags(flags));
        assert_eq!(server.closed(), Some(CloseReason::ClientFlags(flags)));
    }
}

#[test]
fn export_name_is_answered_with_size_and_flags_and_zeroes_unless_declined() {
    for (flags, padding) in [(1, 124), (3, 0), (0, 124), (2, 0)] {
        let mut server = MemoryServer::new(ServerConfig::default(), exports());
        server.feed(&client_flags(flags));
        server.out.clear();
        server.feed(&option(EXPORT_NAME, b"disk"));
        let mut golden = DISK_BYTES.to_be_bytes().to_vec();
        golden.extend_from_slice(&0b1101_0110_1101u16.to_be_bytes());
        golden.extend_from_slice(&vec![0; padding]);
        assert_eq!(server.out, golden);
        assert!(matches!(server.phase, Phase::Transmission(_)));
    }
}

#[test]
fn export_name_of_a_missing_export_ends_the_session() {
    for name in [&b"nope"[..], b"\xff\xfe", b"di\0sk"] {
        let mut server = server();
        server.feed(&option(EXPORT_NAME, name));
        assert_eq!(server.closed(), Some(CloseReason::ExportRefused));
        assert!(server.out.is_empty());
    }
}

#[test]
fn the_empty_name_is_the_default_export() {
    let mut server = server();
    let replies = ask(&mut server, OPT_INFO, &go_data("", &[1]));
    assert!(replies.iter().any(|(.., data)| data == b"\0\x01disk"));
    server.feed(&option(EXPORT_NAME, b""));
    assert!(matches!(server.phase, Phase::Transmission(_)));
}

#[test]
fn abort_is_acknowledged_whatever_comes_with_it() {
    for data in [&b""[..], b"bye"] {
        let mut server = server();
        assert_eq!(ask(&mut server, ABORT, data), [(ABORT, ACK, vec![])]);
        assert_eq!(server.closed(), Some(CloseReason::Aborted));
    }
}

#[test]
fn list_names_every_export_and_takes_no_data() {
    let mut server = server();
    let replies = ask(&mut server, LIST, &[]);
    let entries: Vec<_> = replies.iter().map(|r| (r.1, &r.2[..])).collect();
    assert_eq!(
        entries,
        [
            (SERVER, &b"\0\0\0\x04diskabout disk"[..]),
            (SERVER, b"\0\0\0\x05otherabout other"),
            (ACK, b""),
        ]
    );
    assert_eq!(verdict(&mut server, LIST, b"x"), INVALID);
    let closed = ServerConfig { list: ListPolicy::Closed, ..ServerConfig::default() };
    assert_eq!(verdict(&mut server_with(closed), LIST, &[]), POLICY);
}

#[test]
fn unknown_options_are_unsupported_and_the_next_one_is_understood() {
    let mut server = server();
    for number in [0, 4, 12, 4711, u32::MAX] {
        for length in [0, 1, 100_000] {
            assert_eq!(verdict(&mut server, number, &vec![0x5a; length]), UNSUP);
        }
    }
    assert_eq!(verdict(&mut server, LIST, &[]), ACK);
}

#[test]
fn errors_come_with_words_for_people() {
    let mut server = server();
    for (number, data) in [(4711, vec![]), (GO, go_data("nope", &[])), (LIST, vec![1])] {
        let replies = ask(&mut server, number, &data);
        assert!(std::str::from_utf8(&replies[0].2).unwrap().len() > 10);
    }
}

#[test]
fn info_and_go_say_the_same_and_only_go_starts_transmission() {
    let mut server = server();
    let data = go_data("disk", &[3, 1, 2, 999]);
    let info: Vec<_> = ask(&mut server, OPT_INFO, &data).into_iter().map(|r| (r.1, r.2)).collect();
    assert!(matches!(server.phase, Phase::Handshake(_)));
    let go: Vec<_> = ask(&mut server, GO, &data).into_iter().map(|r| (r.1, r.2)).collect();
    assert_eq!(info, go);
    assert!(matches!(server.phase, Phase::Transmission(_)));
    let sizes = [0, 3, 0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0];
    assert_eq!(
        info[1..],
        [
            (INFO, b"\0\x01disk".to_vec()),
            (INFO, b"\0\x02about disk".to_vec()),
            (INFO, sizes.to_vec()),
            (ACK, vec![]),
        ]
    );
    assert_eq!(info[0].1[..10], [&[0, 0][..], &DISK_BYTES.to_be_bytes()].concat());
}

#[test]
fn go_is_never_padded_with_zeroes() {
    let mut server = MemoryServer::new(ServerConfig::default(), exports());
    server.feed(&client_flags(1));
    server.out.clear();
    assert_eq!(ask(&mut server, GO, &go_data("disk", &[])).last().unwrap().1, ACK);
}

#[test]
fn information_not_asked_for_is_kept_short() {
    let replies = ask(&mut server(), GO, &go_data("disk", &[]));
    let kinds: Vec<_> = replies.iter().filter(|r| r.1 == INFO).map(|r| r.2[1]).collect();
    assert_eq!(kinds, [0, 3]);
}

#[test]
fn an_unknown_export_is_refused_without_information_and_another_may_follow() {
    let mut server = server();
    for number in [OPT_INFO, GO] {
        let replies = ask(&mut server, number, &go_data("nope", &[3]));
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].1, UNKNOWN);
    }
    assert_eq!(verdict(&mut server, GO, &go_data("disk", &[])), ACK);
}

#[test]
fn an_export_with_enough_clients_is_refused_by_policy_and_another_may_follow() {
    /// Exports of which the first one is full.
    struct FirstIsFull(Vec<ExportInfo>);
    impl Exports for FirstIsFull {
        fn lookup(&self, name: &str) -> Option<ExportInfo> {
            self.0.lookup(name)
        }
        fn list(&self, visit: &mut dyn FnMut(&ExportInfo)) {
            self.0.list(visit);
        }
        fn admit(&self, export: &ExportInfo) -> bool {
            *export != self.0[0]
        }
    }
    let exports = FirstIsFull(exports());
    let [full, other] = [0, 1].map(|at| exports.0[at].name.clone());
    let begin = || {
        let mut handshake = Handshake::start(ServerConfig::default(), &mut Vec::new());
        let event = handshake.receive(&mut &client_flags(3)[..], &exports, &mut Vec::new());
        assert!(matches!(event, HandshakeEvent::NeedInput));
        handshake
    };
    let mut handshake = begin();
    let mut verdict = |number, name: &str| {
        let (sent, mut out) = (option(number, &go_data(name, &[])), Vec::new());
        handshake.receive(&mut &sent[..], &exports, &mut out);
        option_replies(&out).last().unwrap().1
    };
    assert_eq!(verdict(OPT_INFO, &full), ACK, "a look is free");
    assert_eq!(verdict(GO, &full), POLICY);
    assert_eq!(verdict(GO, &other), ACK);
    let named = option(EXPORT_NAME, full.as_bytes());
    let event = begin().receive(&mut &named[..], &exports, &mut Vec::new());
    assert!(matches!(event, HandshakeEvent::Close(CloseReason::ExportRefused)));
}

#[test]
fn malformed_info_and_go_are_invalid() {
    let good = go_data("disk", &[3, 1]);
    let mut server = server();
    let mut long_name = vec![0, 0, 0, 200];
    long_name.extend_from_slice(&good[4..]);
    for data in [&good[..3], &good[..9], &good[..good.len() - 1], &long_name, b""] {
        assert_eq!(verdict(&mut server, GO, data), INVALID);
        assert_eq!(verdict(&mut server, OPT_INFO, data), INVALID);
    }
    let trailing = [&good[..], &[0]].concat();
    assert_eq!(verdict(&mut server, GO, &trailing), INVALID);
    assert_eq!(verdict(&mut server, GO, &go_data("a\0b", &[])), INVALID);
    assert_eq!(verdict(&mut server, GO, &go_data(&"x".repeat(4097), &[])), INVALID);
    assert_eq!(verdict(&mut server, GO, &go_data(&"x".repeat(4096), &[])), UNKNOWN);
    assert_eq!(verdict(&mut server, GO, &good), ACK);
}

#[test]
fn df_is_offered_only_with_reply_chunks() {
    for (style, df) in [(None, false), (Some(STRUCTURED), true), (Some(EXTENDED), true)] {
        let mut server = server();
        if let Some(number) = style {
            assert_eq!(verdict(&mut server, number, &[]), ACK);
        }
        let replies = ask(&mut server, GO, &go_data("disk", &[]));
        let flags = transmission_flags(&replies);
        assert_eq!(flags & 1 << 7 != 0, df);
        assert_eq!(flags & 1, 1, "HAS_FLAGS is always set");
        assert_eq!(flags & (1 << 9 | 1 << 12 | 0xe000), 0, "what is not supported is not claimed");
    }
}

#[test]
fn structured_replies_and_extended_headers_take_no_data() {
    let mut server = server();
    for number in [STRUCTURED, EXTENDED] {
        assert_eq!(verdict(&mut server, number, b"x"), INVALID);
        assert_eq!(verdict(&mut server, number, &[]), ACK);
    }
}

#[test]
fn extended_headers_take_precedence_and_rule_out_export_name() {
    let mut server = server();
    assert_eq!(verdict(&mut server, STRUCTURED, &[]), ACK);
    assert_eq!(verdict(&mut server, EXTENDED, &[]), ACK);
    assert_eq!(verdict(&mut server, STRUCTURED, &[]), EXT_HEADER_REQD);
    server.feed(&option(EXPORT_NAME, b"disk"));
    assert_eq!(server.closed(), Some(CloseReason::ExportNameWithExtendedHeaders));
}

#[test]
fn what_is_switched_off_is_unsupported() {
    let simple = ServerConfig { best_style: ReplyStyle::Simple, ..ServerConfig::default() };
    let mut server = server_with(simple);
    for number in [STRUCTURED, EXTENDED, LIST_CONTEXTS, SET_CONTEXTS] {
        assert_eq!(verdict(&mut server, number, &[]), UNSUP);
    }
}

fn structured_server() -> MemoryServer {
    let mut server = server();
    assert_eq!(verdict(&mut server, STRUCTURED, &[]), ACK);
    server
}

fn contexts(server: &mut MemoryServer, number: u32, queries: &[&str]) -> Vec<OptionReply> {
    ask(server, number, &context_data("disk", queries))
}

#[test]
fn contexts_are_listed_by_name_by_wildcard_and_in_full() {
    let mut server = structured_server();
    let found = (LIST_CONTEXTS, META_CONTEXT, b"\0\0\0\0base:allocation".to_vec());
    let done = (LIST_CONTEXTS, ACK, vec![]);
    for queries in
        [&[][..], &["base:"], &["base:allocation"], &["x-y:z", "base:", "base:allocation"]]
    {
        let replies = contexts(&mut server, LIST_CONTEXTS, queries);
        assert_eq!(replies, [found.clone(), done.clone()], "{queries:?}");
    }
    for queries in [&["x-y:"][..], &["base:nothing"], &["qemu:dirty-bitmap:a"], &["nocolon"]] {
        assert_eq!(
            contexts(&mut server, LIST_CONTEXTS, queries),
            std::slice::from_ref(&done),
            "{queries:?}"
        );
    }
}

#[test]
fn contexts_are_selected_by_full_name_only() {
    for (queries, selected) in [
        (&["base:allocation"][..], true),
        (&["x-y:z", "base:allocation", "base:allocation"], true),
        (&[], false),
        (&["base:"], false),
        (&["base:nothing", "x-y:z"], false),
    ] {
        let mut server = structured_server();
        let replies = contexts(&mut server, SET_CONTEXTS, queries);
        let contexts: Vec<_> = replies.iter().filter(|r| r.1 == META_CONTEXT).collect();
        assert_eq!(contexts.len(), usize::from(selected), "{queries:?}");
        assert_eq!(replies.last().unwrap().1, ACK);
        assert_eq!(verdict(&mut server, GO, &go_data("disk", &[])), ACK);
        server.feed(&compact(7, 0, 1, 0, 512));
        assert_eq!(server.rejected.is_empty(), selected, "{queries:?}");
    }
}

#[test]
fn a_selection_is_replaced_by_the_next_even_if_that_fails() {
    type Attempt<'a> = (&'a [u8], u32);
    let none = context_data("disk", &[]);
    let unknown = context_data("nope", &["base:allocation"]);
    let attempts: [Attempt<'_>; 3] = [(&none, ACK), (&unknown, UNKNOWN), (b"junk", INVALID)];
    for (second, answer) in attempts {
        let mut server = structured_server();
        assert_eq!(contexts(&mut server, SET_CONTEXTS, &["base:allocation"]).len(), 2);
        assert_eq!(verdict(&mut server, SET_CONTEXTS, second), answer);
        assert_eq!(verdict(&mut server, GO, &go_data("disk", &[])), ACK);
        server.feed(&compact(7, 0, 1, 0, 512));
        assert_eq!(server.rejected, [ErrorCode::Invalid]);
    }
}

#[test]
fn a_selection_for_another_export_does_not_count() {
    let mut server = structured_server();
    contexts(&mut server, SET_CONTEXTS, &["base:allocation"]);
    assert_eq!(verdict(&mut server, GO, &go_data("other", &[])), ACK);
    server.feed(&compact(7, 0, 1, 0, 512));
    assert_eq!(server.rejected, [ErrorCode::Invalid]);
}

#[test]
fn contexts_without_reply_chunks_are_invalid() {
    let mut server = server();
    for number in [LIST_CONTEXTS, SET_CONTEXTS] {
        let data = context_data("disk", &["base:allocation"]);
        assert_eq!(verdict(&mut server, number, &data), INVALID);
    }
}

#[test]
fn malformed_context_queries_are_invalid() {
    let mut server = structured_server();
    let good = context_data("disk", &["base:allocation", "x-y:z"]);
    for number in [LIST_CONTEXTS, SET_CONTEXTS] {
        for cut in 0..good.len() {
            assert_eq!(verdict(&mut server, number, &good[..cut]), INVALID);
            if cut % 10 == 9 {
                server = structured_server(); // the number of options is limited
            }
        }
        let long = context_data("disk", &[&"q".repeat(4097)]);
        assert_eq!(verdict(&mut server, number, &long), INVALID);
        assert_eq!(verdict(&mut server, number, &good), ACK);
    }
}

#[test]
fn options_too_large_to_keep_are_refused_and_skipped() {
    let mut server = structured_server();
    let large = vec![0; 70_000];
    for number in [OPT_INFO, GO, LIST_CONTEXTS, SET_CONTEXTS] {
        assert_eq!(verdict(&mut server, number, &large), TOO_BIG);
    }
    assert_eq!(verdict(&mut server, GO, &go_data("disk", &[])), ACK);
}

#[test]
fn without_tls_starttls_is_refused_and_tls_never_demanded() {
    let mut server = server();
    assert_eq!(verdict(&mut server, STARTTLS, &[]), POLICY);
    assert_eq!(verdict(&mut server, STARTTLS, b"x"), INVALID);
    assert_eq!(verdict(&mut server, GO, &go_data("disk", &[])), ACK);
}

#[test]
fn without_tls_an_export_that_requires_it_is_not_served() {
    let secret = ExportInfo { tls_required: true, ..exports()[0].clone() };
    let hidden = || server_of(ServerConfig::default(), vec![secret.clone()]);
    let mut server = hidden();
    for number in [OPT_INFO, GO] {
        assert_eq!(verdict(&mut server, number, &go_data(&secret.name, &[])), UNKNOWN);
    }
    let mut server = hidden();
    server.feed(&option(EXPORT_NAME, secret.name.as_bytes()));
    assert_eq!(server.closed(), Some(CloseReason::ExportRefused));
}

#[test]
fn where_tls_is_required_nothing_else_is_answered_before_it() {
    let config = ServerConfig { tls: TlsPolicy::Required, ..ServerConfig::default() };
    let mut server = server_with(config);
    for number in [LIST, OPT_INFO, GO, STRUCTURED, LIST_CONTEXTS, SET_CONTEXTS, EXTENDED, 4711] {
        let replies = ask(&mut server, number, &go_data("disk", &[3]));
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].1, TLS_REQD, "option {number}");
    }
    assert_eq!(verdict(&mut server, STARTTLS, &[]), ACK);
    assert!(server.tls);
    for number in [STARTTLS, LIST, 4711] {
        assert_ne!(verdict(&mut server, number, &[]), TLS_REQD);
    }
    assert_eq!(verdict(&mut server, STARTTLS, &[]), INVALID);
    assert_eq!(verdict(&mut server, GO, &go_data("disk", &[])), ACK);

    let mut server = server_with(config);
    server.feed(&option(EXPORT_NAME, b"disk"));
    assert_eq!(server.closed(), Some(CloseReason::ExportRefused));
    let mut server = server_with(config);
    assert_eq!(verdict(&mut server, ABORT, &[]), ACK);
}

#[test]
fn tls_forgets_what_was_negotiated_before() {
    let config = ServerConfig { tls: TlsPolicy::Selective, ..ServerConfig::default() };
    let mut server = server_with(config);
    assert_eq!(verdict(&mut server, STRUCTURED, &[]), ACK);
    contexts(&mut server, SET_CONTEXTS, &["base:allocation"]);
    assert_eq!(verdict(&mut server, STARTTLS, &[]), ACK);
    let flags = transmission_flags(&ask(&mut server, GO, &go_data("disk", &[])));
    assert_eq!(flags & 1 << 7, 0, "structured replies must be asked for again");
}

#[test]
fn exports_that_want_tls_are_hidden_without_it() {
    let config = ServerConfig { tls: TlsPolicy::Selective, ..ServerConfig::default() };
    let secret = ExportInfo { tls_required: true, ..export("secret") };
    let make = || {
        let mut server = MemoryServer::new(config, vec![export("disk"), secret.clone()]);
        server.feed(&client_flags(3));
        server.out.clear();
        server
    };
    let mut server = make();
    assert_eq!(ask(&mut server, LIST, &[]).len(), 2);
    assert_eq!(verdict(&mut server, STRUCTURED, &[]), ACK);
    for name in ["secret", "nope"] {
        for number in [OPT_INFO, GO] {
            let replies = ask(&mut server, number, &go_data(name, &[3]));
            assert_eq!((replies.len(), replies[0].1), (1, TLS_REQD));
        }
        let asked = context_data(name, &["base:allocation"]);
        assert_eq!(verdict(&mut server, LIST_CONTEXTS, &asked), UNKNOWN);
    }
    let mut named = make();
    named.feed(&option(EXPORT_NAME, b"secret"));
    assert_eq!(named.closed(), Some(CloseReason::ExportRefused));
    assert_eq!(verdict(&mut server, STARTTLS, &[]), ACK);
    assert_eq!(ask(&mut server, LIST, &[]).len(), 3);
    assert_eq!(verdict(&mut server, OPT_INFO, &go_data("nope", &[])), UNKNOWN);
    assert_eq!(verdict(&mut server, GO, &go_data("secret", &[])), ACK);
}

#[test]
fn a_server_that_shuts_down_says_so_to_every_option_but_abort() {
    let mut server = structured_server();
    let Phase::Handshake(handshake) = &mut server.phase else { panic!() };
    handshake.shut_down();
    for number in [LIST, STARTTLS, OPT_INFO, GO, STRUCTURED, SET_CONTEXTS, 4711] {
        assert_eq!(verdict(&mut server, number, &[]), SHUTDOWN);
    }
    assert_eq!(verdict(&mut server, ABORT, &[]), ACK);
}

/// A driver that sends `out` after each event never holds more than one option's answer.
#[test]
fn one_call_answers_one_option() {
    let mut out = Vec::new();
    let mut handshake = Handshake::start(ServerConfig::default(), &mut out);
    let flood = [client_flags(3), option(LIST, &[]).repeat(100)].concat();
    let mut input = &flood[..];
    let mut answers = 0;
    loop {
        out.clear();
        match handshake.receive(&mut input, &exports()[..], &mut out) {
            HandshakeEvent::NeedInput => break,
            HandshakeEvent::Answered => answers += 1,
            event => panic!("{event:?}"),
        }
        assert_eq!(option_replies(&out).len(), 3);
    }
    assert_eq!(answers, 100);
}
