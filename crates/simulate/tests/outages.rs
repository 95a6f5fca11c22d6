//! Backing stores that fail for a part of a run: which requests are affected, and what is dirty
//! afterwards.
//!
//! Method: volumes with one store each share a cache, and one store fails. Where a claim is about a
//! part of a run, the test reads counters during the run.

use std::collections::BTreeSet;

use crate::common::{self, fixed, request, scenario, zipf};
use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_model::Profile;
use forebay_simulate::{
    Answer, AssumeFlush, Options, Pacing, Scenario, SimulateError, Simulation, SimulationResult,
    simulate,
};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;
const NAMES: [&str; 3] = ["vm1", "vm2", "vm3"];
const LAYOUTS: [&str; 2] = ["slots", "log"];

/// Three volumes, each with a SAN as its backing store, share 1 MiB of memory and 16 MiB of flash.
fn shared(policy: &str, layout: &str) -> Scenario {
    let line = format!("layout = '{layout}'");
    named(common::scenario_with(256, Some("16MiB"), policy, &line))
}

/// The scenario with three volumes like its first, on stores that serve many operations in
/// parallel.
fn named(mut scenario: Scenario) -> Scenario {
    let mut volume = scenario.volumes.remove(0);
    volume.backing = Profile::named("san").unwrap();
    for name in NAMES {
        volume.name = name.into();
        scenario.volumes.push(volume.clone());
    }
    scenario
}

/// 200 requests per second to each volume for `seconds` seconds; one in three is a write.
fn load(seconds: u64) -> Vec<Request> {
    let mut requests = zipf(600 * seconds, 20_000, 3, 29);
    for (n, r) in (0..).zip(&mut requests) {
        r.time = Nanos(n * SECOND / 600);
        r.volume = Volume((n % 3) as u32);
    }
    requests
}

fn with(outages: &[&str]) -> Options {
    let outages = outages.iter().map(|text| text.parse().unwrap()).collect();
    Options { outages, ..Options::default() }
}

fn errors(result: &SimulationResult) -> Vec<u64> {
    result.volumes.iter().map(|v| v.errors).collect()
}

/// The number of errors of a volume so far.
fn so_far(simulation: &Simulation, volume: u32) -> u64 {
    simulation.cache().volume_stats(Volume(volume)).unwrap().errors
}

#[test]
fn a_dead_store_fails_requests_of_its_own_volume_while_it_is_dead_and_leaves_nothing_dirty() {
    for layout in LAYOUTS {
        let options = with(&["vm1=dead@5s..10s"]);
        let mut simulation = Simulation::new(&shared("write-back", layout), &options).unwrap();
        // Errors of the first volume before, during and after the outage. The end is read 1 s late,
        // so that operations in flight at that moment have ended.
        let (mut ends, mut seen) = ([5, 11].into_iter().peekable(), Vec::new());
        for r in load(20) {
            if ends.next_if(|end| Nanos(end * SECOND) <= r.time).is_some() {
                simulation.advance_to(r.time);
                seen.push(so_far(&simulation, 0));
            }
            simulation.add(&r).unwrap();
        }
        let result = simulation.finish().unwrap();
        assert_eq!(seen[0], 0, "{layout}");
        assert!(seen[1] > 100, "{layout}: {seen:?}");
        assert_eq!(errors(&result), [seen[1], 0, 0], "{layout}");
        let after = result.after_outages.unwrap();
        assert!(result.dirty_blocks > 0 && after.seconds > 0.0, "{layout}: {after:?}");
        assert_eq!((after.destaged, after.dirty_blocks), (true, 0), "{layout}");
    }
}

#[test]
fn a_full_store_fails_the_writes_that_reach_it_and_no_reads() {
    let mut s = named(fixed(scenario(1000, None, "write-through"), &common::LATENCIES));
    for volume in &mut s.volumes {
        volume.backing = Profile::fixed(Nanos(MILLISECOND), Nanos(MILLISECOND), 0);
    }
    let requests = load(15);
    let failing = |r: &&Request| (5 * SECOND..10 * SECOND).contains(&r.time.0);
    let written = |r: &&Request| r.volume == Volume(0) && r.op == Op::Write;
    let expected = requests.iter().filter(failing).filter(written).count() as u64;
    assert!(expected > 100);
    let result = simulate(&s, requests, &with(&["vm1=full@5s..10s"])).unwrap();
    assert_eq!(errors(&result), [expected, 0, 0]);
}

