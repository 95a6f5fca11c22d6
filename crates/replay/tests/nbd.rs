//! Goal: the target uses exports within the limits of their servers, and pipelines requests.
//! Method: a server in this process that records requests and can be made to misbehave; nbdkit if
//! it is installed.

use std::os::unix::net::UnixStream;
use std::process::{Command as Program, Stdio};

use crate::support::{Features, Manners, Server, run, workload};
use forebay_device::nbd::NbdError;
use forebay_nbd::{BlockSizes, Command};
use forebay_replay::{NbdOptions, NbdTarget, ReplayError, SystemClock, Target};

const MIX: &str = "zipf:blocks=1024,requests=5000,write=0.4,trim=0.05,fua=0.1,flush_every=50";

fn connect(server: &Server, connections: u32, depth: u32) -> (NbdTarget, SystemClock) {
    let clock = SystemClock::start();
    let options = NbdOptions { uris: vec![server.uri()], connections, depth };
    (NbdTarget::open(&options, clock).unwrap(), clock)
}

#[test]
fn one_connection_keeps_the_order_and_every_request_is_answered_once() {
    let server = Server::start(Manners::default());
    let (mut target, clock) = connect(&server, 1, 32);
    let (finished, verified) = run(MIX, &mut [&mut target], clock, 32);
    let verified = verified.unwrap();
    assert!(finished.error.is_none() && verified.is_right(), "{verified:?}");
    let (synth, _) = workload(MIX);
    let sent: Vec<(u64, u64)> = synth.map(|r| (r.offset, r.length)).collect();
    let seen: Vec<(u64, u64)> = server.seen().iter().map(|s| (s.offset, s.length)).collect();
    assert_eq!(seen[..sent.len()], sent);
    assert_eq!(finished.result.run.requests, sent.len() as u64);
    assert_eq!(finished.result.run.errors, 0);
}

#[test]
fn several_connections_share_the_work_and_lose_nothing() {
    let server = Server::start(Manners::default());
    let (mut target, clock) = connect(&server, 3, 16);
    let (finished, verified) = run(MIX, &mut [&mut target], clock, 48);
    assert!(verified.unwrap().is_right());
    assert_eq!(finished.result.run.errors, 0);
    // (How many requests each connection gets depends on thread scheduling.)
    for connection in 0..3 {
        assert!(server.seen().iter().filter(|s| s.connection == connection).count() > 10);
    }
}

#[test]
fn one_connection_is_used_where_a_flush_holds_for_its_own_connection_only() {
    let features = Features::SEND_FLUSH | Features::SEND_TRIM;
    let server = Server::start(Manners { features, ..Manners::default() });
    let (mut target, clock) = connect(&server, 4, 8);
    assert_eq!(target.held_back().count(), 1);
    let (finished, verified) = run(MIX, &mut [&mut target], clock, 8);
    assert!(finished.error.is_none() && verified.unwrap().is_right());
    let seen = server.seen();
    assert!(seen.iter().all(|s| s.connection == 0));
    // Without FUA a durable write is a write and a flush.
    let (synth, _) = workload(MIX);
    let requests: Vec<_> = synth.collect();
    let count = |op| requests.iter().filter(|r| r.op == op).count();
    let durable = requests.iter().filter(|r| r.op.modifies() && r.flags.0 & 1 != 0).count();
    let flushes = seen.iter().filter(|s| s.command == Command::Flush).count();
    assert!(durable > 0 && seen.iter().all(|s| !s.fua));
    assert_eq!(flushes, durable + count(forebay_block::Op::Flush));
}

#[test]
fn requests_are_widened_and_cut_to_what_the_server_takes() {
    let block_sizes = BlockSizes::new(4096, 4096, 65_536).unwrap();
    let server = Server::start(Manners { block_sizes, ..Manners::default() });
    let (mut target, clock) = connect(&server, 1, 4);
    let spec = "uniform:block=512B,blocks=7000,size=512B@0.5/256KiB@0.5,requests=500,write=0.5";
    let (finished, verified) = run(spec, &mut [&mut target], clock, 4);
    assert!(finished.error.is_none() && verified.unwrap().is_right());
    assert_eq!((finished.result.run.requests, finished.result.run.errors), (500, 0));
    assert!(finished.result.adjusted.widened > 400);
    assert!(server.seen().iter().all(|s| s.length <= 65_536 && s.offset.is_multiple_of(4096)));
}

