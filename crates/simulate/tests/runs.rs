//! Properties of every run: determinism, pacing, flushes, and rejected input.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{LATENCIES, Latencies, VOLUME_BYTES, fixed, request, scenario, zipf};
use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_model::Profile;
use forebay_simulate::{
    AssumeFlush, Interval, Options, Pacing, SimulateError, Simulation, SimulationResult, simulate,
};

const PACINGS: [Pacing; 5] = [
    Pacing::OpenLoop { rate: 1.0 },
    Pacing::OpenLoop { rate: 1000.0 },
    Pacing::ClosedLoop { queue_depth: 16 },
    Pacing::Quiesced,
    Pacing::Untimed,
];

/// Requests of one to eight blocks, including some that are not whole sectors, trims, zeroings, FUA
/// writes and flushes.
fn mixed(count: u64) -> Vec<Request> {
    let mut requests = zipf(count, 20_000, 3, 23);
    for (i, r) in (0u64..).zip(&mut requests) {
        r.length = 4096 * (1 + i % 8);
        match i % 50 {
            7 => (r.offset, r.length) = (r.offset + 100, 1000),
            17 => r.op = Op::Trim,
            27 => r.op = Op::WriteZeroes,
            37 => (r.op, r.flags) = (Op::Write, Flags::FUA),
            47 => r.op = Op::Flush,
            _ => {}
        }
    }
    requests
}

fn run(policy: &str, pacing: Pacing, seed: u64) -> SimulationResult {
    let mut s = scenario(1000, Some("16MiB"), policy);
    s.volumes[0].backing = Profile::named("san").unwrap();
    let options = Options { pacing, seed, ..Options::default() };
    simulate(&s, mixed(6_000), &options).unwrap()
}

#[test]
fn the_same_run_has_the_same_answer_to_the_last_digit() {
    for policy in ["write-through", "write-back"] {
        for pacing in PACINGS {
            let text = |seed| {
                let result = run(policy, pacing, seed);
                serde_json::to_string(&(&result, &result.rows)).unwrap()
            };
            assert_eq!(text(1), text(1), "{policy}, {pacing:?}");
            if pacing != Pacing::Untimed {
                assert_ne!(text(1), text(2), "the seed does not matter: {policy}, {pacing:?}");
            }
        }
    }
}

#[test]
fn a_run_begins_with_its_first_request_whatever_the_time_of_that() {
    let hour = 3_600_000_000_000;
    for pacing in PACINGS {
        let timed = !matches!(pacing, Pacing::Quiesced | Pacing::Untimed);
        let outage = || vec!["a=slow:3@1s..2s".parse().unwrap()];
        let options = Options {
            pacing,
            assume_flush: AssumeFlush::Every(Nanos(300_000_000)),
            interval: Interval::Time(Nanos(500_000_000)),
            outages: if timed { outage() } else { Vec::new() },
            ..Options::default()
        };
        let later = |by: u64| {
            let mut s = scenario(1000, Some("16MiB"), "write-back");
            s.volumes[0].backing = Profile::named("san").unwrap();
            let requests = mixed(3_000).into_iter();
            let later = requests.map(|r| Request { time: Nanos(r.time.0 + by), ..r });
            let result = simulate(&s, later, &options).unwrap();
            (result.rows.clone(), result)
        };
        assert_eq!(later(0), later(hour), "{pacing:?}");
    }
}

#[test]
fn every_request_is_answered_and_counted_once_whatever_the_pacing() {
    let requests = mixed(6_000);
    let of = |op| requests.iter().filter(|r| r.op == op).count() as u64;
    for policy in ["write-through", "write-back"] {
        for pacing in PACINGS {
            let result = run(policy, pacing, 1);
            let run = &result.run;
            assert_eq!((run.requests, run.reads, run.writes), (6_000, of(Op::Read), of(Op::Write)));
            assert_eq!(run.errors, 0);
            assert_eq!(result.assumed.flushes_traced, of(Op::Flush));
            assert_eq!(result.rows.iter().map(|r| r.requests).sum::<u64>(), 6_000);
            let misses: u64 = result.rows.iter().map(|r| r.misses.sum()).sum();
            assert_eq!(misses, run.cache.unwrap().misses.sum());
            let dirty = result.dirty_blocks;
            assert_eq!(dirty > 0, policy == "write-back", "{policy}, {pacing:?}: {dirty}");
            assert!(dirty <= run.cache.unwrap().dirty_blocks_max);
        }
    }
}

#[test]
fn without_latencies_and_with_quiet_in_between_the_cache_decides_alike() {
    for policy in ["write-through", "write-back"] {
        let (timed, untimed) = (run(policy, Pacing::Quiesced, 1), run(policy, Pacing::Untimed, 1));
        assert_eq!(timed.run.cache, untimed.run.cache);
        assert_eq!((timed.events, timed.flash), (untimed.events, untimed.flash));
        assert!(timed.run.latency_us.all.mean > 0.0 && untimed.run.latency_us.all.mean == 0.0);
    }
}

