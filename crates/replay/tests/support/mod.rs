//! An NBD server in this process, over plain memory, built on the server half of `forebay-nbd`. A
//! test can restrict its features and make it misbehave.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forebay_block::Volume;
use forebay_nbd::server::{Event, Handshake, HandshakeEvent, ServerConfig, Transmission};
use forebay_nbd::{BlockSizes, Command, CommandFlags, ExportInfo, NbdUri, Request};

pub use forebay_nbd::TransmissionFlags as Features;

/// How a server behaves.
#[derive(Clone)]
pub struct Manners {
    pub size_bytes: u64,
    pub features: Features,
    pub block_sizes: BlockSizes,
    /// Close the connection after this number of requests.
    pub hang_up_after: u64,
    /// Fail requests that touch this byte.
    pub bad_byte: Option<u64>,
}

impl Default for Manners {
    fn default() -> Self {
        Manners {
            size_bytes: 4 << 20,
            features: Features::SEND_FLUSH
                | Features::SEND_FUA
                | Features::SEND_TRIM
                | Features::SEND_WRITE_ZEROES
                | Features::CAN_MULTI_CONN,
            block_sizes: BlockSizes::DEFAULT,
            hang_up_after: u64::MAX,
            bad_byte: None,
        }
    }
}

/// A request as the server received it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub connection: u64,
    pub command: Command,
    pub fua: bool,
    pub offset: u64,
    pub length: u64,
}

/// A running server; it ends with the test's process.
pub struct Server {
    _directory: tempfile::TempDir,
    socket: PathBuf,
    pub memory: Arc<Mutex<Vec<u8>>>,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    pub fn start(manners: Manners) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nbd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let memory = Arc::new(Mutex::new(vec![0; manners.size_bytes as usize]));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = AtomicU64::new(0);
        let (shared, log) = (memory.clone(), seen.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let number = connections.fetch_add(1, Ordering::Relaxed);
                let (memory, seen, manners) = (shared.clone(), log.clone(), manners.clone());
                std::thread::spawn(move || converse(stream, number, &memory, &seen, &manners));
            }
        });
        Server { _directory: directory, socket, memory, seen }
    }

    pub fn uri(&self) -> NbdUri {
        format!("nbd+unix:///disk?socket={}", self.socket.display()).parse().unwrap()
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn converse(
    mut stream: UnixStream,
    number: u64,
    memory: &Mutex<Vec<u8>>,
    seen: &Mutex<Vec<Seen>>,
    manners: &Manners,
) -> Option<()> {
    let mut export = ExportInfo::new(Volume(0), "disk", manners.size_bytes);
    export.features = manners.features;
    export.block_sizes = manners.block_sizes;
    let exports = [export];
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut handshake = Handshake::start(ServerConfig::default(), &mut out);
    let mut session = loop {
        let mut unread = &input[..];
        let event = handshake.receive(&mut unread, &exports[..], &mut out);
        let left = unread.len();
        input.drain(..input.len() - left);
        stream.write_all(&out).ok()?;
        out.clear();
        match event {
            HandshakeEvent::Ready(session) => break session,
            HandshakeEvent::Answered => {}
            HandshakeEvent::NeedInput => fill(&mut stream, &mut input)?,
            _ => return None,
        }
    };
    let mut answered = 0;
    loop {
        let mut unread = &input[..];
        let event = session.receive(&mut unread, &mut out);
        let left = unread.len();
        input.drain(..input.len() - left);
        match event {
            Event::Request(request) => {
                let data = payload(&mut session, &request, &mut stream, &mut input)?;
                let fua = request.flags.contains(CommandFlags::FUA);
                let Request { command, offset, length, .. } = request;
                seen.lock().unwrap().push(Seen {
                    connection: number,
                    command,
                    fua,
                    offset,
                    length,
                });
                if answered >= manners.hang_up_after {
                    return None;
                }
                answered += 1;
                answer(&session, &request, &data, memory, manners.bad_byte, &mut out);
            }
            Event::NeedInput => {
                stream.write_all(&out).ok()?;
                out.clear();
                fill(&mut stream, &mut input)?;
            }
            Event::Rejected(..) | Event::Payload(_) => {}
            Event::Close(_) => return None,
        }
    }
}

fn payload(
    session: &mut Transmission,
    request: &Request,
    stream: &mut UnixStream,
    input: &mut Vec<u8>,
) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    while (data.len() as u64) < request.payload_bytes() {
        let mut unread = &input[..];
        data.extend_from_slice(session.take_payload(&mut unread));
        let left = unread.len();
        input.drain(..input.len() - left);
        if (data.len() as u64) < request.payload_bytes() {
            fill(stream, input)?;
        }
    }
    Some(data)
}

fn answer(
    session: &Transmission,
    request: &Request,
    data: &[u8],
    memory: &Mutex<Vec<u8>>,
    bad_byte: Option<u64>,
    out: &mut Vec<u8>,
) {
    let style = session.reply_style();
    let range = request.offset as usize..(request.offset + request.length) as usize;
    if bad_byte.is_some_and(|byte| range.contains(&(byte as usize))) {
        out.extend_from_slice(&style.error(request, forebay_nbd::ErrorCode::Io));
        return;
    }
    let mut memory = memory.lock().unwrap();
    match request.command {
        Command::Read => {
            out.extend_from_slice(&style.data(request));
            out.extend_from_slice(&memory[range]);
            return;
        }
        Command::Write => memory[range].copy_from_slice(data),
        Command::WriteZeroes | Command::Trim => memory[range].fill(0),
        _ => {}
    }
    out.extend_from_slice(&style.done(request));
}

fn fill(stream: &mut UnixStream, input: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 65_536];
    let n = stream.read(&mut buffer).ok().filter(|&n| n > 0)?;
    input.extend_from_slice(&buffer[..n]);
    Some(())
}

/// The requests of the workload described by `spec`, and their survey.
pub fn workload(spec: &str) -> (forebay_trace::Synth, forebay_replay::Survey) {
    let spec = forebay_trace::Spec::parse(spec).unwrap();
    let mut survey = forebay_replay::Survey::default();
    forebay_trace::Synth::new(&spec).unwrap().for_each(|request| survey.add(&request));
    (forebay_trace::Synth::new(&spec).unwrap(), survey)
}

/// Runs a workload as fast as possible with `depth` requests in flight, then verifies what it wrote
/// if there is one target.
pub fn run(
    spec: &str,
    targets: &mut [&mut (dyn forebay_replay::Target + Send)],
    clock: forebay_replay::SystemClock,
    depth: u32,
) -> (forebay_replay::Finished, Option<forebay_replay::VerifyResult>) {
    use forebay_replay::*;
    let (synth, survey) = workload(spec);
    let allowed = PlacementOptions { writes: Writes::Allowed, ..Default::default() };
    let target = &targets[0];
    let placement =
        Placement::new(&survey.volumes, target.volumes(), target.limits(), allowed).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let hooks = Hooks { stop: &stop, progress: &|_| {} };
    let options = RunOptions {
        pace: Pace::AsFastAsPossible,
        queue_depth: depth,
        track: true,
        ..Default::default()
    };
    let run = Run { clock, feed: Feed::start(synth), placement, options, hooks };
    let finished = run.go(targets);
    let verified = match (&finished.written, &finished.error) {
        (Some(written), None) => {
            let Verified { result, error } = written.verify(&mut *targets[0], &clock, hooks);
            assert!(error.is_none(), "{error:?}");
            Some(result)
        }
        _ => None,
    };
    (finished, verified)
}
