//! What the protocol requires of a server during transmission, one claim per test. `docs/nbd.md`
//! says which sentence each test covers.

use crate::support::*;
use forebay_nbd::server::CloseReason;
use forebay_nbd::{Command, CommandFlags, ErrorCode, ExportInfo, ReplyStyle, TransmissionFlags};

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DF: u16 = 4;
const REQ_ONE: u16 = 8;
const FAST_ZERO: u16 = 16;
const PAYLOAD_LEN: u16 = 32;

const STYLES: [ReplyStyle; 3] = [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended];

/// A request as encoded in the style, with its payload if it must have one.
fn request(style: ReplyStyle, command: u16, flags: u16, offset: u64, length: u64) -> Vec<u8> {
    let payload = vec![0x77; if command == WRITE { length as usize } else { 0 }];
    let header = if style == ReplyStyle::Extended {
        let carries = if command == WRITE { PAYLOAD_LEN } else { 0 };
        extended(command, flags | carries, 9, offset, length)
    } else {
        compact(command, flags, 9, offset, length as u32)
    };
    [header, payload].concat()
}

/// Sends one request. Returns all replies to it.
fn ask(
    server: &mut MemoryServer,
    style: ReplyStyle,
    command: u16,
    flags: u16,
    (offset, length): (u64, u64),
) -> Vec<Reply> {
    server.feed(&request(style, command, flags, offset, length));
    let data = if command == READ { length as usize } else { 0 };
    replies(&server.take_out(), data)
}

/// The error number of the one reply to one request; 0 is success.
fn error(
    server: &mut MemoryServer,
    style: ReplyStyle,
    command: u16,
    flags: u16,
    range: (u64, u64),
) -> u32 {
    let replies = ask(server, style, command, flags, range);
    assert!(replies.iter().all(|reply| reply.cookie == 9), "replies carry the cookie");
    let (last, before) = replies.split_last().expect("every request has a reply");
    assert!(last.last && before.iter().all(|reply| !reply.last));
    last.error
}

#[test]
fn reads_return_the_data_in_the_form_that_was_agreed_on() {
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        server.disk[4096..4608].fill(0xa5);
        let replies = ask(&mut server, style, READ, 0, (4096, 512));
        assert_eq!(replies.len(), 1);
        let data = if style == ReplyStyle::Simple {
            assert_eq!(replies[0].kind, None);
            &replies[0].payload[..]
        } else {
            assert_eq!(replies[0].kind, Some(1), "never a simple reply to a read");
            assert_eq!(replies[0].payload[..8], 4096u64.to_be_bytes());
            &replies[0].payload[8..]
        };
        assert_eq!(data, [0xa5; 512]);
    }
}

#[test]
fn the_reply_style_is_the_one_agreed_on_for_every_command() {
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        for command in [READ, WRITE, TRIM, CACHE, WRITE_ZEROES] {
            let replies = ask(&mut server, style, command, 0, (0, 512));
            match (style, command) {
                (ReplyStyle::Extended, _) | (ReplyStyle::Structured, READ) => {
                    assert!(replies.iter().all(|reply| reply.kind.is_some()));
                }
                _ => assert!(replies.iter().all(|reply| reply.kind.is_none())),
            }
        }
    }
}

#[test]
fn extended_replies_repeat_the_offset_of_the_request() {
    let style = ReplyStyle::Extended;
    let mut server = MemoryServer::transmitting(style, export("disk"));
    for (command, offset, length) in [(READ, 512, 512), (TRIM, 1024, 512), (READ, 1 << 40, 512)] {
        server.feed(&request(style, command, 0, offset, length));
        assert_eq!(server.take_out()[16..24], u64::to_be_bytes(offset));
    }
}

#[test]
fn holes_and_pieces_of_a_read_cover_it_exactly_once() {
    for style in [ReplyStyle::Structured, ReplyStyle::Extended] {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        server.read_style = ReadStyle::Shredded;
        server.disk[1024..1536].fill(1);
        let replies = ask(&mut server, style, READ, 0, (0, 2048));
        let kinds: Vec<_> = replies.iter().map(|reply| reply.kind.unwrap()).collect();
        assert_eq!(kinds, [2, 1, 2, 2]);
        assert!(replies.iter().filter(|r| r.kind == Some(2)).all(|r| r.payload.len() == 12));
    }
}

