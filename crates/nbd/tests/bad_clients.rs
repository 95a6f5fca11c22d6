//! Tests of clients that misbehave: none makes the server crash, hang, hold much memory or reach
//! data it should not. Each case ends with the session closed for the stated reason, or intact.

use crate::support::*;
use forebay_nbd::server::{CloseReason, Event, Handshake, HandshakeEvent, ServerConfig, TlsPolicy};
use forebay_nbd::{Cookie, ErrorCode, ExportInfo, ReplyStyle};

fn greeted() -> MemoryServer {
    let mut server = MemoryServer::new(ServerConfig::default(), vec![export("disk")]);
    server.feed(&client_flags(3));
    server.out.clear();
    server
}

#[test]
fn an_option_with_a_payload_beyond_all_reason_ends_the_session_at_its_header() {
    let mut server = greeted();
    let header = option(4711, &[]);
    server.feed(&[&header[..12], &u32::MAX.to_be_bytes()].concat());
    assert_eq!(server.closed(), Some(CloseReason::OptionFlood));
}

#[test]
fn a_long_unknown_option_is_skipped_without_being_kept() {
    let mut handshake = Handshake::start(ServerConfig::default(), &mut Vec::new());
    let exports: [ExportInfo; 1] = [export("disk")];
    let mut out = Vec::new();
    let opening = [client_flags(3), option(4711, &[])[..12].to_vec()].concat();
    let mut input = &opening[..4];
    handshake.receive(&mut input, &exports[..], &mut out);
    let header = [&opening[4..], &(30u32 << 20).to_be_bytes()].concat();
    let mut input = &header[..];
    handshake.receive(&mut input, &exports[..], &mut out);
    let piece = vec![0; 1 << 20];
    for n in 0..30 {
        let mut input = &piece[..];
        let event = handshake.receive(&mut input, &exports[..], &mut out);
        assert!(input.is_empty(), "the payload is taken as it comes");
        assert_eq!(matches!(event, HandshakeEvent::Answered), n == 29);
    }
    assert_eq!(option_replies(&out)[0].1, 0x8000_0001);
}

#[test]
fn an_export_name_above_4096_bytes_ends_the_session() {
    let mut server = greeted();
    server.feed(&option(1, &[b'x'; 4097]));
    assert_eq!(server.closed(), Some(CloseReason::ExportRefused));
    let mut server = greeted();
    server.feed(&option(7, &go_data(&"x".repeat(5000), &[])));
    assert_eq!(option_replies(&server.out)[0].1, 0x8000_0003);
    assert_eq!(server.closed(), None);
}

#[test]
fn a_flood_of_options_ends_the_session() {
    let mut server = greeted();
    let mut sent = 0;
    while server.closed().is_none() {
        server.feed(&option(3, &[]));
        server.out.clear();
        sent += 1;
        assert!(sent <= 257);
    }
    assert_eq!(server.closed(), Some(CloseReason::OptionFlood));
    // Long options are limited by their bytes.
    let mut server = greeted();
    let long = option(4711, &vec![0; 8 << 20]);
    for _ in 0..8 {
        server.feed(&long);
    }
    assert_eq!(server.closed(), Some(CloseReason::OptionFlood));
}

#[test]
fn go_after_a_failed_info_is_judged_on_its_own() {
    let mut server = greeted();
    server.feed(&option(6, &go_data("nope", &[])));
    server.feed(&option(6, b"junk"));
    server.out.clear();
    server.feed(&option(7, &go_data("disk", &[])));
    assert_eq!(option_replies(&server.out).last().unwrap().1, 1);
    assert!(matches!(server.phase, Phase::Transmission(_)));
}

#[test]
fn plaintext_pipelined_with_starttls_ends_the_session() {
    for trailing in [&b"x"[..], &option(3, &[]), &option(1, b"disk")] {
        let config = ServerConfig { tls: TlsPolicy::Required, ..ServerConfig::default() };
        let mut server = MemoryServer::new(config, vec![export("disk")]);
        server.feed(&client_flags(3));
        server.feed(&[&option(5, &[]), trailing].concat());
        assert_eq!(server.closed(), Some(CloseReason::PlaintextAfterStartTls));
        assert!(!server.tls);
    }
    // Plaintext that arrives before the driver has started TLS also ends the session.
    let config = ServerConfig { tls: TlsPolicy::Selective, ..ServerConfig::default() };
    let mut handshake = Handshake::start(config, &mut Vec::new());
    let exports = [export("disk")];
    let wire = [client_flags(3), option(5, &[])].concat();
    let mut out = Vec::new();
    let event = handshake.receive(&mut &wire[..], &exports[..], &mut out);
    assert!(matches!(event, HandshakeEvent::StartTls));
    let event = handshake.receive(&mut &option(1, b"disk")[..], &exports[..], &mut out);
    let plaintext = CloseReason::PlaintextAfterStartTls;
    assert!(matches!(event, HandshakeEvent::Close(reason) if reason == plaintext));
}

