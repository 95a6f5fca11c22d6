//! Tests of the client half against servers by others: nbdkit and qemu-nbd, where installed.

#![allow(clippy::print_stderr)] // a test that skips says so

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use forebay_nbd::client::{
    ClientConfig, ClientError, ClientEvent, Goal, Handshake, HandshakeEvent, Transmission,
};
use forebay_nbd::{Command, CommandFlags, ErrorCode, ReplyStyle, StatusExtent, TransmissionFlags};

const SIZE: u64 = 8 << 20;

/// A server process. Dropping it ends the process and removes its directory.
struct Server {
    process: Child,
    folder: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Server {
    /// Starts `program` on a socket. If it is not installed, prints a message and returns `None`.
    fn start(name: &str, program: &str, arguments: &dyn Fn(&Path) -> Vec<String>) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let spawned = Process::new(program)
            .args(arguments(&folder))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = spawned else {
            eprintln!("skipped: {program} is not installed");
            let _ = std::fs::remove_dir_all(&folder);
            return None;
        };
        Some(Server { process, folder })
    }

    fn connect(&self) -> UnixStream {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(self.folder.join("socket")) {
                Ok(socket) => return socket,
                Err(_) if begun.elapsed() < Duration::from_secs(20) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => panic!("the server does not listen: {error}"),
            }
        }
    }
}

fn nbdkit(name: &str) -> Option<Server> {
    Server::start(name, "nbdkit", &|folder| {
        let socket = folder.join("socket").display().to_string();
        ["-f", "-U", &socket, "memory", &SIZE.to_string()].map(str::to_owned).to_vec()
    })
}

fn qemu_nbd(name: &str) -> Option<Server> {
    Server::start(name, "qemu-nbd", &|folder| {
        let image = folder.join("image");
        std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
        let (socket, image) = (folder.join("socket"), image.display().to_string());
        let socket = socket.display().to_string();
        let discard = "--discard=unmap";
        ["-t", "-k", &socket, "-f", "raw", "-x", "disk", "-e", "8", discard, &image]
            .map(str::to_owned)
            .to_vec()
    })
}

/// A blocking driver, one request at a time.
struct Client {
    socket: UnixStream,
    session: Box<Transmission>,
    unread: Vec<u8>,
}

enum Met {
    Client(Box<Client>),
    Event(HandshakeEvent),
}

fn meet(mut socket: UnixStream, config: ClientConfig) -> Met {
    let mut handshake = Handshake::start(config);
    let mut unread = Vec::new();
    loop {
        let (mut rest, mut out) = (&unread[..], Vec::new());
        let event = handshake.receive(&mut rest, &mut out);
        unread = rest.to_vec();
        socket.write_all(&out).unwrap();
        match event {
            HandshakeEvent::NeedInput => {
                if !fill(&mut socket, &mut unread) {
                    return Met::Event(HandshakeEvent::Failed(handshake.end_of_input()));
                }
            }
            HandshakeEvent::Ready(session) => {
                return Met::Client(Box::new(Client { socket, session, unread }));
            }
            event => return Met::Event(event),
        }
    }
}

fn fill(socket: &mut UnixStream, unread: &mut Vec<u8>) -> bool {
    let mut piece = [0; 1000]; // small, so that messages are split
    let n = socket.read(&mut piece).unwrap();
    unread.extend_from_slice(&piece[..n]);
    n > 0
}

type Answer = (Result<(), ErrorCode>, Vec<u8>, Vec<StatusExtent>);

impl Client {
    fn run(&mut self, command: Command, flags: CommandFlags, at: u64, bytes: &[u8]) -> Answer {
        let length = if command == Command::Flush { 0 } else { bytes.len() as u64 };
        let header = self.session.submit(1, command, flags, at, length).unwrap();
        self.socket.write_all(&header).unwrap();
        if command == Command::Write {
            self.socket.write_all(bytes).unwrap();
        }
        let (mut data, mut extents, mut filling) = (vec![0xee; bytes.len()], Vec::new(), 0);
        loop {
            let mut rest = &self.unread[..];
            let event = self.session.receive(&mut rest);
            match event {
                ClientEvent::Data { at, .. } => filling = at as usize,
                ClientEvent::Payload(_) if !rest.is_empty() => {
                    let piece = self.session.take_payload(&mut rest);
                    data[filling..filling + piece.len()].copy_from_slice(piece);
                    filling += piece.len();
                }
                ClientEvent::Zeroes { at, length, .. } => {
                    data[at as usize..(at + length) as usize].fill(0);
                }
                ClientEvent::Extent { extent, .. } => extents.push(extent),
                ClientEvent::Done { result, .. } => {
                    self.unread = rest.to_vec();
                    return (result, data, extents);
                }
                ClientEvent::NeedInput | ClientEvent::Payload(_) => {
                    self.unread = rest.to_vec();
                    assert!(fill(&mut self.socket, &mut self.unread), "the server hung up");
                    continue;
                }
                ClientEvent::Failed(error) => panic!("{error}"),
            }
            self.unread = rest.to_vec();
        }
    }
}

