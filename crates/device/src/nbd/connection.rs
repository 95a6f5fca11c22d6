//! One connection to an export: many requests in flight, one thread, no blocking.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use forebay_block::{Flags, Op};
use forebay_effect::{IoError, Outcome};
use forebay_nbd::client::{
    ClientConfig, ClientError, ClientEvent, Handshake, HandshakeEvent, RemoteExport, Transmission,
};
use forebay_nbd::{
    Command, CommandFlags, ErrorCode, NbdUri, Refusal, ReplyStyle, RequestHeader, StatusExtent,
    TransmissionFlags,
};

use super::error::NbdError;
use super::stream::{SilenceWatch, Stream};
use crate::buffer::AlignedBuffer;

/// Size of the receive buffer in bytes: room for the replies to many small reads at once.
const INPUT_BYTES: usize = 256 << 10;
/// Maximum number of pieces in one system call.
const PIECES_MAX: usize = 256;

/// Maximum number of events that [`Connection::receive`] processes before it returns.
const EVENTS_MAX: usize = 1024;
/// How long the handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);
/// How long the server's host may owe a TCP acknowledgement.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Maximum number of extents kept from one answer.
const EXTENTS_MAX: usize = 4096;

/// A session in its transmission phase.
#[derive(Debug)]
pub struct Connection {
    uri: NbdUri,
    stream: Stream,
    session: Transmission,
    input: Box<[u8]>,
    /// The start of the unprocessed input.
    start: usize,
    end: usize,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    out: VecDeque<Piece>,
    /// Bytes of the first piece that have been sent.
    sent: usize,
    in_flight: u32,
    /// The slot whose data is arriving, and the place of its next byte.
    filling: (usize, usize),
    /// Detects when the server's host falls silent.
    watch: SilenceWatch,
    /// Whether a request was abandoned, so that the server could mistake what is sent next for the
    /// rest of its data.
    cut_short: bool,
}

/// A request, with its data.
#[derive(Debug)]
pub struct Job {
    /// The sender's identifier.
    pub tag: u64,
    /// The operation.
    pub op: Op,
    /// Modifies how the operation is carried out.
    pub flags: Flags,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub length: u64,
    /// The data of a write, or room for the data of a read: at least `length` bytes for both.
    pub buffer: Option<AlignedBuffer>,
    /// If set for a read, the server is asked for the block status of the range, which goes here,
    /// instead of for its data.
    pub status: Option<Vec<StatusExtent>>,
}

/// An ended request.
#[derive(Debug)]
pub struct Ended {
    /// The request as submitted; after a successful read the buffer holds its data.
    pub job: Job,
    /// Its result.
    pub result: Outcome,
}

/// A request in flight.
#[derive(Debug)]
struct Slot {
    job: Job,
    /// Whether a flush must follow, because the request is to be durable and the server has no FUA.
    flush_after: bool,
}

/// A piece of output: a header, or the data of a write.
#[derive(Debug)]
enum Piece {
    Header(RequestHeader),
    Data(u32),
}

impl Connection {
    /// Connects and negotiates. At most `depth_max` requests can be in flight. `allocation` says
    /// whether to negotiate block status queries.
    ///
    /// # Errors
    /// If the server cannot be reached, does not have the export, or requires TLS.
    pub fn open(uri: &NbdUri, depth_max: u32, allocation: bool) -> Result<Connection, NbdError> {
        if uri.tls {
            return Err(NbdError::Tls(uri.to_string()));
        }
        let failed = |action| socket_error(uri, action);
        let mut stream = Stream::connect(&uri.address).map_err(failed("connect"))?;
        let config =
            ClientConfig { allocation, depth_max, ..ClientConfig::connect(uri.export.clone()) };
        let mut input = vec![0; INPUT_BYTES].into_boxed_slice();
        let until = Instant::now() + HANDSHAKE_MAX;
        let (session, end) = shake_hands(uri, &mut stream, config, &mut input, until)?;
        stream.do_not_wait().map_err(failed("set up the socket"))?;
        Ok(Connection {
            uri: uri.clone(),
            stream,
            session,
            input,
            start: 0,
            end,
            slots: (0..depth_max).map(|_| None).collect(),
            free: (0..depth_max).rev().collect(),
            out: VecDeque::new(),
            sent: 0,
            in_flight: 0,
            filling: (0, 0),
            watch: SilenceWatch::new(SILENCE_MAX),
            cut_short: false,
        })
    }