#[test]
fn df_reads_come_in_one_piece_with_their_zeroes() {
    for style in [ReplyStyle::Structured, ReplyStyle::Extended] {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        server.read_style = ReadStyle::Shredded;
        let replies = ask(&mut server, style, READ, DF, (0, 65_536));
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].payload.len(), 8 + 65_536);
    }
}

#[test]
fn writes_change_the_disk_and_zeroing_and_trimming_zero_it() {
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        assert_eq!(error(&mut server, style, WRITE, 0, (512, 2048)), 0);
        assert!(server.disk[512..2560].iter().all(|&b| b == 0x77));
        assert_eq!(error(&mut server, style, WRITE_ZEROES, NO_HOLE, (512, 512)), 0);
        assert_eq!(error(&mut server, style, TRIM, 0, (1024, 512)), 0);
        assert!(is_zero(&server.disk[..1536]));
        assert_eq!(server.disk[1536], 0x77);
    }
}

#[test]
fn flags_reach_the_driver() {
    let style = ReplyStyle::Extended;
    let mut server = MemoryServer::transmitting(style, export("disk"));
    for (command, flags) in [
        (WRITE, FUA),
        (TRIM, FUA),
        (WRITE_ZEROES, FUA | NO_HOLE | FAST_ZERO),
        (READ, DF),
        (BLOCK_STATUS, REQ_ONE),
    ] {
        assert_eq!(error(&mut server, style, command, flags, (0, 512)), 0);
        assert_eq!(server.requests.pop().unwrap().flags, CommandFlags(flags));
    }
}

#[test]
fn fua_is_accepted_with_every_command_where_it_is_offered() {
    for style in [ReplyStyle::Structured, ReplyStyle::Extended] {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        for command in [READ, WRITE, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS] {
            assert_eq!(error(&mut server, style, command, FUA, (0, 512)), 0);
        }
        assert_eq!(error(&mut server, style, FLUSH, FUA, (0, 0)), 0);
    }
    let bare = ExportInfo { features: TransmissionFlags::NONE, ..export("disk") };
    let mut server = MemoryServer::transmitting(ReplyStyle::Simple, bare);
    assert_eq!(error(&mut server, ReplyStyle::Simple, WRITE, FUA, (0, 512)), 22);
}

#[test]
fn commands_that_were_not_offered_are_invalid() {
    let bare = ExportInfo { features: TransmissionFlags::NONE, ..export("disk") };
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, bare.clone());
        for command in [TRIM, CACHE, WRITE_ZEROES] {
            assert_eq!(error(&mut server, style, command, 0, (0, 512)), 22);
        }
        assert_eq!(error(&mut server, style, FLUSH, 0, (0, 0)), 22);
        assert_eq!(error(&mut server, style, READ, 0, (0, 512)), 0);
        assert_eq!(error(&mut server, style, WRITE, 0, (0, 512)), 0);
    }
}

#[test]
fn fast_zero_is_invalid_unless_offered() {
    let features = TransmissionFlags::SEND_WRITE_ZEROES;
    let slow = ExportInfo { features, ..export("disk") };
    let mut server = MemoryServer::transmitting(ReplyStyle::Simple, slow);
    let mut zero = |flags| error(&mut server, ReplyStyle::Simple, WRITE_ZEROES, flags, (0, 512));
    assert_eq!(zero(FAST_ZERO), 22);
    assert_eq!(zero(NO_HOLE), 0);
}

#[test]
fn flags_that_do_not_belong_to_a_command_are_invalid() {
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        for (command, flags) in [
            (READ, NO_HOLE),
            (READ, REQ_ONE),
            (READ, FAST_ZERO),
            (READ, 1 << 6),
            (READ, 1 << 15),
            (WRITE, NO_HOLE),
            (WRITE, DF),
            (TRIM, NO_HOLE),
            (TRIM, FAST_ZERO),
            (CACHE, DF),
            (CACHE, 1 << 9),
            (WRITE_ZEROES, DF),
        ] {
            assert_eq!(
                error(&mut server, style, command, flags, (0, 512)),
                22,
                "{command} {flags}"
            );
        }
        assert_eq!(error(&mut server, style, FLUSH, DF, (0, 0)), 22);
    }
    let mut server = MemoryServer::transmitting(ReplyStyle::Simple, export("disk"));
    assert_eq!(error(&mut server, ReplyStyle::Simple, READ, DF, (0, 512)), 22);
    assert_eq!(error(&mut server, ReplyStyle::Simple, WRITE, PAYLOAD_LEN, (0, 512)), 22);
}