#[test]
fn transmission_commands_during_negotiation_end_the_session() {
    for wire in [compact(0, 0, 1, 0, 512), extended(0, 0, 1, 0, 512)] {
        let mut server = greeted();
        server.feed(&wire);
        assert!(matches!(server.closed(), Some(CloseReason::OptionMagic(_))));
        assert!(server.requests.is_empty() && server.out.is_empty());
    }
}

#[test]
fn options_during_transmission_end_the_session() {
    for style in [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended] {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        server.feed(&[option(3, &[]), option(3, &[])].concat());
        assert_eq!(server.closed(), Some(CloseReason::RequestMagic(0x4948_4156)));
    }
}

#[test]
fn headers_of_the_wrong_kind_end_the_session() {
    let mut server = MemoryServer::transmitting(ReplyStyle::Structured, export("disk"));
    server.feed(&extended(0, 0, 1, 0, 512));
    assert_eq!(server.closed(), Some(CloseReason::RequestMagic(0x21e4_1c71)));
    let mut server = MemoryServer::transmitting(ReplyStyle::Extended, export("disk"));
    server.feed(&compact(0, 0, 1, 0, 512).repeat(2));
    assert_eq!(server.closed(), Some(CloseReason::RequestMagic(0x2560_9513)));
}

#[test]
fn half_a_message_and_then_nothing_is_reported_as_such() {
    let mut server = greeted();
    assert_eq!(server.end_of_input(), CloseReason::EndOfInput);
    let mut server = greeted();
    server.feed(&option(7, &go_data("disk", &[]))[..20]);
    assert_eq!(server.end_of_input(), CloseReason::Truncated(4));
    let mut server = MemoryServer::new(ServerConfig::default(), vec![export("disk")]);
    server.feed(&[0, 0]);
    assert_eq!(server.end_of_input(), CloseReason::Truncated(2));
    let mut server = MemoryServer::transmitting(ReplyStyle::Simple, export("disk"));
    server.feed(&compact(0, 0, 1, 0, 512)[..27]);
    assert_eq!(server.end_of_input(), CloseReason::Truncated(27));
    assert!(server.requests.is_empty());
}

#[test]
fn a_write_cut_short_by_the_end_of_the_connection_is_never_complete() {
    let mut server = MemoryServer::transmitting(ReplyStyle::Simple, export("disk"));
    server.feed(&[compact(1, 0, 1, 0, 512), vec![1; 511]].concat());
    assert!(matches!(server.end_of_input(), CloseReason::Truncated(_)));
    assert!(server.out.is_empty(), "nothing was acknowledged");
}

#[test]
fn nothing_is_taken_after_the_end() {
    let mut server = MemoryServer::transmitting(ReplyStyle::Simple, export("disk"));
    server.feed(&compact(2, 0, 1, 0, 0));
    let reads = compact(0, 0, 1, 0, 512).repeat(10);
    server.feed(&reads);
    assert!(server.requests.is_empty() && server.out.is_empty());
}

#[test]
fn a_client_that_speaks_no_fixed_newstyle_can_only_name_an_export() {
    for number in [2, 3, 5, 6, 7, 8, 9, 10, 11, 4711] {
        let mut server = MemoryServer::new(ServerConfig::default(), vec![export("disk")]);
        server.feed(&client_flags(0));
        server.feed(&option(number, &[]));
        assert_eq!(server.closed(), Some(CloseReason::NotFixedNewstyle));
    }
}

/// A client that sends bad requests and never reads: each call appends one short reply, so a driver
/// that stops reading when it cannot send holds very little memory.
#[test]
fn one_call_answers_one_bad_request() {
    for style in [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended] {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        let Phase::Transmission(session) = &mut server.phase else { panic!() };
        let wire = if style == ReplyStyle::Extended {
            extended(4711, 0, 9, 0, 512).repeat(1000)
        } else {
            compact(4711, 0, 9, 0, 512).repeat(1000)
        };
        let mut input = &wire[..];
        for _ in 0..1000 {
            let mut out = Vec::new();
            let event = session.receive(&mut input, &mut out);
            assert_eq!(event, Event::Rejected(Cookie(9), ErrorCode::Invalid));
            assert!(out.len() <= 128);
        }
        assert!(input.is_empty());
    }
}
