//! Transmission allocates nothing per request, on either side, whatever the reply style.
//! Counted by the allocator, per thread, after one round that fills every reused buffer.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use forebay_nbd::client::{ClientConfig, ClientEvent, HandshakeEvent};
use forebay_nbd::server::Event;
use forebay_nbd::{Command, CommandFlags, ReplyStyle};
use support::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator unchanged; calls are only counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: as the caller guarantees.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A client in the transmission phase, driven by hand: the server's output goes straight into it.
fn client(server: &mut MemoryServer, style: ReplyStyle) -> forebay_nbd::client::Transmission {
    let config = ClientConfig { best_style: style, ..ClientConfig::connect("disk") };
    let mut handshake = forebay_nbd::client::Handshake::start(config);
    loop {
        let mut out = Vec::new();
        let said = server.take_out();
        let event = handshake.receive(&mut &said[..], &mut out);
        server.feed(&out);
        if let HandshakeEvent::Ready(session) = event {
            return *session;
        }
    }
}

#[test]
fn nothing_is_allocated_per_request() {
    for style in [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended] {
        let mut server = MemoryServer::new(Default::default(), vec![export("disk")]);
        let mut client = client(&mut server, style);
        let Phase::Transmission(session) = &mut server.phase else { panic!("no transmission") };
        let disk = [7u8; 4096];
        let (mut wire, mut out) = (Vec::with_capacity(1 << 20), Vec::with_capacity(1 << 20));
        let mut before = 0;
        for round in 0..50 {
            if round == 1 {
                before = ALLOCATIONS.get();
            }
            wire.clear();
            out.clear();
            for tag in 0..32 {
                let (command, flags) = match tag % 4 {
                    0 => (Command::Write, CommandFlags::FUA),
                    1 => (Command::Trim, CommandFlags::NONE),
                    _ => (Command::Read, CommandFlags::NONE),
                };
                let header = client.submit(tag, command, flags, tag * 512, 4096).unwrap();
                wire.extend_from_slice(&header);
                if command == Command::Write {
                    wire.extend_from_slice(&disk);
                }
            }
            let mut input = &wire[..];
            let style = session.reply_style();
            while let Event::Request(request) = session.receive(&mut input, &mut out) {
                match request.command {
                    Command::Read => {
                        out.extend_from_slice(&style.data(&request));
                        out.extend_from_slice(&disk);
                    }
                    _ => {
                        assert_eq!(
                            session.take_payload(&mut input).len() as u64,
                            request.payload_bytes()
                        );
                        out.extend_from_slice(&style.done(&request));
                    }
                }
            }
            let (mut input, mut done) = (&out[..], 0);
            loop {
                match client.receive(&mut input) {
                    ClientEvent::Payload(_) => assert_eq!(client.take_payload(&mut input), disk),
                    ClientEvent::Done { result, .. } => {
                        assert_eq!(result, Ok(()));
                        done += 1;
                    }
                    ClientEvent::NeedInput => break,
                    _ => {}
                }
            }
            assert_eq!(done, 32);
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{style:?}");
    }
}