#[test]
fn unknown_commands_are_invalid_and_the_next_request_is_understood() {
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        for command in [8, 9, 4711, u16::MAX] {
            assert_eq!(error(&mut server, style, command, 0, (0, 512)), 22);
        }
        assert_eq!(error(&mut server, style, READ, 0, (0, 512)), 0);
    }
}

#[test]
fn ranges_beyond_the_end_are_no_space_for_writes_and_invalid_otherwise() {
    for style in [ReplyStyle::Structured, ReplyStyle::Extended] {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        for range in [
            (DISK_BYTES, 512),
            (DISK_BYTES - 512, 1024),
            (1 << 50, 512),
            (u64::MAX - 511, 512),
            (u64::MAX, 1),
            (u64::MAX - 100, 512),
        ] {
            for command in [READ, TRIM, CACHE, BLOCK_STATUS] {
                assert_eq!(error(&mut server, style, command, 0, range), 22, "{command} {range:?}");
            }
            for command in [WRITE, WRITE_ZEROES] {
                assert_eq!(error(&mut server, style, command, 0, range), 28, "{command} {range:?}");
            }
        }
        assert_eq!(error(&mut server, style, READ, 0, (DISK_BYTES - 512, 512)), 0);
        assert_eq!(error(&mut server, style, WRITE, 0, (DISK_BYTES - 512, 512)), 0);
    }
}

#[test]
fn writes_to_a_read_only_export_are_not_permitted() {
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, read_only_export("disk"));
        for command in [WRITE, TRIM, WRITE_ZEROES] {
            assert_eq!(error(&mut server, style, command, 0, (0, 512)), 1);
            assert_eq!(error(&mut server, style, command, 0, (DISK_BYTES, 512)), 1);
        }
        assert_eq!(error(&mut server, style, READ, 0, (0, 512)), 0);
        assert_eq!(error(&mut server, style, FLUSH, 0, (0, 0)), 0);
        assert!(is_zero(&server.disk));
    }
}

#[test]
fn requests_not_aligned_to_the_minimum_block_are_invalid() {
    for style in [ReplyStyle::Structured, ReplyStyle::Extended] {
        let mut server = MemoryServer::transmitting(style, strict_export("disk"));
        for command in [READ, WRITE, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS] {
            for range in [(1, 512), (0, 511), (256, 256)] {
                assert_eq!(error(&mut server, style, command, 0, range), 22, "{command}");
            }
            assert_eq!(error(&mut server, style, command, 0, (512, 1024)), 0);
        }
    }
}

#[test]
fn requests_of_no_length_are_invalid_and_do_not_end_the_session() {
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        for command in [READ, WRITE, TRIM, CACHE, WRITE_ZEROES] {
            assert_eq!(error(&mut server, style, command, 0, (0, 0)), 22);
        }
        assert_eq!(error(&mut server, style, READ, 0, (0, 1)), 0);
    }
}

#[test]
fn a_flush_with_a_range_is_invalid() {
    let mut server = MemoryServer::transmitting(ReplyStyle::Simple, export("disk"));
    for range in [(0, 512), (512, 0), (1, 1)] {
        assert_eq!(error(&mut server, ReplyStyle::Simple, FLUSH, 0, range), 22);
    }
    assert_eq!(error(&mut server, ReplyStyle::Simple, FLUSH, 0, (0, 0)), 0);
}

#[test]
fn reads_above_the_maximum_payload_are_refused() {
    for (style, code) in
        [(ReplyStyle::Simple, 22), (ReplyStyle::Structured, 75), (ReplyStyle::Extended, 75)]
    {
        let mut server = MemoryServer::transmitting(style, strict_export("disk"));
        server.feed(&request(style, READ, 0, 0, 16_384));
        let reply = replies(&server.take_out(), 0).remove(0);
        assert_eq!(reply.error, code);
        assert_eq!(error(&mut server, style, READ, 0, (0, 8192)), 0);
    }
}