#[test]
fn zeroes_are_written_where_the_server_cannot_zero_and_trims_left_out_where_it_cannot_trim() {
    let server = Server::start(Manners { features: Features::NONE, ..Manners::default() });
    let (mut target, clock) = connect(&server, 1, 4);
    let (finished, verified) = run(MIX, &mut [&mut target], clock, 4);
    assert!(finished.error.is_none() && verified.unwrap().is_right());
    assert!(finished.result.adjusted.unsupported > 100);
    let commands = [Command::Read, Command::Write];
    assert!(server.seen().iter().all(|s| commands.contains(&s.command)));
}

#[test]
fn a_failed_request_is_counted_and_the_others_go_on() {
    let server = Server::start(Manners { bad_byte: Some(5000), ..Manners::default() });
    let (mut target, clock) = connect(&server, 1, 4);
    let spec = "sequential:blocks=100,requests=200,write=0.5";
    let (finished, verified) = run(spec, &mut [&mut target], clock, 4);
    assert!(finished.error.is_none());
    assert_eq!((finished.result.run.requests, finished.result.run.errors), (200, 2));
    assert!(verified.unwrap().wrong_bytes == 0);
}

#[test]
fn a_server_that_hangs_up_ends_the_run_with_what_was_measured() {
    let server = Server::start(Manners { hang_up_after: 100, ..Manners::default() });
    let (mut target, clock) = connect(&server, 1, 8);
    let (finished, _) = run("uniform:blocks=100,requests=1000", &mut [&mut target], clock, 8);
    assert!(matches!(finished.error, Some(ReplayError::Nbd(_))));
    let result = finished.result;
    assert_eq!(result.ended_by, "error");
    assert!(result.run.requests <= 100 && result.lost >= 1);
}

#[test]
fn submitters_with_connections_of_their_own_share_all_requests() {
    let server = Server::start(Manners::default());
    let (mut one, clock) = connect(&server, 1, 8);
    let mut two =
        NbdTarget::open(&NbdOptions { uris: vec![server.uri()], connections: 1, depth: 8 }, clock)
            .unwrap();
    let spec = "uniform:blocks=1000,requests=50000";
    let (finished, _) = run(spec, &mut [&mut one, &mut two], clock, 8);
    assert!(finished.error.is_none());
    assert_eq!(finished.result.run.requests, 50_000);
    assert_eq!(finished.result.queue.jobs, 2);
    let counted: u64 = finished.result.intervals.iter().map(|i| i.requests).sum();
    assert_eq!(counted, 50_000);
}

#[test]
fn what_cannot_be_reached_or_wants_tls_is_told_apart() {
    let open = |uri: &str| {
        let options = NbdOptions { uris: vec![uri.parse().unwrap()], connections: 1, depth: 1 };
        NbdTarget::open(&options, SystemClock::start()).err().unwrap()
    };
    let error = open("nbd+unix:///x?socket=/nonexistent/socket").to_string();
    assert!(error.contains("cannot connect") && error.contains("/nonexistent/socket"), "{error}");
    assert!(matches!(open("nbds://localhost/x"), ReplayError::Nbd(NbdError::Tls(_))));
    let server = Server::start(Manners::default());
    let mut uri = server.uri();
    uri.export = "another".into();
    let error = open(&uri.to_string()).to_string();
    assert!(error.contains("no such export"), "{error}");
}

#[test]
fn nbdkit_keeps_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let nbdkit = Program::new("nbdkit")
        .args(["-f", "-U"])
        .arg(&socket)
        .args(["memory", "8M"])
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut nbdkit) = nbdkit else {
        println!("skipped: nbdkit is not installed");
        return;
    };
    // The socket file exists a moment before nbdkit listens on it.
    while UnixStream::connect(&socket).is_err() && nbdkit.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let clock = SystemClock::start();
    let uri = format!("nbd+unix:///?socket={}", socket.display()).parse().unwrap();
    let options = NbdOptions { uris: vec![uri], connections: 4, depth: 8 };
    let outcome = NbdTarget::open(&options, clock).map(|mut target| {
        assert!(target.volumes()[0].size_bytes == 8 << 20);
        run(MIX, &mut [&mut target], clock, 32)
    });
    nbdkit.kill().unwrap();
    nbdkit.wait().unwrap();
    let (finished, verified) = outcome.unwrap();
    assert!(finished.error.is_none() && verified.unwrap().is_right());
    assert_eq!(finished.result.run.errors, 0);
}
