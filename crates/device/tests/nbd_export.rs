//! Tests of exports of servers that cannot flush, or do not answer.
//!
//! Method: a server in this process answers reads with zeroes and everything else with success, or
//! does not answer, and records the commands it receives.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_block::Volume;
use forebay_device::DeviceError;
use forebay_device::nbd::Export;
use forebay_nbd::server::{Event, Handshake, HandshakeEvent, ServerConfig, Transmission};
use forebay_nbd::{Command, ExportInfo, TransmissionFlags};

#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Answers,
    Hangs,
}

/// A server of one session, which returns the commands it has received.
struct Server {
    directory: tempfile::TempDir,
    thread: JoinHandle<Vec<Command>>,
}

impl Server {
    fn start(features: TransmissionFlags, manner: Manner) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("nbd.sock")).unwrap();
        let mut info = ExportInfo::new(Volume(0), "", 1 << 20);
        info.features = features;
        let thread = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            serve(socket, info, manner)
        });
        Server { directory, thread }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}/nbd.sock", self.directory.path().display())
    }

    fn received(self) -> Vec<Command> {
        self.thread.join().unwrap()
    }
}

fn serve(mut socket: UnixStream, info: ExportInfo, manner: Manner) -> Vec<Command> {
    let (mut out, mut input, mut received) = (Vec::new(), Vec::new(), Vec::new());
    let mut handshake = Handshake::start(ServerConfig::default(), &mut out);
    let mut transmission: Option<Box<Transmission>> = None;
    loop {
        let mut unread = &input[..];
        let needs_input = match &mut transmission {
            None => match handshake.receive(&mut unread, &[info.clone()][..], &mut out) {
                HandshakeEvent::NeedInput => true,
                HandshakeEvent::Answered => false,
                HandshakeEvent::Ready(ready) => {
                    transmission = Some(ready);
                    false
                }
                _ => return received,
            },
            Some(session) => match session.receive(&mut unread, &mut out) {
                Event::NeedInput => true,
                Event::Payload(_) => {
                    session.take_payload(&mut unread);
                    unread.is_empty()
                }
                Event::Request(request) => {
                    received.push(request.command);
                    let style = session.reply_style();
                    match request.command {
                        _ if manner == Manner::Hangs => {}
                        Command::Read => {
                            out.extend_from_slice(&style.data(&request));
                            out.resize(out.len() + request.length as usize, 0);
                        }
                        _ => out.extend_from_slice(&style.done(&request)),
                    }
                    false
                }
                Event::Rejected(..) => false,
                Event::Close(reason) => {
                    if reason == forebay_nbd::server::CloseReason::Disconnected {
                        received.push(Command::Disconnect);
                    }
                    return received;
                }
            },
        };
        let left = unread.len();
        input.drain(..input.len() - left);
        socket.write_all(&out).unwrap();
        out.clear();
        if needs_input {
            let mut more = [0; 4096];
            match socket.read(&mut more) {
                Ok(bytes @ 1..) => input.extend_from_slice(&more[..bytes]),
                _ => return received,
            }
        }
    }
}

#[test]
fn a_sync_of_an_export_without_flush_succeeds_and_a_write_is_refused() {
    let server = Server::start(TransmissionFlags::NONE, Manner::Answers);
    assert!(Export::open(&server.uri(), false).is_err(), "a writable one is refused");
    let server = Server::start(TransmissionFlags::NONE, Manner::Answers);
    let export = Export::open(&server.uri(), true).unwrap();
    let mut bytes = [1; 512];
    export.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [0; 512]);
    assert_eq!(export.sync(), Ok(()));
    assert_eq!(export.write_at(&bytes, 0), Err(DeviceError::ReadOnly));
    assert_eq!(export.sync(), Ok(()), "nothing was written");
    drop(export);
    assert_eq!(server.received(), [Command::Read, Command::Disconnect]);
}

#[test]
fn a_sync_of_an_export_with_flush_reaches_the_server() {
    let server = Server::start(TransmissionFlags::SEND_FLUSH, Manner::Answers);
    let export = Export::open(&server.uri(), true).unwrap();
    export.write_at(&[1; 512], 0).unwrap();
    export.sync().unwrap();
    drop(export);
    assert_eq!(server.received(), [Command::Write, Command::Flush, Command::Disconnect]);
}

#[test]
fn a_server_that_hangs_is_given_up_in_time() {
    let server = Server::start(TransmissionFlags::SEND_FLUSH, Manner::Hangs);
    let export = Export::open(&server.uri(), false).unwrap();
    let began = Instant::now();
    let time = Duration::from_millis(300);
    std::thread::scope(|scope| {
        let read = scope.spawn(|| export.read_at(&mut [0; 512], 0));
        export.give_up_at(began + time);
        // A later time changes nothing.
        export.give_up_at(began + 100 * time);
        assert_eq!(read.join().unwrap(), Err(DeviceError::Gone));
    });
    assert!(began.elapsed() >= time, "given up early");
    assert_eq!(export.sync(), Err(DeviceError::Gone));
    assert!(export.failure().unwrap().ends_with("did not answer before Forebay stopped"));
    drop(export);
    assert!(began.elapsed() < 20 * time, "the end of the export waits for the server");
    assert_eq!(server.received(), [Command::Read], "a disconnect is sent after what was cut short");
}

#[test]
fn a_server_that_answers_in_time_is_left_in_order() {
    let server = Server::start(TransmissionFlags::SEND_FLUSH, Manner::Answers);
    let export = Export::open(&server.uri(), false).unwrap();
    export.give_up_at(Instant::now() + Duration::from_secs(600));
    export.write_at(&[1; 512], 0).unwrap();
    export.sync().unwrap();
    drop(export);
    assert_eq!(server.received(), [Command::Write, Command::Flush, Command::Disconnect]);
}