#[test]
fn a_full_store_punches_holes_and_writes_no_zeroes() {
    let s = named(scenario(1000, None, "write-through"));
    for (op, flags, fails) in [
        (Op::Trim, Flags::NONE, 0),
        (Op::WriteZeroes, Flags::NONE, 0),
        (Op::WriteZeroes, Flags::NO_HOLE, 1),
    ] {
        let requests = [Request { flags, ..request(op, 7, 2) }];
        let result = simulate(&s, requests, &with(&["vm1=full@0s..1s"])).unwrap();
        assert_eq!(errors(&result), [fails, 0, 0], "{op:?} {flags:?}");
    }
}

#[test]
fn a_full_store_fails_writes_once_they_have_waited_for_too_long_and_is_destaged_when_it_has_room() {
    for layout in LAYOUTS {
        let mut s = shared("write-back", layout);
        s.cache.give_up_after = Nanos(SECOND);
        // Every request uses a new block, so that flash fills with blocks that the store rejects.
        let new = (0..).zip(load(60)).map(|(n, r)| Request { offset: n * 4096, ..r });
        let result = simulate(&s, new, &with(&["vm1=full@1s..40s"])).unwrap();
        let errors = errors(&result);
        assert!(errors[0] > 100 && errors[1..] == [0, 0], "{layout}: {errors:?}");
        assert!(result.events.suspensions > 0, "{layout}");
        let after = result.after_outages.unwrap();
        assert_eq!((after.destaged, after.dirty_blocks), (true, 0), "{layout}");
    }
}

#[test]
fn what_a_store_that_stays_dead_lacks_is_dirty_to_the_end() {
    for layout in LAYOUTS {
        let s = shared("write-back", layout);
        let result = simulate(&s, load(5), &with(&["vm2=dead@2s.."])).unwrap();
        assert_eq!([0, 2].map(|n| result.volumes[n].errors), [0, 0], "{layout}");
        let after = result.after_outages.unwrap();
        assert!(!after.destaged, "{layout}");
        let (all, own) = (result.dirty_blocks, result.volumes[1].dirty_blocks);
        assert!((1..=own).contains(&after.dirty_blocks), "{layout}: {after:?} of {own}");
        assert!(own < all, "{layout}: others had nothing that was destaged");
    }
}

#[test]
fn a_store_that_is_dead_from_the_start_worked_while_the_cache_was_set_up() {
    for layout in LAYOUTS {
        // The cache never trusts a store again whose sync failed during the setup.
        let result =
            simulate(&shared("write-back", layout), load(3), &with(&["vm1=dead@0s..1s"])).unwrap();
        assert!(result.volumes[0].errors > 0, "{layout}");
        assert!(result.after_outages.unwrap().destaged, "{layout}");
    }
}

#[test]
fn a_store_whose_sync_failed_is_not_called_destaged_though_nothing_is_dirty() {
    // Writes bypass the cache, and a flush fails.
    let s = named(scenario(1000, None, "write-through"));
    let at = |op, seconds| Request {
        time: Nanos(seconds * SECOND),
        ..request(op, 0, u64::from(op == Op::Write))
    };
    let requests = [at(Op::Write, 1), at(Op::Flush, 3), at(Op::Flush, 6)];
    let result = simulate(&s, requests, &with(&["vm1=dead@2s..5s"])).unwrap();
    assert_eq!(errors(&result), [2, 0, 0], "a later flush is believed");
    let after = result.after_outages.unwrap();
    assert_eq!((after.destaged, after.dirty_blocks), (false, 0));
}

#[test]
fn assumed_flushes_that_fail_are_no_errors_of_the_workload() {
    let s = named(scenario(1000, None, "write-through"));
    let write = |seconds| Request { time: Nanos(seconds * SECOND), ..request(Op::Write, 0, 1) };
    let assume_flush = AssumeFlush::Every(Nanos(SECOND));
    let options = Options { assume_flush, ..with(&["vm1=dead@2s..4s"]) };
    // The flush after the first write arrives while the store is dead, and so does the second
    // write.
    let result = simulate(&s, [write(1), write(3), write(6)], &options).unwrap();
    assert_eq!(errors(&result), [1, 0, 0]);
    let (run, added) = (&result.run, result.assumed.flushes_added);
    assert_eq!((run.requests, run.errors, added), (3, 1, 2));
}

#[test]
fn without_outages_nothing_is_said_of_them_and_nothing_destaged() {
    let result = simulate(&shared("write-back", "slots"), load(2), &with(&[])).unwrap();
    assert_eq!(result.after_outages, None);
    assert!(result.dirty_blocks > 0);
}