/// Every command that the server offers, in every style that it speaks.
fn every_command_works(server: &Server, export: &str) {
    for style in [ReplyStyle::Simple, ReplyStyle::Structured, ReplyStyle::Extended] {
        let config = ClientConfig { best_style: style, ..ClientConfig::connect(export) };
        let Met::Client(mut client) = meet(server.connect(), config) else {
            panic!("no transmission in style {style:?}");
        };
        assert_eq!(client.session.export().size_bytes, SIZE);
        let features = client.session.export().features;
        let none = CommandFlags::NONE;
        let pattern: Vec<u8> =
            (0..100 << 10).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let at = 1 << 20;
        assert_eq!(client.run(Command::Write, none, at, &pattern).0, Ok(()));
        assert_eq!(
            client.run(Command::Read, none, at, &pattern),
            (Ok(()), pattern.clone(), vec![])
        );
        assert_eq!(client.run(Command::Flush, none, 0, &[]).0, Ok(()));
        let (result, data, _) = client.run(Command::Read, none, 0, &pattern);
        assert!(result.is_ok() && data.iter().all(|&b| b == 0), "never written");
        if features.contains(TransmissionFlags::SEND_FUA) {
            assert_eq!(
                client.run(Command::Write, CommandFlags::FUA, at, &pattern[..512]).0,
                Ok(())
            );
        }
        assert!(features.contains(TransmissionFlags::SEND_WRITE_ZEROES));
        assert_eq!(client.run(Command::WriteZeroes, none, at, &pattern[..65_536]).0, Ok(()));
        let (result, data, _) = client.run(Command::Read, none, at, &pattern);
        assert!(result.is_ok() && data[..65_536].iter().all(|&b| b == 0));
        assert_eq!(data[65_536..], pattern[65_536..]);
        if client.session.has_allocation() {
            let whole = vec![0; SIZE as usize];
            let (result, _, extents) = client.run(Command::BlockStatus, none, 0, &whole);
            assert_eq!(result, Ok(()));
            assert!(extents.iter().map(|e| e.length).sum::<u64>() <= SIZE);
        }
        assert_eq!(client.run(Command::Trim, none, at, &pattern).0, Ok(()));
        let bye = client.session.disconnect();
        client.socket.write_all(&bye).unwrap();
        assert_eq!(client.socket.read(&mut [0; 9]).unwrap(), 0, "the server closes");
    }
}

#[test]
fn every_command_works_against_nbdkit() {
    if let Some(server) = nbdkit("nbdkit") {
        every_command_works(&server, "");
    }
}

#[test]
fn every_command_works_against_qemu_nbd() {
    if let Some(server) = qemu_nbd("qemu") {
        every_command_works(&server, "disk");
    }
}

#[test]
fn exports_of_qemu_nbd_are_listed_described_and_missed() {
    let Some(server) = qemu_nbd("qemu-list") else { return };
    let list = ClientConfig { goal: Goal::List, ..ClientConfig::connect("") };
    let Met::Event(HandshakeEvent::Listed(listed)) = meet(server.connect(), list) else {
        panic!("no list");
    };
    assert_eq!(listed.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["disk"]);
    let describe =
        ClientConfig { goal: Goal::Describe("disk".into()), ..ClientConfig::connect("") };
    let Met::Event(HandshakeEvent::Described(found)) = meet(server.connect(), describe) else {
        panic!("no description");
    };
    assert_eq!(found.size_bytes, SIZE);
    let Met::Event(HandshakeEvent::Failed(error)) =
        meet(server.connect(), ClientConfig::connect("nope"))
    else {
        panic!("an export that does not exist");
    };
    assert!(matches!(error, ClientError::Refused { .. }), "{error}");
}
