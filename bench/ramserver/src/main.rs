//! An NBD server without a cache, over plain memory: the floor that Forebay's hit path is
//! measured against. One thread per connection, requests answered inline, the replies to
//! everything that one socket read brought sent by one call, data straight from memory.
//!
//!     ramserver SOCKET SIZE_BYTES [NAME]

mod ram;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::Arc;

use forebay_block::Volume;
use forebay_nbd::server::{Event, Handshake, HandshakeEvent, ServerConfig, Transmission};
use forebay_nbd::{Command, ExportInfo, Request, TransmissionFlags as F};
use ram::Ram;

const INPUT_BYTES: usize = 256 << 10;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(Ok(size))) = (arguments.next(), arguments.next().map(|s| s.parse()))
    else {
        let _ = writeln!(std::io::stderr(), "usage: ramserver SOCKET SIZE_BYTES [NAME]");
        return ExitCode::from(2);
    };
    match serve(&socket, size, &arguments.next().unwrap_or_else(|| "ram".into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "ramserver: cannot serve on {socket}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(socket: &str, size: usize, name: &str) -> std::io::Result<()> {
    let ram = Arc::new(Ram::new(size)?);
    let mut export = ExportInfo::new(Volume(0), name, size as u64);
    export.description = "memory".into();
    export.features = F::SEND_FLUSH
        | F::SEND_FUA
        | F::SEND_TRIM
        | F::SEND_WRITE_ZEROES
        | F::SEND_FAST_ZERO
        | F::SEND_CACHE
        | F::CAN_MULTI_CONN;
    export.allocation = true;
    let listener = UnixListener::bind(socket)?;
    for connection in listener.incoming() {
        let (ram, export) = (ram.clone(), export.clone());
        let mut connection = connection?;
        std::thread::spawn(move || converse(&mut connection, &ram, &[export]));
    }
    Ok(())
}

/// Serves one client until it leaves or misbehaves: either way the thread ends with it.
fn converse(socket: &mut UnixStream, ram: &Ram, exports: &[ExportInfo]) -> std::io::Result<()> {
    let mut input = Input { buffer: vec![0; INPUT_BYTES], start: 0, end: 0 };
    let mut out = Vec::new();
    let mut handshake = Handshake::start(ServerConfig::default(), &mut out);
    let session = loop {
        let mut unread = input.unread();
        let event = handshake.receive(&mut unread, exports, &mut out);
        let left = unread.len();
        input.keep(left);
        socket.write_all(&out)?;
        out.clear();
        match event {
            HandshakeEvent::Ready(session) => break session,
            HandshakeEvent::Answered => {}
            HandshakeEvent::NeedInput if input.fill(socket)? > 0 => {}
            _ => return Ok(()),
        }
    };
    transmit(
        socket,
        ram,
        *session,
        input,
        Batch { bytes: out, memory: Vec::new(), vectors: Vec::new() },
    )
}

fn transmit(
    socket: &mut UnixStream,
    ram: &Ram,
    mut session: Transmission,
    mut input: Input,
    mut batch: Batch,
) -> std::io::Result<()> {
    let style = session.reply_style();
    loop {
        let mut unread = input.unread();
        loop {
            let request = match session.receive(&mut unread, &mut batch.bytes) {
                Event::Request(request) => request,
                Event::NeedInput => break,
                Event::Rejected(..) | Event::Payload(_) => continue,
                Event::Close(_) => return batch.send(socket, ram),
            };
            match request.command {
                Command::Read => {
                    batch.bytes.extend_from_slice(&style.data(&request));
                    batch.push_memory(&request);
                    if batch.memory.len() >= Batch::READS_MAX {
                        batch.send(socket, ram)?;
                    }
                    continue;
                }
                Command::Write => {
                    let mut at = request.offset;
                    let payload = session.take_payload(&mut unread);
                    ram.write(at, payload);
                    at += payload.len() as u64;
                    // What has not arrived yet goes straight from the socket to its place.
                    while at < request.offset + request.length {
                        let n = ram.read_from(socket, at, request.offset + request.length - at)?;
                        session.payload_received(n);
                        at += n;
                    }
                }
                Command::Trim | Command::WriteZeroes => ram.zero(request.offset, request.length),
                Command::BlockStatus => {
                    if let Some(chunks) = style.chunks() {
                        chunks.block_status(&request, [], &mut batch.bytes);
                    }
                    continue;
                }
                Command::Flush | Command::Cache | Command::Disconnect => {}
            }
            batch.bytes.extend_from_slice(&style.done(&request));
        }
        let left = unread.len();
        input.keep(left);
        batch.send(socket, ram)?;
        if input.fill(socket)? == 0 {
            return Ok(());
        }
    }
}

/// The receive buffer; what is unread lies between `start` and `end`.
struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Forgets all but the last `left` bytes.
    fn keep(&mut self, left: usize) {
        self.start = self.end - left;
    }

    /// Reads more behind what is unread; 0 at the end of the stream.
    fn fill(&mut self, socket: &mut UnixStream) -> std::io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let n = socket.read(&mut self.buffer[self.end..])?;
        self.end += n;
        Ok(n)
    }
}

/// Replies that are to be sent together: bytes, into which stretches of memory are woven.
struct Batch {
    bytes: Vec<u8>,
    memory: Vec<Stretch>,
    vectors: Vec<libc::iovec>,
}

/// `length` bytes of memory at `offset`, to be sent after `after` of the batch's bytes.
struct Stretch {
    after: usize,
    offset: u64,
    length: usize,
}

impl Batch {
    /// Two vectors each, and at most 1,024 in one call.
    const READS_MAX: usize = 500;

    fn push_memory(&mut self, request: &Request) {
        let (offset, length) = (request.offset, request.length as usize);
        self.memory.push(Stretch { after: self.bytes.len(), offset, length });
    }

    fn send(&mut self, socket: &mut UnixStream, ram: &Ram) -> std::io::Result<()> {
        let mut sent = 0;
        let mut vectors = ram::Vectors::with_buffer(std::mem::take(&mut self.vectors));
        for stretch in self.memory.drain(..) {
            vectors.push_bytes(&self.bytes[sent..stretch.after]);
            vectors.push_memory(ram, stretch.offset, stretch.length);
            sent = stretch.after;
        }
        vectors.push_bytes(&self.bytes[sent..]);
        self.vectors = vectors.send(socket)?;
        self.bytes.clear();
        Ok(())
    }
}
