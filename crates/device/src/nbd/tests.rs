//! Tests of sessions with servers that pause, fall silent or misbehave.
//!
//! Method: a server in this process performs a correct handshake; each test writes the later
//! messages by hand.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use forebay_block::{Flags, Op, Volume};
use forebay_effect::IoError;
use forebay_nbd::client::ClientConfig;
use forebay_nbd::server::{Event, Handshake, HandshakeEvent, ServerConfig, Transmission};
use forebay_nbd::{
    BlockSizes, Command, ExportInfo, NbdUri, ReplyStyle, Request, TransmissionFlags,
};

use super::connection::{Connection, Job, shake_hands};
use super::export::Export;
use super::stream::Stream;
use crate::buffer::AlignedBuffer;
use crate::devices::DeviceError;

const SIZE: u64 = 64 << 20;

fn writable() -> ExportInfo {
    let mut info = ExportInfo::new(Volume(0), "", SIZE);
    info.features = TransmissionFlags::SEND_FLUSH;
    info
}

/// The server's side of a session.
struct Peer<S> {
    socket: S,
    session: Box<Transmission>,
    input: Vec<u8>,
}

impl<S: Read + Write> Peer<S> {
    /// Performs the handshake, with chunked replies.
    fn shake(mut socket: S, info: ExportInfo) -> Peer<S> {
        let (mut out, mut input) = (Vec::new(), Vec::new());
        let config = ServerConfig { best_style: ReplyStyle::Structured, ..Default::default() };
        let mut handshake = Handshake::start(config, &mut out);
        loop {
            let mut unread = &input[..];
            let event = handshake.receive(&mut unread, &[info.clone()][..], &mut out);
            let left = unread.len();
            input.drain(..input.len() - left);
            socket.write_all(&out).unwrap();
            out.clear();
            match event {
                HandshakeEvent::NeedInput => {
                    let mut more = [0; 4096];
                    let bytes = socket.read(&mut more).unwrap();
                    input.extend_from_slice(&more[..bytes]);
                }
                HandshakeEvent::Answered => {}
                HandshakeEvent::Ready(session) => return Peer { socket, session, input },
                _ => panic!("no session"),
            }
        }
    }

    /// Returns the next request once its payload has arrived; drops the payload. `None` at the end
    /// of the session.
    fn request(&mut self) -> Option<Request> {
        let mut request = None;
        loop {
            let mut unread = &self.input[..];
            let event = self.session.receive(&mut unread, &mut Vec::new());
            let taken = self.session.take_payload(&mut unread).len() as u64;
            let left = unread.len();
            self.input.drain(..self.input.len() - left);
            match event {
                Event::Request(next) if next.command == Command::Write && taken < next.length => {
                    request = Some(next);
                }
                Event::Request(next) => return Some(next),
                Event::Payload(missing) if missing == taken => return request,
                Event::Payload(_) | Event::NeedInput => {
                    let mut more = vec![0; 256 << 10];
                    let bytes = self.socket.read(&mut more).ok().filter(|&bytes| bytes > 0)?;
                    self.input.extend_from_slice(&more[..bytes]);
                }
                _ => return None,
            }
        }
    }

    /// Answers requests with success until the session ends; returns what was requested.
    fn serve(mut self) -> Vec<(Command, u64)> {
        let mut served = Vec::new();
        while let Some(request) = self.request() {
            served.push((request.command, request.length));
            let done = self.session.reply_style().done(&request);
            self.socket.write_all(&done).unwrap();
        }
        served
    }
}

/// A chunk of a structured reply.
fn chunk(request: &Request, flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = 0x668E_33EF_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(request.cookie.0.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A connection within this host to a server that runs `serve`.
fn connect<T: Send + 'static>(
    info: ExportInfo,
    serve: impl FnOnce(Peer<std::os::unix::net::UnixStream>) -> T + Send + 'static,
) -> (Connection, std::thread::JoinHandle<T>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nbd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        serve(Peer::shake(socket, info))
    });
    let uri: NbdUri = format!("nbd+unix:///?socket={}", path.display()).parse().unwrap();
    (Connection::open(&uri, 4, true).unwrap(), server)
}