#[test]
fn a_request_that_must_wait_for_room_waits_from_its_arrival() {
    let mut s = fixed(scenario(64, None, "write-through"), &LATENCIES);
    s.cache.requests_max = 2;
    s.volumes[0].backing = Profile::fixed(Nanos(1_000_000), Nanos(1_000_000), 1);
    let requests = (0..10).map(|n| request(Op::Read, n * 100, 1));
    let result = simulate(&s, requests, &Options::default()).unwrap();
    let max = result.run.latency_us.read.max;
    assert!((10_000.0..10_020.0).contains(&max), "{max}");
}

#[test]
fn in_a_closed_loop_hits_do_not_delay_the_ends_of_device_operations() {
    let mut s = fixed(scenario(1000, None, "write-through"), &LATENCIES);
    s.volumes[0].backing = Profile::fixed(Nanos(100_000), Nanos(100_000), 0);
    // Hits do not fill the queue, so only the time that they take advances the clock.
    let miss_every = 100_000;
    let blocks = (0..4 * miss_every).map(|n| if n % miss_every == 1 { n } else { 0 });
    let pacing = Pacing::ClosedLoop { queue_depth: 32 };
    let options = Options { pacing, ..Options::default() };
    let result = simulate(&s, blocks.map(|n| request(Op::Read, n, 1)), &options).unwrap();
    let latency = result.run.latency_us.read.max;
    // The store takes 100 us. A copy takes 0.1 us, and the copy of every other request in flight
    // may come first.
    assert!((100.0..104.0).contains(&latency), "{latency} us");
}

/// Goal: a request that the processor takes up late finds what devices have done by then. Method:
/// hits keep the processor busy while a fetch ends; a read of the fetched block arrives before that
/// end, but its turn comes after it.
#[test]
fn in_an_open_loop_operations_end_while_the_processor_is_busy_with_hits() {
    let slow = Latencies { r1: 1_000_000, ..LATENCIES };
    let mut s = fixed(scenario(1000, None, "write-through"), &slow);
    s.volumes[0].backing = Profile::fixed(Nanos(10_000_000), Nanos(10_000_000), 0);
    let at =
        |ms: u64, block| Request { time: Nanos(ms * 1_000_000), ..request(Op::Read, block, 1) };
    let hits = (0..5).map(|_| at(107, 0));
    let requests = [at(0, 0), at(100, 1)].into_iter().chain(hits).chain([at(108, 1)]);
    let result = simulate(&s, requests, &Options::default()).unwrap();
    let cache = result.run.cache.unwrap();
    assert_eq!((cache.hits.tier1.read, cache.hits.delayed.read), (6, 0));
}

#[test]
fn faster_replay_makes_requests_wait() {
    let mut s = fixed(scenario(64, None, "write-through"), &LATENCIES);
    s.volumes[0].backing = Profile::fixed(Nanos(500_000), Nanos(500_000), 1);
    let requests: Vec<Request> = (0..1000)
        .map(|n| Request { time: Nanos(n * 1_000_000), ..request(Op::Read, n * 10, 1) })
        .collect();
    let mean = |rate| {
        let options = Options { pacing: Pacing::OpenLoop { rate }, ..Options::default() };
        simulate(&s, requests.iter().copied(), &options).unwrap().run.latency_us.read.mean
    };
    let own = mean(1.0);
    assert!((own / 500.1 - 1.0).abs() < 2e-3, "{own}");
    assert!((mean(1.9) / own - 1.0).abs() < 1e-2, "the store keeps up");
    let waiting = mean(4.0);
    assert!(waiting > 100.0 * own, "{waiting}");
}

#[test]
fn assumed_flushes_make_data_durable_and_are_no_requests_of_the_workload() {
    let s = scenario(1000, None, "write-back");
    let requests = || (0..1000).map(|n| request(Op::Write, n % 100, 1));
    let run = |assume_flush| {
        let options = Options { pacing: Pacing::Quiesced, assume_flush, ..Options::default() };
        simulate(&s, requests(), &options).unwrap()
    };
    let (none, some) = (run(AssumeFlush::None), run(AssumeFlush::EveryWrites(100)));
    assert_eq!((none.run.requests, some.run.requests), (1000, 1000));
    assert_eq!((none.assumed.flushes_added, some.assumed.flushes_added), (0, 10));
    assert_eq!(some.assumed.flush, "every 100 writes");
    let written = |r: &SimulationResult| r.run.cache.unwrap().backing.write_bytes;
    assert_eq!((written(&none), written(&some)), (0, 1000 * 4096));
    assert_eq!((none.dirty_blocks, some.dirty_blocks), (100, 0));
}

