//! Runs against a target in virtual time: nothing here depends on the speed of the machine.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use forebay_block::{Request, Volume};

use super::*;
use crate::placement::{PlacementOptions, Writes};
use crate::survey::Survey;
use crate::target::{Abilities, TargetVolume};

const MS: u64 = 1_000_000;

#[derive(Clone, Default)]
struct VirtualClock(Rc<Cell<u64>>);

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        Nanos(self.0.get())
    }
}

/// A request as the target received it, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    at: u64,
    op: Op,
    offset: u64,
    length: u64,
}

/// A target whose requests take `latency` each, all in parallel. The clock advances only while a
/// run waits.
struct Fake {
    clock: VirtualClock,
    latency: u64,
    volumes: Vec<TargetVolume>,
    limits: Limits,
    on_their_way: Vec<(u64, Io)>,
    deepest: usize,
    seen: Rc<RefCell<Vec<Seen>>>,
    fail_at: Option<u64>,
    lost_after: Option<usize>,
}

impl Fake {
    fn new(latency: u64) -> Fake {
        let (name, able) = ("fake".to_owned(), Abilities::ALL);
        Fake {
            clock: VirtualClock::default(),
            latency,
            volumes: vec![TargetVolume { name, size_bytes: 1 << 30, read_only: false, able }],
            limits: Limits {
                alignment_bytes: 1,
                transfer_bytes_max: 1 << 20,
                zero_bytes_max: 1 << 30,
                depth_max: 1024,
            },
            on_their_way: Vec::new(),
            deepest: 0,
            seen: Rc::default(),
            fail_at: None,
            lost_after: None,
        }
    }
}

impl Target for Fake {
    fn volumes(&self) -> &[TargetVolume] {
        &self.volumes
    }
    fn limits(&self) -> Limits {
        self.limits
    }
    fn submit(&mut self, io: Io, _: &mut Vec<Done>) -> Result<(), ReplayError> {
        if self.lost_after.is_some_and(|n| self.seen.borrow().len() >= n) {
            return Err(ReplayError::System("reach it", std::io::ErrorKind::BrokenPipe.into()));
        }
        let Io { op, offset, length, .. } = io;
        let at = self.clock.now().0;
        self.seen.borrow_mut().push(Seen { at, op, offset, length });
        self.on_their_way.push((at + self.latency, io));
        let tags: BTreeSet<u64> = self.on_their_way.iter().map(|(_, io)| io.tag).collect();
        self.deepest = self.deepest.max(tags.len());
        Ok(())
    }
    fn flush(&mut self, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        let now = self.clock.now().0;
        let (ended, rest) = self.on_their_way.drain(..).partition(|(due, _)| *due <= now);
        self.on_their_way = rest;
        for (_, io) in ended {
            let failed = self.fail_at.is_some_and(|at| io.offset == at);
            let result = if failed { Err(IoError::Device) } else { Ok(()) };
            done.push(Done { io, result });
        }
        Ok(())
    }
    fn wait(&mut self, until: Nanos, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        self.flush(done)?;
        if done.is_empty() {
            let next = self.on_their_way.iter().map(|(due, _)| *due).min();
            let then = next.unwrap_or(u64::MAX).min(until.0);
            self.clock.0.set(then.max(self.clock.now().0));
            self.flush(done)?;
        }
        Ok(())
    }
}

fn request(time_ms: u64, op: Op, offset: u64, length: u64) -> Request {
    let (volume, flags) = (Volume(0), Flags::NONE);
    Request { time: Nanos(time_ms * MS), volume, op, flags, offset, length }
}

/// `count` reads of 512 bytes, one every `gap_ms` ms.
fn reads(count: u64, gap_ms: u64) -> Vec<Request> {
    (0..count).map(|i| request(i * gap_ms, Op::Read, i * 512, 512)).collect()
}

fn run(fake: &mut Fake, requests: &[Request], options: &RunOptions) -> JobOutcome {
    run_until(fake, requests, options, &AtomicBool::new(false), &|_| {})
}