#[test]
fn commands_without_payload_may_be_longer_than_the_maximum_payload() {
    for style in [ReplyStyle::Structured, ReplyStyle::Extended] {
        let mut server = MemoryServer::transmitting(style, strict_export("disk"));
        for command in [TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS] {
            assert_eq!(error(&mut server, style, command, 0, (0, DISK_BYTES)), 0);
        }
    }
}

#[test]
fn lengths_of_64_bits_are_understood_with_extended_headers() {
    let large = ExportInfo { size_bytes: 1 << 50, ..export("disk") };
    let style = ReplyStyle::Extended;
    let mut server = MemoryServer::transmitting(style, large);
    // Only parsed, not executed: the disk behind the test is small.
    server.feed(&extended(CACHE, 0, 9, 1 << 33, 1 << 40));
    let taken = server.requests.pop().unwrap();
    assert_eq!((taken.command, taken.offset, taken.length), (Command::Cache, 1 << 33, 1 << 40));
}

#[test]
fn the_payload_of_a_refused_write_is_not_taken_for_requests() {
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, read_only_export("disk"));
        // The payload looks like a disconnect if it is mistaken for a request.
        let disguise = if style == ReplyStyle::Extended {
            extended(DISC, 0, 0, 0, 0).repeat(16)
        } else {
            compact(DISC, 0, 0, 0, 0).repeat(16)
        };
        let mut wire = request(style, WRITE, 0, 0, disguise.len() as u64);
        let header = wire.len() - disguise.len();
        wire[header..].copy_from_slice(&disguise);
        for cut in [1, 7, 100, wire.len()] {
            for piece in wire.chunks(cut) {
                server.feed(piece);
            }
            let reply = replies(&server.take_out(), 0);
            assert_eq!((reply.len(), reply[0].error), (1, 1));
            assert_eq!(error(&mut server, style, READ, 0, (0, 512)), 0);
        }
        assert_eq!(server.closed(), None);
    }
}

#[test]
fn payloads_where_none_belongs_are_thrown_away_with_extended_headers() {
    let style = ReplyStyle::Extended;
    let mut server = MemoryServer::transmitting(style, export("disk"));
    for command in [READ, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS, 4711] {
        let header = extended(command, PAYLOAD_LEN, 9, 0, 1000);
        server.feed(&[header, vec![0xff; 1000]].concat());
        assert_eq!(replies(&server.take_out(), 0)[0].error, 22, "{command}");
    }
    // A write without the payload flag has no payload.
    server.feed(&extended(WRITE, 0, 9, 0, 512));
    assert_eq!(replies(&server.take_out(), 0)[0].error, 22);
    assert_eq!(error(&mut server, style, READ, 0, (0, 512)), 0);
}

#[test]
fn payloads_above_the_maximum_are_skipped_up_to_32_mib_and_then_end_the_session() {
    let mib_32 = 32u32 << 20;
    for style in [ReplyStyle::Simple, ReplyStyle::Structured] {
        let mut server = MemoryServer::transmitting(style, strict_export("disk"));
        assert_eq!(error(&mut server, style, WRITE, 0, (0, 16_384)), 22);
        server.feed(&compact(WRITE, 0, 9, 0, mib_32));
        let piece = vec![0; 1 << 20];
        (0..32).for_each(|_| server.feed(&piece));
        assert_eq!(replies(&server.take_out(), 0)[0].error, 28);
        assert_eq!(error(&mut server, style, READ, 0, (0, 512)), 0);
        server.feed(&compact(WRITE, 0, 9, 0, mib_32 + 512));
        let reason = CloseReason::PayloadTooLarge(u64::from(mib_32) + 512);
        assert_eq!(server.closed(), Some(reason));
    }
    // With extended headers the client must respect the limit.
    let mut server = MemoryServer::transmitting(ReplyStyle::Extended, strict_export("disk"));
    server.feed(&extended(WRITE, PAYLOAD_LEN, 9, 0, 8192 + 512));
    assert_eq!(server.closed(), Some(CloseReason::PayloadTooLarge(8704)));
}