#[test]
fn outages_that_make_no_sense_are_refused_with_the_reason() {
    let s = shared("write-back", "slots");
    let refused = |s: &Scenario, options: &Options| {
        let error = simulate(s, [], options).unwrap_err();
        let bad = matches!(error, SimulateError::Options(_) | SimulateError::UnknownOutage { .. });
        assert!(bad, "{error:?}");
        error.to_string()
    };
    let unknown = refused(&s, &with(&["vm1=dead", "vm9=full"]));
    assert!(unknown.contains("`vm9`") && unknown.contains("vm1, vm2, vm3"), "{unknown}");
    for pacing in [Pacing::Untimed, Pacing::Quiesced] {
        let text = refused(&s, &Options { pacing, ..with(&["vm1=dead@1s..2s"]) });
        assert!(text.contains("the trace's timestamps"), "{pacing:?}: {text}");
    }
    // Without a timeout, requests to a store that fails forever would never be answered. A store
    // that recovers, or is slow, answers eventually.
    let mut patient = s;
    patient.cache.give_up_after = Nanos(0);
    for outage in ["vm1=dead", "vm1=full@1s.."] {
        let text = refused(&patient, &with(&[outage]));
        assert!(text.contains("give_up_after"), "{outage}: {text}");
    }
    for outage in ["vm1=dead@1s..2s", "vm1=slow:2"] {
        assert!(simulate(&patient, load(3), &with(&[outage])).is_ok(), "{outage}");
    }
}

#[test]
fn the_same_outages_have_the_same_answer_to_the_last_digit() {
    let options = |seed| Options { seed, ..with(&["vm1=dead@1s..3s", "vm3=slow:20@2s..4s"]) };
    for pacing in [Pacing::OpenLoop { rate: 1.0 }, Pacing::ClosedLoop { queue_depth: 16 }] {
        let text = |seed| {
            let options = Options { pacing, ..options(seed) };
            let result = simulate(&shared("write-back", "slots"), load(5), &options).unwrap();
            serde_json::to_string(&(&result, &result.rows)).unwrap()
        };
        assert_eq!(text(1), text(1), "{pacing:?}");
        assert_ne!(text(1), text(2), "the seed does not matter: {pacing:?}");
    }
}

#[test]
fn requests_of_a_volume_that_waits_for_room_hold_up_no_other_volume() {
    let mut s = named(fixed(scenario(1000, None, "write-through"), &common::LATENCIES));
    s.cache.requests_max = 8;
    // The store serves one request per second, and a hundred arrive at once. The stores of the
    // other volumes are never busy for long.
    s.volumes[0].backing = Profile::fixed(Nanos(SECOND), Nanos(SECOND), 1);
    for volume in &mut s.volumes[1..] {
        volume.backing = Profile::fixed(Nanos(MILLISECOND), Nanos(MILLISECOND), 0);
    }
    let own = (0..100).map(|n| request(Op::Read, n, 1));
    let others = (0..1000).map(|n| Request {
        time: Nanos(n * 10 * MILLISECOND),
        volume: Volume(1 + (n % 2) as u32),
        ..request(Op::Read, n, 1)
    });
    let result = simulate(&s, own.chain(others), &Options::default()).unwrap();
    let max = |n: usize| result.volumes[n].latency_us.read.max;
    assert!((99e6..101e6).contains(&max(0)), "it does not wait from its arrival: {}", max(0));
    assert!(max(1) < 2e3 && max(2) < 2e3, "{} and {} µs", max(1), max(2));
}

#[test]
fn every_request_is_answered_once_though_those_of_a_volume_wait_for_room() {
    let mut s = shared("write-back", "log");
    s.cache.requests_max = 8;
    s.volumes[0].backing = Profile::fixed(Nanos(30 * MILLISECOND), Nanos(30 * MILLISECOND), 1);
    let requests = load(5);
    let mut simulation = Simulation::new(&s, &with(&["vm1=dead@2s..3s"])).unwrap();
    simulation.keep_answers();
    let mut answers: Vec<Answer> = Vec::new();
    for r in &requests {
        simulation.add(r).unwrap();
        answers.extend(simulation.take_answers());
    }
    assert!(answers.len() < requests.len(), "nothing waited");
    simulation.run_until_idle().unwrap();
    answers.extend(simulation.take_answers());
    let numbers: BTreeSet<u64> = answers.iter().map(|answer| answer.request).collect();
    assert_eq!((answers.len(), numbers.len()), (requests.len(), requests.len()));
    assert_eq!(simulation.finish().unwrap().run.requests, requests.len() as u64);
}

/// The highest 99th percentile of the other volumes' read and write latencies, in microseconds.
fn p99_of_others(result: &SimulationResult) -> [f64; 2] {
    let of = |pick: fn(&forebay_results::LatencyByOp) -> f64| {
        result.volumes[1..].iter().map(|v| pick(&v.latency_us)).fold(0.0, f64::max)
    };
    [of(|l| l.read.p99), of(|l| l.write.p99)]
}

