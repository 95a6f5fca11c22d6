//! One client, from its greeting to its leaving.
//!
//! All requests that one read of the socket brought are handed to the engine together, and
//! the answers that came at once are sent together. While nothing is in flight the thread sleeps
//! in `read`; otherwise it waits for the socket and for answers. What a client can make the
//! server hold is bounded: when that is reached its socket is not read until answers are sent.
//! A client that does not read its answers holds up only itself.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_block::{Flags, Nanos, Op};
use forebay_device::AlignedBuffer;
use forebay_effect::{IoError, Outcome};
use forebay_engine::{Done, Session, Submission};
use forebay_nbd::server::{
    CloseReason, Event, Handshake, HandshakeEvent, ServerConfig, Transmission,
};
use forebay_nbd::{Command, ErrorCode, ExportInfo, ReplyStyle, Request};

use super::exports::PAYLOAD_BYTES_MAX;
use super::input::Input;
use super::output::Output;
use crate::record::Notes;
use crate::wait;

/// Bytes of data of one connection's requests in flight. One more request is always taken.
const IN_FLIGHT_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX as u64;
/// Requests of one connection in flight.
const IN_FLIGHT_MAX: usize = 1024;
/// Bytes that a CACHE request brings in at most: it is a hint.
const PREFETCH_BYTES_MAX: u64 = 4 << 20;

/// A stream socket.
pub(super) trait Stream: Read + Write + AsRawFd + Send {}
impl<T: Read + Write + AsRawFd + Send> Stream for T {}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// As the protocol has it: the client said goodbye, or broke a rule.
    Closed(CloseReason),
    /// The socket failed, or the client left without a word.
    Socket,
}

/// Serves a client until it leaves, misbehaves, or the server stops.
pub(super) fn serve<S: Stream>(
    mut socket: S,
    exports: &[ExportInfo],
    mut session: Session,
    notes: Option<Notes>,
    stopping: &AtomicBool,
) -> End {
    let mut input = Input::new();
    let transmission = match shake_hands(&mut socket, &mut input, exports, stopping) {
        Ok(transmission) => transmission,
        Err(end) => return end,
    };
    // A hash is of one piece of memory.
    if !notes.as_ref().is_some_and(Notes::hashes) {
        session.borrow();
    }
    let mut connection = Connection {
        style: transmission.reply_style(),
        transmission,
        socket,
        input,
        session,
        notes,
        stopping,
        output: Output::default(),
        payload: None,
        slots: Vec::new(),
        free: Vec::new(),
        in_flight_bytes: 0,
        starved: false,
        submissions: Vec::new(),
        done: Vec::new(),
    };
    let end = connection.transmit();
    connection.finish(&end);
    end
}

fn shake_hands<S: Stream>(
    socket: &mut S,
    input: &mut Input,
    exports: &[ExportInfo],
    stopping: &AtomicBool,
) -> Result<Box<Transmission>, End> {
    let mut out = Vec::new();
    let mut handshake = Handshake::start(ServerConfig::default(), &mut out);
    loop {
        let mut unread = input.unread();
        let event = handshake.receive(&mut unread, exports, &mut out);
        let left = unread.len();
        input.keep(left);
        socket.write_all(&out).map_err(|_| End::Socket)?;
        out.clear();
        match event {
            HandshakeEvent::Ready(transmission) => return Ok(transmission),
            HandshakeEvent::Answered => {}
            HandshakeEvent::NeedInput => {
                if stopping.load(Ordering::Relaxed) {
                    handshake.shut_down();
                }
                if input.fill(socket, &mut []).map_err(|_| End::Socket)? == (0, 0) {
                    return Err(End::Closed(handshake.end_of_input(left)));
                }
            }
            HandshakeEvent::Close(reason) => return Err(End::Closed(reason)),
            // Not offered, so the state machine refuses it by itself.
            HandshakeEvent::StartTls => return Err(End::Closed(CloseReason::Aborted)),
        }
    }
}

/// A write whose data has not all arrived.
struct Partial {
    request: Request,
    buffer: AlignedBuffer,
    filled: usize,
}