#[test]
fn block_status_without_a_context_is_invalid() {
    let silent = ExportInfo { allocation: false, ..export("disk") };
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, silent.clone());
        assert_eq!(error(&mut server, style, BLOCK_STATUS, 0, (0, 512)), 22);
    }
}

#[test]
fn block_status_is_one_chunk_of_the_context_that_was_selected() {
    for (style, kind, head, entry) in
        [(ReplyStyle::Structured, 5, 4, 8), (ReplyStyle::Extended, 6, 8, 16)]
    {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        server.disk[512..1024].fill(1);
        let all = ask(&mut server, style, BLOCK_STATUS, 0, (0, 4096));
        assert_eq!((all.len(), all[0].kind), (1, Some(kind)));
        assert_eq!(all[0].payload[..4], [0, 0, 0, 1]);
        assert_eq!(all[0].payload.len(), head + 3 * entry);
        let one = ask(&mut server, style, BLOCK_STATUS, REQ_ONE, (0, 4096));
        assert_eq!(one[0].payload.len(), head + entry);
    }
}

#[test]
fn a_disconnect_is_not_answered_and_comes_after_the_replies_before_it() {
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        let read = request(style, READ, 0, 0, 512);
        let wire = [&read[..], &read, &request(style, DISC, 0, 0, 0), &read].concat();
        server.feed(&wire);
        assert_eq!(server.closed(), Some(CloseReason::Disconnected));
        assert!(CloseReason::Disconnected.is_graceful());
        assert_eq!(replies(&server.out, 512).len(), 2, "and nothing after it is answered");
    }
}

#[test]
fn errors_of_reads_are_chunks_where_chunks_were_agreed_on() {
    for style in [ReplyStyle::Structured, ReplyStyle::Extended] {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        let replies = ask(&mut server, style, READ, 1 << 9, (0, 512));
        assert_eq!((replies[0].kind, replies[0].error), (Some(0x8001), 22));
        let text = &replies[0].payload[6..];
        let length = u16::from_be_bytes(replies[0].payload[4..6].try_into().unwrap());
        assert_eq!(usize::from(length), text.len());
        assert!(std::str::from_utf8(text).unwrap().contains("flag"));
    }
}

#[test]
fn a_server_that_shuts_down_refuses_new_requests_but_still_takes_leave() {
    for style in STYLES {
        let mut server = MemoryServer::transmitting(style, export("disk"));
        let Phase::Transmission(session) = &mut server.phase else { panic!() };
        session.shut_down();
        for command in [WRITE, TRIM] {
            assert_eq!(error(&mut server, style, command, 0, (0, 512)), 108);
        }
        assert_eq!(error(&mut server, style, FLUSH, 0, (0, 0)), 108);
        assert!(server.requests.is_empty());
        server.feed(&request(style, DISC, 0, 0, 0));
        assert_eq!(server.closed(), Some(CloseReason::Disconnected));
    }
}

#[test]
fn the_driver_can_read_a_payload_itself() {
    let mut server = MemoryServer::transmitting(ReplyStyle::Simple, export("disk"));
    let Phase::Transmission(session) = &mut server.phase else { panic!() };
    let wire = compact(WRITE, 0, 9, 0, 4096);
    let mut out = Vec::new();
    let mut input = &wire[..];
    use forebay_nbd::server::Event;
    assert!(matches!(session.receive(&mut input, &mut out), Event::Request(_)));
    session.payload_received(1000);
    assert_eq!(session.receive(&mut input, &mut out), Event::Payload(3096));
    session.payload_received(3096);
    assert_eq!(session.receive(&mut input, &mut out), Event::NeedInput);
}

#[test]
fn codes_the_protocol_reserves_are_not_sent_for_other_requests() {
    let style = ReplyStyle::Simple;
    let write = forebay_nbd::Request {
        cookie: forebay_nbd::Cookie(1),
        command: Command::Write,
        flags: CommandFlags::NONE,
        offset: 0,
        length: 512,
    };
    for code in [ErrorCode::NotSupported, ErrorCode::Overflow] {
        assert_eq!(style.error(&write, code)[4..8], 22u32.to_be_bytes());
    }
}