    /// The server's description of the export.
    pub fn export(&self) -> &RemoteExport {
        self.session.export()
    }

    /// Whether the server supports block status queries.
    pub fn has_allocation(&self) -> bool {
        self.session.has_allocation()
    }

    /// The encoding of replies.
    pub fn reply_style(&self) -> ReplyStyle {
        self.session.reply_style()
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether there is no room for another request.
    pub fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Whether output is waiting for room in the socket.
    pub fn wants_to_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// The time until the next [`check`](Connection::check); `None` if no request is in flight.
    pub fn check_due(&self) -> Option<Duration> {
        (self.in_flight > 0).then(|| self.watch.left())
    }

    /// Checks, if a check is due, whether the server's host is silent although it owes an
    /// acknowledgement. (While no request is in flight, the kernel checks this.)
    ///
    /// # Errors
    /// If it is silent: no request will be answered.
    pub fn check(&mut self) -> Result<(), NbdError> {
        if self.in_flight > 0 && self.watch.is_lost(&self.stream) {
            let lost = io::Error::from_raw_os_error(libc::ETIMEDOUT);
            return Err(socket_error(&self.uri, "read a reply")(lost));
        }
        Ok(())
    }

    /// Sets how long the server's host may be silent.
    #[cfg(test)]
    pub(super) fn set_silence_max(&mut self, time: Duration) {
        self.watch = SilenceWatch::new(time);
    }

    /// Accepts a request, which [`send`](Connection::send) sends; there must be room for it. A
    /// request that is not accepted ends at once and is appended to `done`.
    ///
    /// # Errors
    /// If the session has failed.
    ///
    /// # Panics
    /// If there is no room for the request.
    pub fn submit(&mut self, job: Job, done: &mut Vec<Ended>) -> Result<(), NbdError> {
        let offers = |feature| self.export().features.contains(feature);
        let fua = job.op.modifies() && job.flags.contains(Flags::FUA);
        let flush_after =
            fua && !offers(TransmissionFlags::SEND_FUA) && offers(TransmissionFlags::SEND_FLUSH);
        let zero = job.op == Op::WriteZeroes;
        let flags = CommandFlags::NONE
            .with_if(fua && offers(TransmissionFlags::SEND_FUA), CommandFlags::FUA)
            .with_if(zero && job.flags.contains(Flags::NO_HOLE), CommandFlags::NO_HOLE)
            .with_if(
                zero && job.flags.contains(Flags::FAST_ZERO)
                    && offers(TransmissionFlags::SEND_FAST_ZERO),
                CommandFlags::FAST_ZERO,
            );
        let command = match job.op {
            Op::Read if job.status.is_some() => Command::BlockStatus,
            Op::Read => Command::Read,
            Op::Write => Command::Write,
            Op::Trim => Command::Trim,
            Op::Flush => Command::Flush,
            Op::WriteZeroes => Command::WriteZeroes,
        };
        let index = self.free.pop().expect("the caller has checked that there is room");
        match self.session.submit(index.into(), command, flags, job.offset, job.length) {
            Ok(header) => self.out.push_back(Piece::Header(header)),
            Err(ClientError::Request(refusal)) => {
                self.free.push(index);
                let error = match refusal {
                    Refusal::ReadOnly => IoError::ReadOnly,
                    _ => IoError::Invalid,
                };
                done.push(Ended { job, result: Err(error) });
                return Ok(());
            }
            Err(error) => {
                self.free.push(index);
                done.push(Ended { job, result: Err(IoError::Shutdown) });
                return Err(self.session_error(error));
            }
        }
        if job.op == Op::Write {
            self.out.push_back(Piece::Data(index));
        }
        self.slots[index as usize] = Some(Slot { job, flush_after });
        self.in_flight += 1;
        Ok(())
    }

    /// Sends as much as the socket accepts.
    ///
    /// # Errors
    /// If the session has failed.
    pub fn send(&mut self) -> Result<(), NbdError> {
        while !self.out.is_empty() {
            let written = {
                let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
                let mut count = 0;
                for (piece, into) in self.out.iter().zip(&mut pieces) {
                    let bytes = bytes_of(&self.slots, piece);
                    *into = IoSlice::new(if count == 0 { &bytes[self.sent..] } else { bytes });
                    count += 1;
                }
                self.stream.write(&pieces[..count])
            };
            match written.map_err(socket_error(&self.uri, "send a request"))? {
                Some(bytes) => self.take_out(bytes),
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Processes received data. Returns whether some may be left: one call processes a limited
    /// amount, so that the caller can do other work, and the socket need not become readable again
    /// for the rest.
    ///
    /// # Errors
    /// If the session has failed.
    pub fn receive(&mut self, done: &mut Vec<Ended>) -> Result<bool, NbdError> {
        for _ in 0..EVENTS_MAX {
            let mut unread = &self.input[self.start..self.end];
            let event = self.session.receive(&mut unread);
            let left = unread.len();
            self.start = self.end - left;
            match event {
                ClientEvent::Data { tag, at, length } => {
                    self.filling = (tag as usize, at as usize);
                    if !self.take_data(length as usize)? {
                        return Ok(false);
                    }
                }
                ClientEvent::Payload(missing) => {
                    if !self.take_data(missing as usize)? {
                        return Ok(false);
                    }
                }
                ClientEvent::Zeroes { tag, at, length } => {
                    let room = buffer(&mut self.slots, tag as usize);
                    room[at as usize..(at + length) as usize].fill(0);
                }
                ClientEvent::Done { tag, result } => self.end_request(tag, result, done)?,
                ClientEvent::Extent { tag, extent } => {
                    let slot = self.slots[tag as usize].as_mut();
                    if let Some(status) = slot.and_then(|slot| slot.job.status.as_mut())
                        && status.len() < EXTENTS_MAX
                    {
                        status.push(extent);
                    }
                }
                ClientEvent::Failed(error) => return Err(self.session_error(error)),
                ClientEvent::NeedInput => {
                    if !self.fill()? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Copies data to its place. Returns false if not all of it has arrived.
    fn take_data(&mut self, missing: usize) -> Result<bool, NbdError> {
        let (slot, mut at) = self.filling;
        let mut missing = missing;
        let mut unread = &self.input[self.start..self.end];
        let payload = self.session.take_payload(&mut unread);
        let room = buffer(&mut self.slots, slot);
        room[at..at + payload.len()].copy_from_slice(payload);
        self.start += payload.len();
        (at, missing) = (at + payload.len(), missing - payload.len());
        let mut all = true;
        // Read the data that is not in the input buffer straight from the socket into its place.
        while missing > 0 {
            let read = self.stream.read(&mut room[at..at + missing]);
            match read.map_err(socket_error(&self.uri, "read a reply"))? {
                None => {
                    all = false;
                    break;
                }
                Some(0) => {
                    let error = self.session.end_of_input();
                    return Err(self.session_error(error));
                }
                Some(bytes) => {
                    self.session.payload_received(bytes as u64);
                    (at, missing) = (at + bytes, missing - bytes);
                }
            }
        }
        self.filling = (slot, at);
        Ok(all)
    }

    /// Reads more input. Returns false if there is none yet.
    fn fill(&mut self) -> Result<bool, NbdError> {
        self.input.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let read = self.stream.read(&mut self.input[self.end..]);
        match read.map_err(socket_error(&self.uri, "read a reply"))? {
            None => Ok(false),
            Some(0) => {
                let error = self.session.end_of_input();
                Err(self.session_error(error))
            }
            Some(bytes) => {
                self.end += bytes;
                Ok(true)
            }
        }
    }

    fn end_request(
        &mut self,
        tag: u64,
        result: Result<(), ErrorCode>,
        done: &mut Vec<Ended>,
    ) -> Result<(), NbdError> {
        let slot = &mut self.slots[tag as usize];
        if let Some(Slot { flush_after, .. }) = slot
            && result.is_ok()
            && std::mem::take(flush_after)
        {
            let flush = self.session.submit(tag, Command::Flush, CommandFlags::NONE, 0, 0);
            let header = flush.map_err(|error| self.session_error(error))?;
            self.out.push_back(Piece::Header(header));
            return Ok(());
        }
        let unsent = |piece: &Piece| matches!(piece, Piece::Data(slot) if u64::from(*slot) == tag);
        if self.out.iter().any(unsent) {
            let what = "a reply to a write that was not sent completely";
            return Err(self.session_error(ClientError::Protocol(what)));
        }
        if let Some(Slot { job, .. }) = slot.take() {
            self.free.push(tag as u32);
            self.in_flight -= 1;
            done.push(Ended { job, result: outcome(result) });
        }
        Ok(())
    }

    /// Takes the requests in flight out of a failed session. Whether the server executed them is
    /// unknown.
    pub fn abandon(&mut self) -> impl Iterator<Item = Job> {
        self.cut_short |= self.in_flight > 0 || !self.out.is_empty();
        self.out.clear();
        self.in_flight = 0;
        self.slots.iter_mut().filter_map(|slot| Some(slot.take()?.job))
    }

    /// Records that `bytes` bytes have been sent.
    fn take_out(&mut self, bytes: usize) {
        self.sent += bytes;
        while let Some(piece) = self.out.front() {
            let length = bytes_of(&self.slots, piece).len();
            if self.sent < length {
                return;
            }
            self.sent -= length;
            self.out.pop_front();
        }
    }

    fn session_error(&self, source: ClientError) -> NbdError {
        NbdError::Session { address: self.uri.to_string(), source }
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.in_flight == 0 && self.out.is_empty() && !self.cut_short {
            // If this fails, the server sees the end of the stream instead.
            let _ = self.stream.write_all(&self.session.disconnect());
        }
    }
}

/// Performs the handshake, blocking until `until` at most. Returns the session, and the number of
/// bytes of `input` that follow the handshake.
pub(super) fn shake_hands(
    uri: &NbdUri,
    stream: &mut Stream,
    config: ClientConfig,
    input: &mut [u8],
    until: Instant,
) -> Result<(Transmission, usize), NbdError> {
    let nbd = |source| NbdError::Session { address: uri.to_string(), source };
    let mut handshake = Handshake::start(config);
    let mut out = Vec::new();
    let mut end = 0;
    loop {
        let mut unread = &input[..end];
        let event = handshake.receive(&mut unread, &mut out);
        let left = unread.len();
        input.copy_within(end - left..end, 0);
        end = left;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let error = io::ErrorKind::TimedOut.into();
            return Err(socket_error(uri, "receive from the server")(error));
        }
        stream.wait_at_most(left).map_err(socket_error(uri, "set up the socket"))?;
        stream.write_all(&out).map_err(socket_error(uri, "negotiate with the server"))?;
        out.clear();
        match event {
            HandshakeEvent::Ready(session) => return Ok((*session, end)),
            HandshakeEvent::Failed(error) => return Err(nbd(error)),
            HandshakeEvent::NeedInput => {
                let read = stream.read(&mut input[end..]);
                match read.map_err(socket_error(uri, "receive from the server"))? {
                    Some(0) => return Err(nbd(handshake.end_of_input())),
                    Some(bytes) => end += bytes,
                    // The time is up, or a signal interrupted the read.
                    None => {}
                }
            }
            HandshakeEvent::StartTls | HandshakeEvent::Described(_) | HandshakeEvent::Listed(_) => {
                return Err(nbd(ClientError::Protocol("a reply that matches no request")));
            }
        }
    }
}

fn socket_error(uri: &NbdUri, action: &'static str) -> impl Fn(io::Error) -> NbdError {
    let address = uri.to_string();
    move |source| NbdError::Socket { address: address.clone(), action, source }
}

/// The buffer of a read in flight.
fn buffer(slots: &mut [Option<Slot>], slot: usize) -> &mut [u8] {
    let job = slots[slot].as_mut().map(|slot| &mut slot.job);
    let length = job.as_ref().map_or(0, |job| job.length as usize);
    job.and_then(|job| job.buffer.as_mut()).map_or(&mut [], |buffer| &mut buffer[..length])
}

fn bytes_of<'a>(slots: &'a [Option<Slot>], piece: &'a Piece) -> &'a [u8] {
    match piece {
        Piece::Header(header) => header,
        Piece::Data(slot) => {
            let job = slots[*slot as usize].as_ref().map(|slot| &slot.job);
            let length = job.map_or(0, |job| job.length as usize);
            job.and_then(|job| job.buffer.as_ref()).map_or(&[], |buffer| &buffer[..length])
        }
    }
}

fn outcome(result: Result<(), ErrorCode>) -> Outcome {
    result.map_err(|code| match code {
        ErrorCode::NotPermitted => IoError::ReadOnly,
        ErrorCode::Invalid | ErrorCode::Overflow => IoError::Invalid,
        ErrorCode::NoSpace => IoError::NoSpace,
        ErrorCode::NotSupported => IoError::Unsupported,
        ErrorCode::Shutdown => IoError::Shutdown,
        _ => IoError::Device,
    })
}
