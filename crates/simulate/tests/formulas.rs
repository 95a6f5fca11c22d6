//! Compares latencies of single requests with the formulas of Bhandari 2024, section 3.2.
//!
//! Method: devices with fixed latencies and no other limits, one request at a time, each after all
//! background work of the previous one; the test measures the latency of the last request. Where
//! the simulated machine differs from the formulas the test says so; docs/simulation.md says why.

use crate::common::{LATENCIES as L, fixed, request, scenario};
use forebay_block::{Op, Request};
use forebay_simulate::{Options, Pacing, Scenario, Simulation, SimulationResult};

/// Number of blocks in tier 1. It is large enough that more frames are free for blocks being
/// demoted than a batch of the log holds. With fewer, a request may have to wait for a batch that
/// is not full.
const DRAM: u32 = 2048;
/// Blocks to read in order to push all earlier blocks out of tier 1, and their records out of the
/// open batch into the log.
const FILL: std::ops::Range<u64> = 10_000..12_500;

fn run(scenario: &Scenario, requests: &[Request]) -> SimulationResult {
    let options = Options { pacing: Pacing::Quiesced, ..Options::default() };
    let mut simulation = Simulation::new(scenario, &options).unwrap();
    requests.iter().for_each(|r| simulation.add(r).unwrap());
    simulation.finish().unwrap()
}

/// Latency of `request` in nanoseconds, sent after the requests `before`.
fn latency(scenario: &Scenario, before: &[Request], request: Request) -> u64 {
    let options = Options { pacing: Pacing::Quiesced, ..Options::default() };
    let mut simulation = Simulation::new(scenario, &options).unwrap();
    before.iter().for_each(|r| simulation.add(r).unwrap());
    let begun = simulation.now();
    simulation.add(&request).unwrap();
    simulation.answered_at().0 - begun.0
}

fn read(block: u64) -> Request {
    request(Op::Read, block, 1)
}

fn write(block: u64) -> Request {
    request(Op::Write, block, 1)
}

/// Requests after which blocks 0 and 1 are in tier 2, if there is one.
fn demoted() -> Vec<Request> {
    [0, 1].into_iter().chain(FILL).map(read).collect()
}

#[test]
fn a_single_tier_takes_what_the_formulas_say() {
    let s = fixed(scenario(DRAM, None, "write-through"), &L);
    let full: Vec<Request> = FILL.map(read).collect();
    assert_eq!(latency(&s, &[read(0)], read(0)), L.r1, "read hit");
    // The formula writes the fetched block to tier 1 (w1). Here the device transfers it directly
    // into a frame of tier 1, from which it is then read.
    assert_eq!(latency(&s, &[], read(0)), L.rs + L.r1, "read miss");
    assert_eq!(latency(&s, &full, read(0)), L.rs + L.r1, "read miss, full");
    assert_eq!(latency(&s, &[], write(0)), L.ws + L.w1, "write miss");
    assert_eq!(latency(&s, &[read(0)], write(0)), L.ws + L.w1, "write hit");
}

#[test]
fn with_two_tiers_demotion_is_not_in_the_way_of_the_request() {
    let s = fixed(scenario(DRAM, Some("64MiB"), "write-through"), &L);
    let demoted = demoted();
    assert_eq!(latency(&s, &[read(0)], read(0)), L.r1, "read hit tier 1");
    // The formula: r1 + w1 + r2 + w2.
    assert_eq!(latency(&s, &demoted, read(0)), L.r2 + L.r1, "read hit tier 2");
    // The formula: rS + w1 + r1 + w2.
    assert_eq!(latency(&s, &demoted, read(2)), L.rs + L.r1, "read miss");
    // The formula: wS + r1 + w1 + w2.
    assert_eq!(latency(&s, &demoted, write(2)), L.ws + L.w1, "write miss");
    let hits = run(&s, &[&demoted[..], &[read(0), read(2)]].concat()).run.cache.unwrap().hits;
    assert_eq!((hits.tier1.read, hits.tier2.read), (0, 1));
}

#[test]
fn the_first_write_past_a_record_pays_for_the_mark_of_its_extent() {
    let s = fixed(scenario(DRAM, Some("64MiB"), "write-through"), &L);
    let mut before = demoted();
    assert_eq!(latency(&s, &before, write(0)), L.w2 + L.ws + L.w1, "first write tier 2");
    before.push(write(0));
    assert_eq!(latency(&s, &before, write(1)), L.ws + L.w1, "second write tier 2");
}

#[test]
fn write_back_ends_in_memory_or_in_the_log() {
    let single = fixed(scenario(DRAM, None, "write-back"), &L);
    assert_eq!(latency(&single, &[], write(0)), L.w1, "acknowledged in memory");
    let logged = fixed(scenario(DRAM, Some("64MiB"), "write-back"), &L);
    for (what, before) in [("miss", vec![]), ("hit tier 1", vec![read(0)]), ("tier 2", demoted())] {
        assert_eq!(latency(&logged, &before, write(0)), L.w1 + L.w2, "{what}");
    }
}

#[test]
fn a_deeper_queue_uses_devices_side_by_side() {
    let mut s = fixed(scenario(DRAM, None, "write-through"), &L);
    s.volumes[0].backing.parallelism = 4;
    let throughput = |queue_depth| {
        let options = Options { pacing: Pacing::ClosedLoop { queue_depth }, ..Options::default() };
        let requests = (0..400).map(|n| read(n * 10));
        forebay_simulate::simulate(&s, requests, &options).unwrap().throughput.requests_per_s
    };
    let one = throughput(1);
    assert!((throughput(4) / one - 4.0).abs() < 0.01);
    assert!((throughput(16) / one - 4.0).abs() < 0.1, "the store does four at a time");
}
