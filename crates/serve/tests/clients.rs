//! How connections end: clients disconnect, vanish or read no replies, and the server stops. All
//! tests use real sockets.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_config::Config;
use forebay_engine::{EngineError, EngineOptions, Recovering, StopMode};
use forebay_serve::{RecordOptions, Server, Stopped, control};
use tempfile::TempDir;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const ESHUTDOWN: u32 = 108;
const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;
/// Time limit for anything that a test waits for.
const SOON: Duration = Duration::from_secs(20);
/// Long enough for the server to accept what a client has sent.
const A_WHILE: Duration = Duration::from_millis(300);

/// A server with one volume of 64 MiB and no flash.
struct Served {
    server: Server,
    config: Config,
    directory: TempDir,
}

impl Served {
    /// Starts a server, with more lines in its section `[serve]`.
    fn start(more: &str) -> Served {
        Served::start_slow("", more, None)
    }

    /// Starts a server whose backing store is as slow as `shape` says, and records a trace in
    /// `record`.
    fn start_slow(shape: &str, more: &str, record: Option<&str>) -> Served {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let config = format!(
            "[cache]\ndram = '16MiB'\nwrite_policy = 'write-back'\n[shape.store]\n{shape}\n\
             [[volume]]\nname = 'vm1'\nbacking = '{}'\nsize = '64MiB'\nshape = 'store'\n\
             [serve]\nnbd = 'unix:{}'\ncontrol = 'unix:{}'\n{more}",
            path("disk.img"),
            path("nbd.sock"),
            path("control.sock"),
        );
        let config = Config::from_toml(&config).unwrap();
        let go_on = &mut |_: &Recovering| ControlFlow::Continue(());
        let explain = |error: &EngineError| error.to_string();
        let options = EngineOptions::default();
        let record = record.map(|name| {
            let path = directory.path().join(name);
            RecordOptions { path, hash: false, sample: None }
        });
        let server = Server::start(&config, options, record.as_ref(), explain, go_on).unwrap();
        Served { server, config, directory }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("nbd.sock")
    }

    /// A number in the object `nbd` of the status.
    fn nbd(&self, keys: &[&str]) -> u64 {
        keys.iter().fold(&self.status()["nbd"], |value, &key| &value[key]).as_u64().unwrap()
    }

    fn status(&self) -> serde_json::Value {
        let reply = control::ask(&self.config.serve.control, None, "GET", "/status").unwrap();
        serde_json::from_str(&reply.body).unwrap()
    }

    /// Gives an order that must succeed.
    fn order(&self, path: &str) {
        let reply = control::ask(&self.config.serve.control, None, "POST", path).unwrap();
        assert_eq!(reply.code, 200, "{}", reply.body);
    }

