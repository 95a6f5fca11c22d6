//! Benchmarks the codec: nanoseconds per request in the server half, without sockets.
//!
//!     cargo bench -p forebay-nbd
//!
//! Parses a buffer of pipelined requests, as one socket read delivers them, and encodes the reply
//! headers. No payload is copied: read data is not produced, and write payloads are skipped in
//! place.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use forebay_block::Volume;
use forebay_nbd::server::{Event, Handshake, HandshakeEvent, ServerConfig, Transmission};
use forebay_nbd::{
    Command, CommandFlags, Cookie, ExportInfo, ReplyStyle, Request, TransmissionFlags,
};

const BATCH: u64 = 64;
const ROUNDS: u64 = 200_000;

fn main() {
    for style in [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended] {
        for command in [Command::Read, Command::Write, Command::Trim] {
            let ns = measure(style, command);
            let _ = writeln!(std::io::stdout(), "{style:?} {command:?}: {ns:.1} ns a request");
        }
    }
}

fn measure(style: ReplyStyle, command: Command) -> f64 {
    let mut session = session(style);
    let style = session.reply_style();
    let mut wire = Vec::new();
    for n in 0..BATCH {
        let (cookie, flags) = (Cookie(n), CommandFlags::NONE);
        let request = Request { cookie, command, flags, offset: n * 4096, length: 4096 };
        wire.extend_from_slice(&request.encode(style == ReplyStyle::Extended));
        wire.resize(wire.len() + request.payload_bytes() as usize, 0);
    }
    let mut out = Vec::with_capacity(1 << 16);
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        let mut input = black_box(&wire[..]);
        out.clear();
        while let Event::Request(request) = session.receive(&mut input, &mut out) {
            let header = match request.command {
                Command::Read => style.data(&request),
                _ => {
                    black_box(session.take_payload(&mut input));
                    style.done(&request)
                }
            };
            out.extend_from_slice(&header);
        }
        black_box(&out);
    }
    begun.elapsed().as_nanos() as f64 / (ROUNDS * BATCH) as f64
}

fn session(best_style: ReplyStyle) -> Transmission {
    let mut export = ExportInfo::new(Volume(0), "disk", 1 << 30);
    export.features = export.features | TransmissionFlags::SEND_TRIM;
    let mut wire = b"\0\0\0\x03".to_vec();
    let style = match best_style {
        ReplyStyle::Simple => 99u32, // an unknown option
        ReplyStyle::Structured => 8,
        ReplyStyle::Extended => 11,
    };
    wire.extend_from_slice(b"IHAVEOPT");
    wire.extend_from_slice(&style.to_be_bytes());
    wire.extend_from_slice(b"\0\0\0\0IHAVEOPT\0\0\0\x07\0\0\0\x0a\0\0\0\x04disk\0\0");
    let (mut out, mut input) = (Vec::new(), &wire[..]);
    let mut handshake = Handshake::start(ServerConfig::default(), &mut out);
    loop {
        match handshake.receive(&mut input, &[export.clone()][..], &mut out) {
            HandshakeEvent::Ready(session) => return *session,
            HandshakeEvent::Answered => {}
            event => panic!("the handshake ended with {event:?}"),
        }
    }
}