#[test]
fn each_volume_has_its_own_numbers_and_together_they_are_all() {
    let mut s = scenario(1000, Some("16MiB"), "write-back");
    s.volumes.push(s.volumes[0].clone());
    let mut requests = mixed(4000);
    requests.iter_mut().enumerate().for_each(|(i, r)| r.volume = Volume(u32::from(i % 4 == 0)));
    let options = Options { pacing: Pacing::ClosedLoop { queue_depth: 8 }, ..Options::default() };
    let result = simulate(&s, requests, &options).unwrap();
    let requests: Vec<u64> = result.volumes.iter().map(|v| v.requests).collect();
    assert_eq!(requests, [3000, 1000]);
    let sum = |of: fn(&forebay_simulate::VolumeResult) -> u64| -> u64 {
        result.volumes.iter().map(of).sum()
    };
    let all = result.run.cache.unwrap();
    assert_eq!(
        sum(|v| v.hits.tier1.sum() + v.hits.tier2.sum()),
        all.hits.tier1.sum() + all.hits.tier2.sum()
    );
    assert_eq!(sum(|v| v.backing.write_bytes), all.backing.write_bytes);
    assert!(all.dirty_blocks_max <= sum(|v| v.dirty_blocks_max) && all.dirty_blocks_max > 0);
}

#[test]
fn requests_for_no_volume_or_no_place_are_refused_by_their_number() {
    let s = scenario(1000, None, "write-through");
    let run = |requests: [Request; 2]| simulate(&s, requests, &Options::default()).unwrap_err();
    let good = request(Op::Read, 0, 1);
    let elsewhere = run([good, Request { volume: Volume(1), ..good }]);
    assert!(matches!(elsewhere, SimulateError::UnknownVolume { request: 2, .. }), "{elsewhere}");
    let beyond = run([good, Request { offset: VOLUME_BYTES, ..good }]);
    assert!(matches!(beyond, SimulateError::BeyondVolume { request: 2, .. }), "{beyond}");
    let overflow = run([good, Request { offset: u64::MAX - 10, ..good }]);
    assert!(matches!(overflow, SimulateError::BeyondVolumes { request: 2, .. }), "{overflow}");
    let text = overflow.to_string();
    assert!(text.contains("smaller than 1 EiB") && text.contains("larger `block_size`"), "{text}");
}

#[test]
fn times_may_be_as_large_as_numbers_are() {
    let s = scenario(1000, Some("16MiB"), "write-back");
    for (time, pacing) in [
        (u64::MAX, Pacing::OpenLoop { rate: 1.0 }),
        (i64::MAX as u64, Pacing::OpenLoop { rate: 0.001 }),
        (u64::MAX, Pacing::Quiesced),
    ] {
        let mut requests = mixed(100);
        let late = &mut requests[50..];
        late.iter_mut().for_each(|request| request.time = Nanos(time));
        let options = Options { pacing, ..Options::default() };
        assert_eq!(simulate(&s, requests, &options).unwrap().run.requests, 100);
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let s = scenario(1000, None, "write-through");
    for options in [
        Options { pacing: Pacing::OpenLoop { rate: 0.0 }, ..Options::default() },
        Options { pacing: Pacing::ClosedLoop { queue_depth: 0 }, ..Options::default() },
        Options { assume_flush: AssumeFlush::EveryWrites(0), ..Options::default() },
        Options { interval: Interval::Time(Nanos(0)), ..Options::default() },
    ] {
        let refused = simulate(&s, [], &options);
        assert!(matches!(refused, Err(SimulateError::Options(_))), "{options:?}");
    }
}

#[test]
fn a_run_stops_in_the_middle_of_a_trim_of_everything() {
    let s = scenario(1000, None, "write-through");
    for pacing in PACINGS {
        let mut simulation =
            Simulation::new(&s, &Options { pacing, ..Options::default() }).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        simulation.stop_when(Arc::clone(&stop));
        simulation.add(&request(Op::Read, 0, 1)).unwrap();
        stop.store(true, Ordering::Relaxed);
        let added = simulation.add(&request(Op::Trim, 0, VOLUME_BYTES / 4096));
        let ended = added.and_then(|()| simulation.finish().map(|_| ()));
        assert!(matches!(ended, Err(SimulateError::Interrupted)), "{pacing:?}: {ended:?}");
    }
}

#[test]
fn simulations_that_move_on_together_begin_together() {
    let s = fixed(scenario(1000, None, "write-through"), &LATENCIES);
    let mut late = Simulation::new(&s, &Options::default()).unwrap();
    let second = |n: u64| Nanos(n * 1_000_000_000);
    late.advance_to(second(10));
    late.advance_to(second(12));
    assert_eq!(late.now(), second(2));
    late.add(&Request { time: second(13), ..request(Op::Read, 0, 1) }).unwrap();
    assert_eq!(late.now(), second(3));
}