fn read(length: u64) -> Job {
    let (flags, buffer) = (Flags::NONE, Some(AlignedBuffer::new(length as usize)));
    Job { tag: 7, op: Op::Read, flags, offset: 0, length, buffer, status: None }
}

/// Receives until the session fails or a request has ended.
fn receive(connection: &mut Connection) -> Result<Vec<super::Ended>, String> {
    let (mut done, until) = (Vec::new(), Instant::now() + Duration::from_secs(30));
    while done.is_empty() {
        assert!(Instant::now() < until, "the session goes on for ever");
        connection.send().map_err(|error| error.to_string())?;
        connection.receive(&mut done).map_err(|error| error.to_string())?;
    }
    Ok(done)
}

/// A TCP connection to a server that runs `serve`. The server's host may be silent for 600 ms.
fn connect_over_tcp<T: Send + 'static>(
    serve: impl FnOnce(Peer<TcpStream>) -> T + Send + 'static,
) -> (Export, std::thread::JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("nbd://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        serve(Peer::shake(socket, writable()))
    });
    let uri: NbdUri = address.parse().unwrap();
    let mut connection = Connection::open(&uri, 128, true).unwrap();
    connection.set_silence_max(Duration::from_millis(600));
    (Export::over(connection, &address, false).unwrap(), server)
}

#[test]
fn a_server_that_stops_reading_for_a_while_is_waited_for() {
    let (export, server) = connect_over_tcp(|peer| {
        std::thread::sleep(Duration::from_secs(3));
        peer.serve()
    });
    // More than the socket buffers of both sides hold.
    let (data, writes) = (vec![1; 8 << 20], 6);
    std::thread::scope(|scope| {
        for _ in 0..writes {
            scope.spawn(|| assert_eq!(export.write_at(&data, 0), Ok(())));
        }
    });
    export.sync().unwrap();
    assert_eq!(export.failure(), None);
    drop(export);
    assert_eq!(server.join().unwrap().len(), writes + 1);
}

#[test]
#[allow(clippy::print_stderr)] // says what it skips
fn a_server_whose_machine_falls_silent_is_given_up() {
    // In its own network namespace, which ends when this thread does.
    let test = std::thread::spawn(|| {
        // SAFETY: affects only this thread and those that it starts.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 || !set_loopback(true) {
            eprintln!("skipped: no network of its own is allowed here");
            return;
        }
        let (export, server) = connect_over_tcp(Peer::serve);
        export.write_at(&[1; 512], 0).unwrap();
        assert!(set_loopback(false));
        let began = Instant::now();
        assert_eq!(export.write_at(&[1; 512], 0), Err(DeviceError::Gone));
        assert!(began.elapsed() >= Duration::from_millis(500), "given up early");
        assert!(began.elapsed() < Duration::from_secs(20), "given up late");
        let why = export.failure().unwrap();
        assert!(why.contains("cannot read a reply"), "{why}");
        drop(export);
        assert!(set_loopback(true));
        // (The server may still execute the write.)
        server.join().unwrap();
    });
    test.join().unwrap();
}

/// Switches the loopback interface on or off. Returns whether that succeeded.
fn set_loopback(up: bool) -> bool {
    use std::os::fd::AsRawFd;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // SAFETY: integers and bytes, for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = if up { libc::IFF_UP as i16 } else { 0 };
    // SAFETY: the request outlives the call.
    unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) == 0 }
}

#[test]
fn a_reply_of_endless_errors_ends_the_session() {
    let (mut connection, server) = connect(writable(), |mut peer| {
        let request = peer.request().unwrap();
        let error = chunk(&request, 0, 0x8001, &[0, 0, 0, 5, 0, 0]);
        // (Until the client closes the connection.)
        while peer.socket.write_all(&error.repeat(64)).is_ok() {}
    });
    connection.submit(read(512), &mut Vec::new()).unwrap();
    let error = receive(&mut connection).unwrap_err();
    assert!(error.contains("too many errors"), "{error}");
    drop(connection);
    server.join().unwrap();
}

