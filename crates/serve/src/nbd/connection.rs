//! One client, from the handshake to the end of its connection.
//!
//! All requests from one read of the socket are submitted to the engine together, and the answers
//! that are ready at once are sent together. While nothing is in flight, the thread sleeps in
//! `read`; otherwise it waits for the socket and for answers. Sending never blocks: a client that
//! reads no answers may send more requests until its memory ([`Memory`]) is used up. Then its
//! socket is not read until the client reads answers. Such a client delays only itself.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_block::{Content, Flags, Nanos, Op, SECTOR_BYTES};
use forebay_device::AlignedBuffer;
use forebay_effect::{IoError, Outcome};
use forebay_engine::{Done, Session, Submission};
use forebay_nbd::server::{CloseReason, Event, Transmission};
use forebay_nbd::{
    Command, CommandFlags, ErrorCode, ReplyStyle, Request, StatusExtent, StatusFlags,
};
use socket2::Socket;

use super::budget::Budget;
use super::exports::PAYLOAD_BYTES_MAX;
use super::input::{INPUT_BYTES_MIN, Input};
use super::limits::Limits;
use super::memory::{Memory, REQUEST_BYTES};
use super::output::Output;
use super::visitors::Visit;
use crate::listener::send;
use crate::record::Notes;
use crate::wait::{self, Interest};

/// Limit, in bytes, on the cost of one connection's requests and of its answers that wait to be
/// sent. Below it, the next request is accepted whatever its size.
const HELD_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX as u64;
/// Maximum number of requests of one connection in flight.
const IN_FLIGHT_MAX: usize = 1024;
/// Maximum number of bytes that a CACHE request brings in: it is only a hint.
const PREFETCH_BYTES_MAX: u64 = 4 << 20;
/// After this time without activity of its client, a connection gives back the memory that it
/// keeps. Also how often a connection that holds more than its share checks whether it is overdue.
const REST: Duration = Duration::from_secs(1);
/// Minimum speed of a client, in bytes per second: a client may take [`Limits::stall`] longer than
/// this speed requires.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// Maximum number of extents in one answer to BLOCK_STATUS, and the bytes of each.
const EXTENTS_MAX: u64 = 1024;
const EXTENT_BYTES: u64 = 16;
/// Capacity that a list keeps when it uses less.
const PLACES_KEPT: usize = 64;

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// By the protocol: the client disconnected, or broke a rule.
    Closed(CloseReason),
    /// The socket failed, or the client vanished.
    Socket,
    /// The handshake took too long.
    HandshakeTimeout,
    /// Nothing happened for too long.
    Idle,
    /// The client held memory for too long while others waited for it.
    Stalled,
}

/// The parts of the server that a connection uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    pub budget: &'a Arc<Budget>,
    pub limits: Limits,
    pub stopping: &'a AtomicBool,
    /// Set while the client waits for the server, rather than the server for the client.
    pub busy: &'a AtomicBool,
    /// Set while the server reads no requests only because the client takes no replies.
    pub choked: &'a AtomicBool,
}

/// A write whose data has not all arrived.
struct Partial {
    request: Request,
    cost: u64,
    buffer: AlignedBuffer,
    filled: usize,
    since: Instant,
}

/// A request in flight, and what it costs.
#[derive(Clone, Copy)]
struct Slot {
    request: Request,
    cost: u64,
}

/// Why requests that have been read are not accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Starved {
    /// They are accepted.
    No,
    /// Too many requests are in flight, or too much waits to be sent.
    Room,
    /// Memory was missing when this many releases had been counted.
    Memory(u64),
}

/// A connection in transmission.
pub(super) struct Connection<'a> {
    style: ReplyStyle,
    transmission: Box<Transmission>,
    socket: &'a Socket,
    input: Input,
    session: Session,
    notes: Option<Notes>,
    around: Surroundings<'a>,
    memory: Memory,
    output: Output,
    /// A request for which memory has not been reserved yet.
    pending: Option<Request>,
    payload: Option<Partial>,
    /// Requests in flight, by their tag in the engine.
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The cost, in bytes, of requests in flight and of answers that wait to be sent.
    held_bytes: u64,
    /// A refusal for which no memory was reserved waits to be sent.
    unpaid: bool,
    starved: Starved,
    /// When the client was last active.
    active: Instant,
    /// Whether the connection has given back the memory that it kept since then.
    rested: bool,
    submissions: Vec<Submission>,
    done: Vec<Done>,
}