#[test]
fn others_do_not_wait_for_a_store_that_is_dead_full_or_slow() {
    // Flash fills long before the end, and the volume's share of flash is all dirty. Memory has
    // room for everything that a volume may be waiting for.
    for layout in LAYOUTS {
        let line = format!("layout = '{layout}'");
        let mut s = named(common::scenario_with(2048, Some("16MiB"), "write-back", &line));
        for volume in &mut s.volumes {
            volume.backing = Profile::fixed(Nanos(MILLISECOND), Nanos(MILLISECOND), 32);
        }
        let run = |outages: &[&str]| simulate(&s, load(120), &with(outages)).unwrap();
        let healthy = p99_of_others(&run(&[]));
        for trouble in ["dead", "full", "slow:100", "slow:1000"] {
            let result = run(&[&format!("vm1={trouble}@10s..130s")]);
            let ratios = [0, 1].map(|n| p99_of_others(&result)[n] / healthy[n]);
            assert!(ratios.iter().all(|&r| r < 1.3), "{layout}, {trouble}: {ratios:?}");
            // No write of the other volumes waits for the slow store, whose operations take up to
            // 1 s.
            let longest = result.volumes[1..].iter().map(|v| v.latency_us.write.max);
            let longest = longest.fold(0.0, f64::max);
            assert!(longest < 50_000.0, "{layout}, {trouble}: a write takes {longest} us");
            assert!(errors(&result)[1..].iter().all(|&n| n == 0), "{layout}, {trouble}");
            assert!(result.after_outages.unwrap().destaged, "{layout}, {trouble}");
            let parted = result.events.cleanings_parted;
            match trouble {
                "slow:1000" => assert!(parted > 0, "{layout}"),
                "slow:100" => {}
                _ => assert_eq!(parted, 0, "{layout}, {trouble}: these fail, and are not late"),
            }
        }
    }
}

#[test]
fn what_stores_that_fail_cause_is_among_the_events() {
    let result =
        simulate(&shared("write-back", "log"), load(5), &with(&["vm1=dead@1s.."])).unwrap();
    let events: Vec<_> = result.events.simulated().filter(|&(_, n)| n > 0).map(|e| e.0).collect();
    assert!(events.contains(&"transfer_errors"), "{events:?}");
    for name in [
        "waits_share",
        "suspensions",
        "appends_refused",
        "probes",
        "stores_recovered",
        "jams",
        "carried",
        "cleanings_parted",
    ] {
        for mut events in [
            Box::new(result.events.simulated()) as Box<dyn Iterator<Item = (&str, u64)>>,
            Box::new(result.events.served()),
        ] {
            assert!(events.any(|(event, _)| event == name), "{name}");
        }
    }
}

#[test]
fn requests_that_wait_for_room_are_in_the_rows_of_the_time_at_which_they_begin() {
    // Far more load than the stores can serve: nearly all requests wait, and begin long after the
    // last one has arrived.
    let mut s = shared("write-through", "log");
    for volume in &mut s.volumes {
        volume.backing = Profile::fixed(Nanos(10 * MILLISECOND), Nanos(10 * MILLISECOND), 1);
    }
    let result = simulate(&s, load(10), &Options::default()).unwrap();
    let taken: u64 = result.rows.iter().map(|row| row.requests).sum();
    assert!(result.rows.len() > 2 && taken == result.run.requests, "{} rows", result.rows.len());
}

/// Waiting for a store that refuses writes is not a queue of a device, and no device is busy for
/// longer than the run lasts.
#[test]
fn overloaded_is_the_store_that_requests_wait_for_and_not_one_that_fails() {
    for layout in LAYOUTS {
        // Five times as fast, so that a volume's share of flash is full before the volume is
        // suspended.
        let fast = |r: Request| Request { time: Nanos(r.time.0 / 5), ..r };
        let requests = || load(200).into_iter().map(fast);
        let run = |outage| simulate(&shared("write-back", layout), requests(), &with(&[outage]));
        let full = run("vm2=full").unwrap();
        let longest = full.volumes[1].latency_us.all.max;
        assert!(longest > 1e6, "{layout}: nothing waits: {longest}");
        assert_eq!(full.overloaded, [], "{layout}");
        let slow = run("vm1=slow:200").unwrap();
        let [device] = &slow.overloaded[..] else { panic!("{layout}: {:?}", slow.overloaded) };
        assert_eq!(device.device, "vm1", "{layout}");
        let shares = [device.busy_share, device.share];
        assert!(shares.iter().all(|share| (0.5..=1.0).contains(share)), "{layout}: {shares:?}");
    }
}