#[test]
fn a_long_row_of_small_replies_is_processed_in_parts() {
    const BYTES: u64 = 4096;
    let (tell, told) = channel();
    let (mut connection, server) = connect(writable(), move |mut peer| {
        let request = peer.request().unwrap();
        let byte = |at: u64| {
            let mut payload = at.to_be_bytes().to_vec();
            payload.push(at as u8);
            chunk(&request, u16::from(at + 1 == BYTES), 1, &payload)
        };
        peer.socket.write_all(&(0..BYTES).flat_map(byte).collect::<Vec<_>>()).unwrap();
        tell.send(()).unwrap();
        peer.request()
    });
    let mut done = Vec::new();
    connection.submit(read(BYTES), &mut done).unwrap();
    connection.send().unwrap();
    told.recv().unwrap();
    assert!(connection.receive(&mut done).unwrap(), "it processes everything at once");
    assert!(done.is_empty());
    while connection.receive(&mut done).unwrap() {}
    let ended = done.pop().expect("all of it has arrived");
    assert_eq!(ended.result, Ok(()));
    let bytes = &ended.job.buffer.unwrap()[..BYTES as usize];
    assert!(bytes.iter().zip(0..).all(|(&byte, at): (_, u64)| byte == at as u8));
    drop(connection);
    server.join().unwrap();
}

#[test]
fn a_request_to_a_failed_session_ends_with_an_error() {
    let (mut connection, server) = connect(writable(), |mut peer| {
        peer.request().unwrap();
        peer.socket.write_all(&[0xFF; 64]).unwrap();
        peer.request();
    });
    let mut done = Vec::new();
    connection.submit(read(512), &mut done).unwrap();
    receive(&mut connection).unwrap_err();
    connection.submit(Job { tag: 8, ..read(512) }, &mut done).unwrap_err();
    let ended = done.pop().expect("nobody learns of its end");
    assert_eq!((ended.job.tag, ended.result), (8, Err(IoError::Shutdown)));
    drop(connection);
    server.join().unwrap();
}

#[test]
fn a_server_that_dribbles_does_not_prolong_the_handshake() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nbd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        for byte in b"NBDMAGICIHAVEOPT" {
            if socket.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let uri: NbdUri = format!("nbd+unix:///?socket={}", path.display()).parse().unwrap();
    let mut stream = Stream::connect(&uri.address).unwrap();
    let (began, time) = (Instant::now(), Duration::from_millis(300));
    let config = ClientConfig::connect("");
    let shaken = shake_hands(&uri, &mut stream, config, &mut [0; 4096], began + time);
    let error = shaken.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("timed out"), "{error}");
    assert!(began.elapsed() >= time && began.elapsed() < 4 * time, "{:?}", began.elapsed());
    drop(stream);
    server.join().unwrap();
}

#[test]
fn a_write_of_any_length_is_sent_in_pieces_that_the_server_takes() {
    let mut info = writable();
    info.block_sizes = BlockSizes::new(512, 4096, 64 << 10).unwrap();
    let (connection, server) = connect(info, Peer::serve);
    let export = Export::over(connection, "nbd://here", false).unwrap();
    export.write_at(&vec![1; 160 << 10], 0).unwrap();
    drop(export);
    let lengths: Vec<_> = server.join().unwrap().into_iter().map(|(_, length)| length).collect();
    assert_eq!(lengths, [64 << 10, 64 << 10, 32 << 10]);
}

#[test]
fn a_write_to_a_read_only_export_is_refused_as_that() {
    let mut info = writable();
    info.features = TransmissionFlags::SEND_FLUSH | TransmissionFlags::READ_ONLY;
    let (connection, server) = connect(info, Peer::serve);
    let export = Export::over(connection, "nbd://here", true).unwrap();
    assert_eq!(export.write_at(&[1; 512], 0), Err(DeviceError::ReadOnly));
    drop(export);
    assert_eq!(server.join().unwrap(), []);
}