impl<'a> Connection<'a> {
    /// Continues a connection after its handshake.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn new(
        socket: &'a Socket,
        transmission: Box<Transmission>,
        input: Input,
        mut session: Session,
        notes: Option<Notes>,
        around: Surroundings<'a>,
    ) -> io::Result<Connection<'a>> {
        // To be hashed, data must lie in one buffer, so it cannot be borrowed.
        if !notes.as_ref().is_some_and(Notes::hashes) {
            session.borrow();
        }
        socket.set_read_timeout(Some(REST))?;
        let mut memory = Memory::new(around.budget.clone(), session.bell().clone());
        memory.reserve(INPUT_BYTES_MIN as u64);
        Ok(Connection {
            style: transmission.reply_style(),
            transmission,
            socket,
            input,
            session,
            notes,
            around,
            memory,
            output: Output::default(),
            pending: None,
            payload: None,
            slots: Vec::new(),
            free: Vec::new(),
            held_bytes: 0,
            unpaid: false,
            starved: Starved::No,
            active: Instant::now(),
            rested: false,
            submissions: Vec::new(),
            done: Vec::new(),
        })
    }

    /// Serves a client until it leaves, misbehaves, or the server stops.
    ///
    /// The place of a client that has left is free at once, even if its last requests take long.
    pub fn serve(mut self, visit: Visit<'_>) -> End {
        let end = self.transmit();
        let end = match self.says_goodbye(&end) {
            true => {
                visit.is_read();
                self.finish(end)
            }
            false => {
                // The client may send its requests again on another connection.
                self.session.abandon();
                let _ = self.socket.shutdown(Shutdown::Both);
                end
            }
        };
        drop(visit);
        self.wait_for_unanswered();
        end
    }

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
            // The answers just sent may have made room for requests that have been read already.
            let again = match self.starved {
                Starved::No => false,
                Starved::Room => self.has_room(),
                Starved::Memory(releases) => self.memory.releases() > releases,
            };
            if again {
                continue;
            }
            match self.receive() {
                Ok(None) => {}
                Ok(Some(end)) => return end,
                Err(_) => return End::Socket,
            }
        }
    }

    /// Accepts as many of the requests that have been read as there is room and memory for.
    fn parse(&mut self) -> Option<CloseReason> {
        let mut input = std::mem::replace(&mut self.input, Input::empty());
        let mut unread = input.unread();
        let mut close = None;
        self.starved = Starved::No;
        while self.payload.is_none() {
            if let Some(request) = self.pending {
                let bytes = data_bytes(&request);
                if !self.memory.reserve(Memory::cost(bytes)) {
                    self.starved = Starved::Memory(self.memory.releases());
                    break;
                }
                self.pending = None;
                self.held_bytes += Memory::cost(bytes);
                self.take(request, bytes, &mut unread);
                continue;
            }
            if !self.has_room() {
                self.starved = Starved::Room;
                break;
            }
            match self.transmission.receive(&mut unread, self.output.heads()) {
                Event::Request(request) => self.pending = Some(request),
                Event::NeedInput => break,
                Event::Rejected(..) => self.pay(),
                Event::Payload(_) => {}
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

    /// Accepts a request for which memory has been reserved.
    fn take(&mut self, request: Request, bytes: u64, unread: &mut &[u8]) {
        let cost = Memory::cost(bytes);
        match request.command {
            Command::Write => {
                let mut buffer = self.memory.buffer(bytes);
                let payload = self.transmission.take_payload(unread);
                buffer[..payload.len()].copy_from_slice(payload);
                let filled = payload.len();
                if (filled as u64) < request.length {
                    let since = Instant::now();
                    self.payload = Some(Partial { request, cost, buffer, filled, since });
                } else {
                    self.enqueue(request, cost, Some(buffer));
                }
            }
            Command::Read | Command::Cache => {
                let buffer = self.memory.buffer(bytes);
                self.enqueue(request, cost, Some(buffer));
            }
            Command::BlockStatus => {
                let tag = self.occupy(Slot { request, cost });
                let volume = self.transmission.export().volume;
                let (offset, length) = (request.offset, request.length);
                self.session.ask_contents(tag, volume, offset, length, extents_max(&request));
            }
            Command::Trim | Command::WriteZeroes | Command::Flush => {
                self.enqueue(request, cost, None);
            }
            Command::Disconnect => self.release(cost),
        }
    }

    /// Reserves memory for a refusal that waits to be sent.
    fn pay(&mut self) {
        if self.memory.reserve_at_once(REQUEST_BYTES) {
            self.held_bytes += REQUEST_BYTES;
            self.output.push(REQUEST_BYTES, self.active);
        } else {
            self.unpaid = true;
        }
    }

    fn release(&mut self, cost: u64) {
        self.held_bytes -= cost;
        self.memory.release(cost);
    }

    fn enqueue(&mut self, request: Request, cost: u64, buffer: Option<AlignedBuffer>) {
        let volume = self.transmission.export().volume;
        let (op, flags, length) = match request.to_block(Nanos(0), volume) {
            Some(r) => (r.op, r.flags, r.length),
            None => (Op::Read, Flags::PREFETCH, request.length.min(PREFETCH_BYTES_MAX)),
        };
        let (tag, offset) = (self.occupy(Slot { request, cost }), request.offset);
        self.submissions.push(Submission { tag, volume, op, flags, offset, length, buffer });
    }

    /// Counts a request as in flight, and returns its tag.
    fn occupy(&mut self, slot: Slot) -> u64 {
        let tag = match self.free.pop() {
            Some(tag) => {
                self.slots[tag as usize] = slot;
                tag
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        tag.into()
    }

    fn submit(&mut self) {
        if !self.submissions.is_empty() {
            self.session.submit(&mut self.submissions, &mut self.done);
        }
    }

    /// Turns the engine's answers into replies.
    fn answer(&mut self) {
        self.answer_statuses();
        if self.done.is_empty() {
            return;
        }
        let mut done = std::mem::take(&mut self.done);
        if let Some(notes) = &self.notes {
            note(notes, &self.session, &self.slots, &done);
        }
        let (now, count) = (Instant::now(), done.len());
        for d in done.drain(..) {
            let Slot { request, cost } = self.slots[d.request.tag as usize];
            self.free.push(d.request.tag as u32);
            let buffer = match (error_code(d.result), d.request.buffer) {
                (Err(code), buffer) => {
                    let reply = self.style.error(&request, code);
                    self.output.heads().extend_from_slice(&reply);
                    buffer
                }
                (Ok(()), Some(buffer)) if request.command == Command::Read => {
                    self.output.heads().extend_from_slice(&self.style.data(&request));
                    if d.lent.is_empty() {
                        self.output.push_data(buffer, request.length as usize, cost, now);
                    } else {
                        // Lent memory costs as much as a buffer: the client holds memory of the
                        // cache.
                        self.output.push_lent(d.lent, cost, now);
                        self.memory.keep(buffer);
                    }
                    continue;
                }
                (Ok(()), buffer) => {
                    self.output.heads().extend_from_slice(&self.style.done(&request));
                    buffer
                }
            };
            buffer.into_iter().for_each(|b| self.memory.keep(b));
            self.output.push(REQUEST_BYTES, now);
            self.release(cost - REQUEST_BYTES);
        }
        if done.capacity() > PLACES_KEPT.max(8 * count) {
            done.shrink_to(PLACES_KEPT);
        }
        self.done = done;
    }

    fn answer_statuses(&mut self) {
        for contents in self.session.contents() {
            let Slot { request, cost } = self.slots[contents.tag as usize];
            self.free.push(contents.tag as u32);
            let heads = self.output.heads();
            match self.style.chunks() {
                Some(chunks) => {
                    let extents = contents.runs.iter().map(|run| StatusExtent {
                        length: run.length,
                        flags: match run.content {
                            Content::Data => StatusFlags::NONE,
                            Content::Zeroes => StatusFlags::ZERO,
                            Content::Hole => StatusFlags::HOLE_ZERO,
                        },
                    });
                    chunks.block_status(&request, extents, heads);
                }
                None => {
                    heads.extend_from_slice(&self.style.error(&request, ErrorCode::Invalid));
                }
            }
            self.output.push(cost, Instant::now());
        }
    }

    /// Sends as much as the socket accepts.
    fn send(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let (memory, held_bytes, socket) = (&mut self.memory, &mut self.held_bytes, self.socket);
        let free = |buffer: Option<AlignedBuffer>, cost| {
            buffer.into_iter().for_each(|b| memory.keep(b));
            *held_bytes -= cost;
            memory.release(cost);
        };
        let sent = self.output.send(|slices| send(socket, slices), free)?;
        if sent {
            self.signs();
        }
        if self.output.is_empty() {
            self.unpaid = false;
        }
        Ok(())
    }

    /// Notes that the client is active.
    fn signs(&mut self) {
        (self.active, self.rested) = (Instant::now(), false);
    }

    /// Waits for input, answers, room to send or a timeout, and processes it.
    fn receive(&mut self) -> io::Result<Option<End>> {
        if self.around.stopping.load(Ordering::Acquire) {
            self.transmission.shut_down();
        }
        // The end of the stream counts only when all requests before it have been accepted.
        let takes_more = self.starved == Starved::No && self.input.has_space();
        let interest = Interest {
            readable: self.payload.is_some() || takes_more,
            writable: !self.output.is_empty(),
            closed: true,
        };
        let busy = self.session.in_flight() > 0 || self.memory.waits();
        self.around.busy.store(busy, Ordering::Release);
        let quiet = !busy && !interest.writable;
        if !(quiet && interest.readable && !self.rested) {
            let socket = self.socket.as_raw_fd();
            let bell = self.session.bell().as_raw_fd();
            let choked = !busy && !interest.readable;
            self.around.choked.store(choked, Ordering::Release);
            let ready = wait::either(socket, interest, Some(bell), self.patience())?;
            self.around.choked.store(false, Ordering::Release);
            if ready.bell {
                self.session.reap(&mut self.done);
            }
            if ready.closed {
                return Ok(Some(End::Socket));
            }
            if !ready.readable {
                let nothing = !ready.bell && !ready.writable;
                return Ok(self.look_at_the_time(nothing));
            }
        }
        let rest = match &mut self.payload {
            Some(partial) => {
                let end = partial.request.length as usize;
                &mut partial.buffer[partial.filled..end]
            }
            None => &mut [][..],
        };
        let mut socket = self.socket;
        let (direct, read) = match self.input.fill(&mut socket, rest) {
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Ok(self.look_at_the_time(true));
            }
            Err(e) => return Err(e),
        };
        if direct + read == 0 {
            let unread = self.input.unread().len();
            return Ok(Some(End::Closed(self.transmission.end_of_input(unread))));
        }
        self.signs();
        if self.input.is_too_small() {
            let more = self.input.capacity();
            if self.memory.reserve_of_share(more as u64) {
                self.input.resize(2 * more);
            }
        }
        if let Some(mut partial) = self.payload.take() {
            self.transmission.payload_received(direct as u64);
            partial.filled += direct;
            if partial.filled as u64 == partial.request.length {
                self.enqueue(partial.request, partial.cost, Some(partial.buffer));
            } else {
                self.payload = Some(partial);
            }
        }
        Ok(None)
    }

    /// How long to wait before the timeouts are checked again.
    fn patience(&self) -> Option<Duration> {
        let rest = (!self.rested || self.memory.is_lent()).then_some(REST);
        // A connection is not idle while its client waits for an answer, however long that takes.
        let left = |idle: Duration| idle.checked_sub(self.active.elapsed()).unwrap_or(REST);
        let idle = self.around.limits.idle.map(left);
        rest.into_iter().chain(idle).min()
    }

    /// Checks the timeouts. Returns why the connection must end if it takes too long. A connection
    /// that is at rest, or whose memory others need, gives back what it does not use.
    fn look_at_the_time(&mut self, nothing: bool) -> Option<End> {
        let wanted = self.memory.is_wanted();
        if wanted && self.is_overdue() {
            return Some(End::Stalled);
        }
        if self.is_idle() {
            return Some(End::Idle);
        }
        if (nothing && self.active.elapsed() >= REST) || wanted {
            self.rest();
        }
        None
    }

    /// Whether the connection waits only for its client, which has been inactive for too long.
    fn is_idle(&self) -> bool {
        let waits_for_client = self.session.in_flight() == 0 && !self.memory.waits();
        waits_for_client
            && self.around.limits.idle.is_some_and(|idle| self.active.elapsed() >= idle)
    }

    /// Whether the client takes too long to send a payload or to read replies.
    fn is_overdue(&self) -> bool {
        let stall = self.around.limits.stall;
        let allowed = stall + Duration::from_secs(self.held_bytes / BYTES_PER_SECOND_MIN);
        let payload = self.payload.as_ref().map(|partial| partial.since);
        let mut waits = payload.into_iter().chain(self.output.waits_since());
        // No progress for some time, or too little progress for a longer time.
        let late =
            |since: Instant| since.max(self.active).elapsed() > stall || since.elapsed() > allowed;
        waits.any(late)
    }

    /// Gives back memory that is not in use.
    fn rest(&mut self) {
        let surplus = self.input.capacity() - INPUT_BYTES_MIN;
        if surplus > 0 && self.input.resize(INPUT_BYTES_MIN) {
            self.memory.release(surplus as u64);
        }
        self.memory.trim();
        self.output.trim();
        if self.free.len() == self.slots.len() {
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
        self.submissions.shrink_to_fit();
        self.done.shrink_to_fit();
        self.rested = true;
    }

    /// Whether the connection ends in order, because the client disconnected or the server stops,
    /// rather than being lost.
    fn says_goodbye(&self, end: &End) -> bool {
        match end {
            // A stop ends the input at any point, even within a request.
            End::Closed(CloseReason::EndOfInput | CloseReason::Truncated(_)) => {
                self.around.stopping.load(Ordering::Acquire)
            }
            End::Closed(reason) => reason.is_graceful(),
            End::Socket | End::HandshakeTimeout | End::Idle | End::Stalled => false,
        }
    }

    /// Answers the requests in flight when a connection ends in order. Returns why the connection
    /// ended.
    fn finish(&mut self, end: End) -> End {
        self.submit();
        if let Some(partial) = self.payload.take() {
            // The rest of the payload will not arrive.
            self.memory.keep(partial.buffer);
            self.release(partial.cost);
        }
        let bell = self.session.bell().clone();
        loop {
            self.answer();
            let busy = self.session.in_flight() > 0;
            self.around.busy.store(busy, Ordering::Release);
            if self.send().is_err() || (!busy && self.output.is_empty()) {
                break;
            }
            let interest = Interest { writable: !self.output.is_empty(), ..Interest::default() };
            let (socket, bell) = (self.socket.as_raw_fd(), Some(bell.as_raw_fd()));
            match wait::either(socket, interest, bell, Some(REST)) {
                Ok(ready) if ready.bell => drop(self.session.reap(&mut self.done)),
                Ok(_) if self.memory.is_wanted() && self.is_overdue() => return End::Stalled,
                Ok(ready) if !ready.writable && self.is_idle() => return End::Idle,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        end
    }

    /// Waits for the requests that were in flight when the client left, and records those that take
    /// effect. The server and its devices decide how long that takes, so other connections get all
    /// other memory at once, and that of each request as soon as it ends.
    fn wait_for_unanswered(&mut self) {
        if let Some(notes) = &self.notes {
            note(notes, &self.session, &self.slots, &self.done);
        }
        self.keep_only_in_flight();
        let (notes, slots, memory) = (&self.notes, &self.slots, &mut self.memory);
        self.session.wait_for_all(|session, done| {
            if let Some(notes) = notes {
                note(notes, session, slots, done);
            }
            done.iter().for_each(|d| memory.release(slots[d.request.tag as usize].cost));
        });
    }

    /// Drops all that only the client could use, and gives back all memory except that of requests
    /// in flight.
    fn keep_only_in_flight(&mut self) {
        let answered = self.done.drain(..).map(|d| d.request.tag as u32);
        self.free.extend(answered);
        self.free.extend(self.session.contents().map(|contents| contents.tag as u32));
        let all: u64 = self.slots.iter().map(|slot| slot.cost).sum();
        let free: u64 = self.free.iter().map(|&tag| self.slots[tag as usize].cost).sum();
        (self.input, self.output) = (Input::empty(), Output::default());
        (self.pending, self.payload) = (None, None);
        self.held_bytes = all - free;
        self.memory.keep_only(self.held_bytes);
    }

    fn has_room(&self) -> bool {
        !self.unpaid
            && self.held_bytes < HELD_BYTES_MAX
            && self.slots.len() - self.free.len() < IN_FLIGHT_MAX
    }
}

/// Records requests that the engine has answered. Hints (CACHE), and requests that the cache never
/// received, are not part of the workload.
fn note(notes: &Notes, session: &Session, slots: &[Slot], done: &[Done]) {
    let command = |d: &Done| slots[d.request.tag as usize].request.command;
    let asked = |d: &&Done| command(d) != Command::Cache && d.result != Err(IoError::Shutdown);
    notes.note(session.now(), done.iter().filter(asked));
}

/// The bytes of memory that a request needs for data.
fn data_bytes(request: &Request) -> u64 {
    match request.command {
        Command::Read | Command::Write => request.length,
        Command::Cache => request.length.min(PREFETCH_BYTES_MAX),
        Command::BlockStatus => extents_max(request) as u64 * EXTENT_BYTES,
        _ => 0,
    }
}

/// Maximum number of extents in the answer to BLOCK_STATUS: the client asks again for the rest.
fn extents_max(request: &Request) -> usize {
    let one = request.flags.contains(CommandFlags::REQ_ONE);
    if one { 1 } else { (request.length / SECTOR_BYTES).clamp(1, EXTENTS_MAX) as usize }
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