    /// Waits until `count` requests are in flight.
    fn wait_for_in_flight(&self, count: u64) {
        let until = Instant::now() + SOON;
        while self.status()["in_flight"] != count {
            assert!(Instant::now() < until, "{} requests in flight", self.status()["in_flight"]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the server has `count` connections.
    fn wait_for_connections(&self, count: u64) {
        let until = Instant::now() + SOON;
        while self.nbd(&["connections"]) != count {
            assert!(Instant::now() < until, "{} connections", self.nbd(&["connections"]));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(self) -> Stopped {
        let (stopped, left) = self.server.stop(StopMode::Destage, |_| ControlFlow::Continue(()));
        assert_eq!(left.unwrap(), 0);
        stopped
    }
}

/// A client that uses simple replies.
struct Client(UnixStream);

impl Client {
    fn connect(served: &Served) -> Client {
        let mut socket = UnixStream::connect(served.socket()).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        socket.set_write_timeout(Some(SOON)).unwrap();
        socket.read_exact(&mut [0; 18]).unwrap();
        // Fixed newstyle without zeroes, then NBD_OPT_EXPORT_NAME.
        socket.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x03vm1").unwrap();
        socket.read_exact(&mut [0; 10]).unwrap();
        Client(socket)
    }

    /// Sends the header of a request; its cookie is its length.
    fn request(&mut self, command: u16, offset: u64, length: u32) {
        let mut header = 0x2560_9513u32.to_be_bytes().to_vec();
        header.extend_from_slice(&[0; 2]);
        header.extend_from_slice(&command.to_be_bytes());
        header.extend_from_slice(&u64::from(length).to_be_bytes());
        header.extend_from_slice(&offset.to_be_bytes());
        header.extend_from_slice(&length.to_be_bytes());
        self.0.write_all(&header).unwrap();
    }

    fn write(&mut self, offset: u64, length: u32, byte: u8) {
        self.request(WRITE, offset, length);
        self.0.write_all(&vec![byte; length as usize]).unwrap();
    }

    /// Reads the reply to the only request in flight, which must succeed, and its `data_bytes`
    /// bytes of data.
    fn reply(&mut self, data_bytes: u32) -> Vec<u8> {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        assert_eq!(head[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
        let mut data = vec![0; data_bytes as usize];
        self.0.read_exact(&mut data).unwrap();
        data
    }

    /// Reads replies until the connection ends. Returns the length and the error of each request.
    fn replies(&mut self) -> Vec<(u32, u32)> {
        let mut replies = Vec::new();
        let mut head = [0; 16];
        while self.0.read_exact(&mut head).is_ok() {
            assert_eq!(head[..4], 0x6744_6698u32.to_be_bytes());
            let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
            let length = u64::from_be_bytes(head[8..].try_into().unwrap()) as u32;
            if error == 0 && length >= KIB {
                self.0.read_exact(&mut vec![0; length as usize]).unwrap();
            }
            replies.push((length, error));
        }
        replies
    }
}

#[test]
fn requests_before_a_disconnect_are_answered_after_a_half_close() {
    // More reads than the server accepts before the client reads replies. The others, and the
    // disconnect, wait in the socket or in the server's buffer.
    let served = Served::start("");
    let mut client = Client::connect(&served);
    (0..40).for_each(|n| client.request(READ, n * u64::from(MIB), MIB));
    for n in 0..10 {
        client.request(WRITE, n * 512, 512);
        client.0.write_all(&[7; 512]).unwrap();
    }
    client.request(DISCONNECT, 0, 0);
    client.0.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(A_WHILE);
    let replies = client.replies();
    let count = |length: u32| replies.iter().filter(|&&reply| reply == (length, 0)).count();
    assert_eq!((count(MIB), count(512), replies.len()), (40, 10, 50));
    served.wait_for_connections(0);
    served.stop();
}

#[test]
fn a_client_that_vanishes_is_noticed_while_it_has_no_room() {
    let served = Served::start("");
    let mut client = Client::connect(&served);
    (0..40).for_each(|n| client.request(READ, n * u64::from(MIB), MIB));
    std::thread::sleep(A_WHILE);
    assert_eq!(served.nbd(&["connections"]), 1);
    drop(client);
    served.wait_for_connections(0);
    served.stop();
}

/// Clients that leave others no memory for large requests, and read no replies.
fn hoarders(served: &Served) -> Vec<Client> {
    let mut hoarders: Vec<Client> = (0..2).map(|_| Client::connect(served)).collect();
    hoarders.iter_mut().for_each(|hoarder| hoarder.request(READ, 0, 32 * MIB));
    std::thread::sleep(A_WHILE);
    hoarders
}

#[test]
fn a_client_that_vanishes_is_noticed_while_it_waits_for_memory() {
    let served = Served::start("stall_timeout = '1h'\n");
    let hoarders = hoarders(&served);
    let mut client = Client::connect(&served);
    client.request(READ, 0, 32 * MIB);
    std::thread::sleep(A_WHILE);
    assert_eq!(served.nbd(&["request_memory", "waiting"]), 1, "there was memory left");
    drop(client);
    served.wait_for_connections(2);
    drop(hoarders);
    served.stop();
}

/// Goal: replies that nobody will read take no memory from others, however long the client's last
/// request takes. Method: replies from memory fill the socket; one more request waits for a slow
/// store.
#[test]
fn a_client_that_vanishes_leaves_only_the_memory_of_its_requests_in_flight() {
    let served = Served::start_slow("read_latency = '4s'", "", None);
    let mut client = Client::connect(&served);
    client.write(0, 4 * MIB, 7);
    client.reply(0);
    (0..3).for_each(|_| client.request(READ, 0, 4 * MIB));
    client.request(READ, u64::from(32 * MIB), 4 * KIB);
    served.wait_for_in_flight(1);
    let used = |status: &serde_json::Value| {
        status["nbd"]["request_memory"]["bytes"].as_u64().expect("a number")
    };
    assert!(used(&served.status()) > u64::from(4 * MIB));
    drop(client);
    let status = loop {
        let status = served.status();
        if used(&status) < u64::from(64 * KIB) {
            break status;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status["in_flight"], 1, "it kept the memory until its last request ended");
    served.stop();
}

#[test]
fn a_stop_ends_a_connection_that_waits_for_memory() {
    let served = Served::start("stall_timeout = '1h'\n");
    // The stop reaches this client first, while the others still hold the memory.
    let mut client = Client::connect(&served);
    let hoarders = hoarders(&served);
    client.request(READ, 0, 32 * MIB);
    std::thread::sleep(A_WHILE);
    assert_eq!(served.nbd(&["request_memory", "waiting"]), 1, "there was memory left");
    let (began, stopped) = (Instant::now(), served.stop());
    assert!(began.elapsed() < SOON);
    assert_eq!(stopped.connections, 3);
    drop(hoarders);
}

#[test]
fn a_client_that_takes_no_replies_after_its_disconnect_is_idle() {
    let served = Served::start("idle_timeout = '1s'\n");
    let mut client = Client::connect(&served);
    (0..10).for_each(|n| client.request(READ, n * u64::from(MIB), MIB));
    client.request(DISCONNECT, 0, 0);
    served.wait_for_connections(0);
    assert_eq!(served.nbd(&["closed", "idle_timeout"]), 1);
    // A client that reads its replies is not idle.
    let mut client = Client::connect(&served);
    (0..10).for_each(|n| client.request(READ, n * u64::from(MIB), MIB));
    client.request(DISCONNECT, 0, 0);
    assert_eq!(client.replies().len(), 10);
    served.wait_for_connections(0);
    assert_eq!(served.nbd(&["closed", "idle_timeout"]), 1);
    served.stop();
}

/// Stops the server while a client has requests in flight. The client reads its replies only then.
fn replies_after_a_stop(served: Served, mut client: Client) -> Vec<(u32, u32)> {
    std::thread::sleep(A_WHILE);
    let stopping = std::thread::spawn(move || served.stop());
    std::thread::sleep(A_WHILE);
    let replies = client.replies();
    assert_eq!(stopping.join().unwrap().cut_off, 0);
    replies
}

#[test]
fn a_stop_sends_finished_replies_to_a_client_in_the_middle_of_a_payload() {
    let served = Served::start("");
    let mut client = Client::connect(&served);
    (0..10).for_each(|n| client.request(READ, n * u64::from(MIB), MIB));
    client.request(WRITE, 0, 64 * KIB);
    client.0.write_all(&[7; 1000]).unwrap();
    assert_eq!(replies_after_a_stop(served, client), [(MIB, 0); 10]);
}

#[test]
fn a_stop_sends_finished_replies_to_a_client_in_the_middle_of_a_header() {
    let served = Served::start("");
    let mut client = Client::connect(&served);
    (0..10).for_each(|n| client.request(READ, n * u64::from(MIB), MIB));
    client.0.write_all(&0x2560_9513u32.to_be_bytes()).unwrap();
    assert_eq!(replies_after_a_stop(served, client), [(MIB, 0); 10]);
}

#[test]
fn a_stop_answers_all_requests_of_a_client_that_has_sent_more_than_there_is_room_for() {
    let served = Served::start("");
    let mut client = Client::connect(&served);
    (0..40).for_each(|n| client.request(READ, n * u64::from(MIB), MIB));
    let replies = replies_after_a_stop(served, client);
    assert_eq!(replies.len(), 40);
    let done = |&&(length, error): &&(u32, u32)| length == MIB && error == 0;
    let refused = |&&(length, error): &&(u32, u32)| length == MIB && error == ESHUTDOWN;
    let (done, refused) =
        (replies.iter().filter(done).count(), replies.iter().filter(refused).count());
    assert!(done >= 10 && done + refused == 40, "{done} done, {refused} refused");
}

#[test]
fn a_stop_waits_for_a_request_that_takes_long_and_sends_the_reply() {
    let served = Served::start_slow("sync_latency = '6s'", "", None);
    let mut client = Client::connect(&served);
    client.request(WRITE, 0, 512);
    client.0.write_all(&[7; 512]).unwrap();
    client.request(FLUSH, 0, 0);
    assert_eq!(replies_after_a_stop(served, client), [(512, 0), (0, 0)]);
}

#[test]
fn a_recording_contains_the_requests_of_a_client_that_vanishes() {
    let served = Served::start_slow("read_latency = '300ms'", "", Some("trace.parquet"));
    let mut client = Client::connect(&served);
    (0..20).for_each(|n| client.request(READ, n * 2 * u64::from(MIB), 4 * KIB));
    std::thread::sleep(A_WHILE / 2);
    drop(client);
    served.wait_for_connections(0);
    let stopped = served.stop();
    assert_eq!((stopped.recorded.requests, stopped.recording_failure), (20, None));
}

#[test]
fn a_client_that_sends_its_handshake_byte_by_byte_is_late() {
    let served = Served::start("handshake_timeout = '1s'\n");
    let mut socket = UnixStream::connect(served.socket()).unwrap();
    // An option that has 60,000 bytes.
    socket.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x06\0\0\xEA\x60").unwrap();
    let began = Instant::now();
    while socket.write_all(b"x").is_ok() {
        assert!(began.elapsed() < SOON, "it is never late");
        std::thread::sleep(Duration::from_millis(1));
    }
    served.wait_for_connections(0);
    assert_eq!(served.nbd(&["closed", "handshake_timeout"]), 1);
    served.stop();
}

/// Orders a stop as `ctl stop` does, and returns the answer.
fn order_stop(config: &Config, query: &str) -> control::Reply {
    control::ask(&config.serve.control, None, "POST", &format!("/stop?{query}")).unwrap()
}

#[test]
fn an_order_that_a_stop_in_progress_does_not_carry_out_is_refused() {
    let served = Served::start_slow("sync_latency = '2s'", "", None);
    let mut client = Client::connect(&served);
    client.request(WRITE, 0, 512);
    client.0.write_all(&[7; 512]).unwrap();
    assert_eq!(served.server.begin_stop(), StopMode::Destage);
    let config = served.config.clone();
    let refused = order_stop(&config, "dirty=release&wait=1");
    assert_eq!(refused.code, 409, "{}", refused.body);
    let waits = std::thread::spawn(move || order_stop(&config, "dirty=destage&wait=1"));
    std::thread::sleep(A_WHILE);
    served.stop();
    let answer = waits.join().unwrap();
    assert_eq!(answer.code, 200, "{}", answer.body);
}

#[test]
fn what_a_lost_connection_left_waiting_never_takes_effect() {
    let served = Served::start("");
    let (mut lost, mut other) = (Client::connect(&served), Client::connect(&served));
    served.order("/quiesce");
    (0..100).for_each(|n| lost.write(n * u64::from(KIB), KIB, 7));
    served.wait_for_in_flight(100);
    drop(lost);
    served.wait_for_connections(1);
    served.wait_for_in_flight(0);
    served.order("/resume");
    other.request(READ, 0, 100 * KIB);
    let data = other.reply(100 * KIB);
    assert!(data.iter().all(|&byte| byte == 0), "an old write can replace a newer one");
    served.stop();
}

#[test]
fn a_client_that_comes_again_during_a_quiesce_finds_its_place() {
    let served = Served::start("volume_connections = 1\n");
    let mut client = Client::connect(&served);
    served.order("/quiesce");
    client.write(0, KIB, 7);
    served.wait_for_in_flight(1);
    drop(client);
    let mut client = Client::connect(&served);
    client.write(0, KIB, 8);
    served.wait_for_in_flight(1);
    served.order("/resume");
    client.reply(0);
    client.request(READ, 0, KIB);
    assert!(client.reply(KIB).iter().all(|&byte| byte == 8));
    served.stop();
}

#[test]
fn clients_that_a_full_volume_refuses_are_counted() {
    let served = Served::start("volume_connections = 1\n");
    let _client = Client::connect(&served);
    for refused in 1..=2 {
        let mut socket = UnixStream::connect(served.socket()).unwrap();
        socket.read_exact(&mut [0; 18]).unwrap();
        socket.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x03vm1").unwrap();
        assert_eq!(socket.read(&mut [0; 10]).unwrap(), 0, "it is not refused");
        served.wait_for_connections(1);
        assert_eq!(served.nbd(&["refused"]), refused);
    }
    served.stop();
}