fn run_until(
    fake: &mut Fake,
    requests: &[Request],
    options: &RunOptions,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> JobOutcome {
    let mut survey = Survey::default();
    requests.iter().for_each(|r| survey.add(r));
    let allowed = PlacementOptions { writes: Writes::Allowed, ..Default::default() };
    let placement = Placement::new(&survey.volumes, &fake.volumes, fake.limits, allowed).unwrap();
    let clock = fake.clock.clone();
    let mut source = requests.iter().copied();
    run_job(fake, &clock, &mut source, placement, options, Hooks { stop, progress })
}

fn fast(queue_depth: u32) -> RunOptions {
    RunOptions { pace: Pace::AsFastAsPossible, queue_depth, ..RunOptions::default() }
}

#[test]
fn order_is_kept_the_queue_is_never_deeper_than_agreed_and_each_request_ends_once() {
    for depth in [1, 2, 7, 64] {
        let mut fake = Fake::new(MS);
        let requests = reads(1000, 0);
        let outcome = run(&mut fake, &requests, &fast(depth));
        assert!(matches!(outcome.end, End::Complete));
        let offsets: Vec<u64> = fake.seen.borrow().iter().map(|s| s.offset).collect();
        assert_eq!(offsets, requests.iter().map(|r| r.offset).collect::<Vec<_>>());
        assert_eq!(fake.deepest, depth as usize);
        assert_eq!(outcome.recorder.completed(), 1000);
        assert_eq!(outcome.recorder.pending_max, depth);
        let rounds = 1000u64.div_ceil(depth.into());
        assert_eq!(outcome.span.1.0, rounds * MS, "a closed loop is as fast as its depth allows");
        assert_eq!(outcome.recorder.latency.summary().read.max, 1000.0);
    }
}

#[test]
fn requests_are_sent_at_the_workloads_times_divided_by_the_rate() {
    for (rate, gap_ms) in [(1.0, 10), (2.0, 5), (0.5, 20), (10.0, 1)] {
        let mut fake = Fake::new(MS);
        let options = RunOptions { pace: Pace::Timed { rate }, ..RunOptions::default() };
        let outcome = run(&mut fake, &reads(20, 10), &options);
        let sent: Vec<u64> = fake.seen.borrow().iter().map(|s| s.at).collect();
        assert_eq!(sent, (0..20).map(|i| i * gap_ms * MS).collect::<Vec<_>>());
        assert_eq!(outcome.recorder.lateness.summary().max, 0.001, "nothing is late");
    }
}

#[test]
fn a_workload_that_starts_late_is_not_waited_for() {
    let mut fake = Fake::new(MS);
    let requests = [request(5000, Op::Read, 0, 512), request(5010, Op::Read, 0, 512)];
    run(&mut fake, &requests, &RunOptions::default());
    let sent: Vec<u64> = fake.seen.borrow().iter().map(|s| s.at).collect();
    assert_eq!(sent, [0, 10 * MS]);
}

#[test]
fn a_full_queue_makes_requests_late_and_drops_none() {
    let mut fake = Fake::new(100 * MS);
    let options = RunOptions { queue_depth: 1, ..RunOptions::default() };
    let outcome = run(&mut fake, &reads(4, 10), &options);
    let sent: Vec<u64> = fake.seen.borrow().iter().map(|s| s.at).collect();
    assert_eq!(sent, [0, 100 * MS, 200 * MS, 300 * MS]);
    let recorder = outcome.recorder;
    assert_eq!(recorder.lateness.summary().max, 270_000.0);
    assert_eq!(recorder.response.summary().max, 370_000.0);
    assert_eq!(recorder.latency.summary().all.max, 100_000.0);
    assert_eq!(recorder.found_full, 3);
}

#[test]
fn idle_time_is_skipped_only_when_nothing_is_on_its_way() {
    let mut fake = Fake::new(30 * MS);
    let requests = [0, 10, 1000, 1010].map(|ms| request(ms, Op::Read, 0, 512));
    let skip = |longer_than_ms| RunOptions {
        skip_idle: Some(Nanos(longer_than_ms * MS)),
        ..RunOptions::default()
    };
    let outcome = run(&mut fake, &requests, &skip(0));
    let sent: Vec<u64> = fake.seen.borrow().iter().map(|s| s.at / MS).collect();
    // The first two requests have completed after 40 ms; the rest of the gap is skipped.
    assert_eq!(sent, [0, 10, 40, 50]);
    assert_eq!(outcome.skipped.0, 960 * MS);

    let mut fake = Fake::new(30 * MS);
    run(&mut fake, &requests, &skip(2000));
    assert_eq!(fake.seen.borrow()[2].at, 1000 * MS, "the gap is shorter than asked for");
}

#[test]
fn a_request_too_long_for_the_target_is_sent_in_pieces_and_counts_once() {
    let mut fake = Fake::new(MS);
    fake.limits.transfer_bytes_max = 4096;
    let requests = [request(0, Op::Write, 512, 10_000), request(0, Op::Trim, 0, 1 << 20)];
    let outcome = run(&mut fake, &requests, &fast(1));
    let seen: Vec<_> = fake.seen.borrow().iter().map(|s| (s.offset, s.length)).collect();
    assert_eq!(seen, [(512, 4096), (4608, 4096), (8704, 1808), (0, 1 << 20)]);
    assert_eq!((outcome.recorder.completed(), outcome.recorder.write_bytes), (2, 10_000));
    assert_eq!(fake.deepest, 1);
}

#[test]
fn failed_requests_are_counted_and_the_rest_goes_on() {
    let mut fake = Fake::new(MS);
    fake.fail_at = Some(512);
    let outcome = run(&mut fake, &reads(10, 1), &RunOptions::default());
    assert!(matches!(outcome.end, End::Complete));
    assert_eq!((outcome.recorder.completed(), outcome.recorder.errors), (10, 1));
    assert_eq!(outcome.recorder.failures.iter().next(), Some((IoError::Device, 1)));
}

#[test]
fn a_run_that_is_stopped_finishes_what_is_on_its_way() {
    let mut fake = Fake::new(MS);
    let stop = AtomicBool::new(false);
    let told = std::sync::atomic::AtomicU64::new(0);
    let progress = |n: u64| {
        if told.fetch_add(n, Ordering::Relaxed) + n >= 1024 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let outcome = run_until(&mut fake, &reads(100_000, 0), &fast(8), &stop, &progress);
    assert!(matches!(outcome.end, End::Stopped));
    let sent = fake.seen.borrow().len() as u64;
    assert!((1024..2048).contains(&sent), "{sent}");
    assert_eq!((outcome.recorder.completed(), outcome.lost), (sent, 0));
    assert_eq!(told.into_inner(), sent, "progress is told of every request");
}

#[test]
fn a_run_ends_when_its_time_is_up() {
    let mut fake = Fake::new(10 * MS);
    let duration = Some(Nanos(95 * MS));
    let outcome = run(&mut fake, &reads(1000, 0), &RunOptions { duration, ..fast(2) });
    assert!(matches!(outcome.end, End::TimeUp));
    assert_eq!(outcome.recorder.completed(), 20);
    let mut fake = Fake::new(10 * MS);
    let timed = RunOptions { duration, ..RunOptions::default() };
    assert_eq!(run(&mut fake, &reads(1000, 30), &timed).recorder.completed(), 4);
}

#[test]
fn a_lost_target_ends_the_run_with_what_was_measured() {
    let mut fake = Fake::new(MS);
    fake.lost_after = Some(5);
    let outcome = run(&mut fake, &reads(10, 10), &RunOptions::default());
    assert!(matches!(outcome.end, End::Failed(ReplayError::System(..))));
    assert_eq!(outcome.recorder.completed(), 5);
    assert_eq!(outcome.lost, 1, "nobody knows what became of the one that was being sent");
}

#[test]
fn every_write_brings_data_of_its_own() {
    let mut fake = Fake::new(MS);
    let requests = vec![request(0, Op::Write, 0, 4096); 2];
    let options = RunOptions { track: true, seed: 5, ..fast(1) };
    let ledger = run(&mut fake, &requests, &options).ledger.unwrap();
    assert_eq!(ledger.expected(0, 7), Some((2, 2)));
    assert_eq!(ledger.expected(0, 8), None);
}
