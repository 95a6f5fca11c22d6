//! The handshake of a connection: bounded in time, whatever the client sends or leaves unread.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_nbd::Exports;
use forebay_nbd::server::{CloseReason, Handshake, HandshakeEvent, ServerConfig, Transmission};
use socket2::Socket;

use super::connection::End;
use super::input::Input;
use crate::listener::send;
use crate::wait::{self, Interest};

/// Runs the handshake with a client, until the client has chosen an export.
pub(super) fn shake_hands(
    socket: &Socket,
    input: &mut Input,
    exports: &(impl Exports + ?Sized),
    time: Duration,
    stopping: &AtomicBool,
) -> Result<Box<Transmission>, End> {
    let until = Instant::now() + time;
    let mut out = Vec::new();
    let mut handshake = Handshake::start(ServerConfig::default(), &mut out);
    loop {
        let mut unread = input.unread();
        let event = handshake.receive(&mut unread, exports, &mut out);
        let left = unread.len();
        input.keep(left);
        send_all(socket, &out, until)?;
        out.clear();
        match event {
            HandshakeEvent::Ready(transmission) => return Ok(transmission),
            HandshakeEvent::Answered => {}
            HandshakeEvent::NeedInput => {
                if stopping.load(Ordering::Relaxed) {
                    handshake.shut_down();
                }
                wait(socket, Interest { readable: true, ..Interest::default() }, until)?;
                let mut reader = socket;
                if input.fill(&mut reader, &mut []).map_err(|_| End::Socket)? == (0, 0) {
                    return Err(End::Closed(handshake.end_of_input(left)));
                }
            }
            HandshakeEvent::Close(reason) => return Err(End::Closed(reason)),
            // TLS is not offered, so the state machine refuses it on its own.
            HandshakeEvent::StartTls => return Err(End::Closed(CloseReason::Aborted)),
        }
    }
}

fn send_all(socket: &Socket, mut bytes: &[u8], until: Instant) -> Result<(), End> {
    while !bytes.is_empty() {
        match send(socket, &[io::IoSlice::new(bytes)]) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                wait(socket, Interest { writable: true, ..Interest::default() }, until)?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(End::Socket),
        }
    }
    Ok(())
}

fn wait(socket: &Socket, interest: Interest, until: Instant) -> Result<(), End> {
    loop {
        // Check the time first; otherwise, a client that sends a byte now and then would never be
        // late.
        let now = Instant::now();
        if now >= until {
            return Err(End::HandshakeTimeout);
        }
        let ready = wait::either(socket.as_raw_fd(), interest, None, Some(until - now));
        let ready = ready.map_err(|_| End::Socket)?;
        if ready.readable || ready.writable {
            return Ok(());
        }
    }
}