struct Connection<'a, S> {
    style: ReplyStyle,
    transmission: Box<Transmission>,
    socket: S,
    input: Input,
    session: Session,
    notes: Option<Notes>,
    stopping: &'a AtomicBool,
    output: Output,
    payload: Option<Partial>,
    /// Requests in flight, by the tag they have in the engine.
    slots: Vec<Request>,
    free: Vec<u32>,
    in_flight_bytes: u64,
    /// There may be whole requests among what has been read, for which there was no room.
    starved: bool,
    submissions: Vec<Submission>,
    done: Vec<Done>,
}

impl<S: Stream> Connection<'_, S> {
    fn transmit(&mut self) -> End {
        loop {
            let close = self.parse();
            self.submit();
            self.answer();
            if self.send().is_err() {
                return End::Socket;
            }
            if let Some(reason) = close {
                return End::Closed(reason);
            }
            // Answers may have made room for requests that have been read already.
            if self.starved && self.has_room() {
                continue;
            }
            match self.receive() {
                Ok(None) => {}
                Ok(Some(reason)) => return End::Closed(reason),
                Err(_) => return End::Socket,
            }
        }
    }

    /// Takes requests from what has been read, as many as there is room for.
    fn parse(&mut self) -> Option<CloseReason> {
        let mut input = std::mem::replace(&mut self.input, Input::empty());
        let mut unread = input.unread();
        let mut close = None;
        self.starved = false;
        while self.payload.is_none() {
            if !self.has_room() {
                self.starved = true;
                break;
            }
            match self.transmission.receive(&mut unread, self.output.heads()) {
                Event::Request(request) => self.take(request, &mut unread),
                Event::NeedInput => break,
                Event::Rejected(..) | Event::Payload(_) => {}
                Event::Close(reason) => {
                    close = Some(reason);
                    break;
                }
            }
        }
        let left = unread.len();
        input.keep(left);
        self.input = input;
        close
    }

    fn take(&mut self, request: Request, unread: &mut &[u8]) {
        match request.command {
            Command::Write => {
                let mut buffer = self.session.buffer(request.length as usize);
                let payload = self.transmission.take_payload(unread);
                buffer[..payload.len()].copy_from_slice(payload);
                let filled = payload.len();
                if (filled as u64) < request.length {
                    self.payload = Some(Partial { request, buffer, filled });
                } else {
                    self.enqueue(request, Some(buffer));
                }
            }
            Command::Read => {
                let buffer = self.session.buffer(request.length as usize);
                self.enqueue(request, Some(buffer));
            }
            Command::Cache => {
                let bytes = request.length.min(PREFETCH_BYTES_MAX);
                let buffer = self.session.buffer(bytes as usize);
                self.enqueue(request, Some(buffer));
            }
            Command::BlockStatus => match self.style.chunks() {
                // The cache does not know what the store has allocated.
                Some(chunks) => chunks.block_status(&request, [], self.output.heads()),
                None => {
                    let reply = self.style.error(&request, ErrorCode::Invalid);
                    self.output.heads().extend_from_slice(&reply);
                }
            },
            Command::Trim | Command::WriteZeroes | Command::Flush => self.enqueue(request, None),
            Command::Disconnect => {}
        }
    }

    fn enqueue(&mut self, request: Request, buffer: Option<AlignedBuffer>) {
        let volume = self.transmission.export().volume;
        let (op, flags, length) = match request.to_block(Nanos(0), volume) {
            Some(r) => (r.op, r.flags, r.length),
            None => (Op::Read, Flags::NONE, request.length.min(PREFETCH_BYTES_MAX)),
        };
        let tag = match self.free.pop() {
            Some(tag) => {
                self.slots[tag as usize] = request;
                tag
            }
            None => {
                self.slots.push(request);
                self.slots.len() as u32 - 1
            }
        };
        self.in_flight_bytes += buffer.as_ref().map_or(0, |b| b.len() as u64);
        let (tag, offset) = (u64::from(tag), request.offset);
        self.submissions.push(Submission { tag, volume, op, flags, offset, length, buffer });
    }

    fn submit(&mut self) {
        if !self.submissions.is_empty() {
            self.session.submit(&mut self.submissions, &mut self.done);
        }
    }

    /// Turns what the engine has answered into replies.
    fn answer(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        if let (Some(notes), false) = (&self.notes, done.is_empty()) {
            // What was asked for as a hint is no part of the workload.
            let asked = |d: &&Done| self.slots[d.request.tag as usize].command != Command::Cache;
            notes.note(self.session.now(), done.iter().filter(asked));
        }
        for d in done.drain(..) {
            let request = self.slots[d.request.tag as usize];
            self.free.push(d.request.tag as u32);
            self.in_flight_bytes -= d.request.buffer.as_ref().map_or(0, |b| b.len() as u64);
            let buffer = d.request.buffer;
            match (error_code(d.result), buffer) {
                (Err(code), buffer) => {
                    let reply = self.style.error(&request, code);
                    self.output.heads().extend_from_slice(&reply);
                    buffer.into_iter().for_each(|b| self.session.give_back(b));
                }
                (Ok(()), Some(buffer)) if request.command == Command::Read => {
                    self.output.heads().extend_from_slice(&self.style.data(&request));
                    if d.lent.is_empty() {
                        self.output.push_data(buffer, request.length as usize);
                    } else {
                        self.output.push_lent(d.lent);
                        self.session.give_back(buffer);
                    }
                }
                (Ok(()), buffer) => {
                    self.output.heads().extend_from_slice(&self.style.done(&request));
                    buffer.into_iter().for_each(|b| self.session.give_back(b));
                }
            }
        }
        self.done = done;
    }

    fn send(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let session = &mut self.session;
        self.output.send(&mut self.socket, |buffer| session.give_back(buffer))
    }

    /// Waits for something, and takes it in.
    fn receive(&mut self) -> io::Result<Option<CloseReason>> {
        if self.stopping.load(Ordering::Acquire) {
            self.transmission.shut_down();
        }
        let readable = if self.session.in_flight() == 0 {
            true
        } else {
            let socket = self.has_room().then(|| self.socket.as_raw_fd());
            let ready = wait::either(socket, self.session.bell().as_raw_fd())?;
            if ready.bell {
                self.session.reap(&mut self.done);
            }
            ready.socket
        };
        if !readable {
            return Ok(None);
        }
        let rest = match &mut self.payload {
            Some(partial) => {
                let end = partial.request.length as usize;
                &mut partial.buffer[partial.filled..end]
            }
            None => &mut [][..],
        };
        let (direct, read) = self.input.fill(&mut self.socket, rest)?;
        if direct + read == 0 {
            let unread = self.input.unread().len();
            return Ok(Some(self.transmission.end_of_input(unread)));
        }
        if let Some(mut partial) = self.payload.take() {
            self.transmission.payload_received(direct as u64);
            partial.filled += direct;
            if partial.filled as u64 == partial.request.length {
                self.enqueue(partial.request, Some(partial.buffer));
            } else {
                self.payload = Some(partial);
            }
        }
        Ok(None)
    }

    /// Answers what is in flight where the client is still there to hear it.
    fn finish(&mut self, end: &End) {
        let stopping = self.stopping.load(Ordering::Acquire);
        let polite = match end {
            End::Closed(CloseReason::EndOfInput) => stopping,
            End::Closed(reason) => reason.is_graceful(),
            End::Socket => false,
        };
        self.submit();
        if !polite {
            return;
        }
        loop {
            self.answer();
            if self.send().is_err() || self.session.in_flight() == 0 {
                break;
            }
            self.session.wait(None, &mut self.done);
        }
    }

    fn has_room(&self) -> bool {
        self.in_flight_bytes < IN_FLIGHT_BYTES_MAX
            && self.slots.len() - self.free.len() < IN_FLIGHT_MAX
    }
}

fn error_code(result: Outcome) -> Result<(), ErrorCode> {
    result.map_err(|error| match error {
        IoError::NoSpace => ErrorCode::NoSpace,
        IoError::ReadOnly => ErrorCode::NotPermitted,
        IoError::Invalid => ErrorCode::Invalid,
        IoError::Unsupported => ErrorCode::NotSupported,
        IoError::Shutdown => ErrorCode::Shutdown,
        _ => ErrorCode::Io,
    })
}
