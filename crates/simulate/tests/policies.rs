//! Goal: the cache reports each access to its replacement policy exactly once, and evicts the block
//! that the policy names. It then has exactly the hits that the policy has without the cache,
//! whichever policy it is.
//!
//! Method: compare each policy that a configuration can name with the same policy driven by a plain
//! hash map, at twenty sizes. Requests are reads and writes of one block each, one at a time and
//! without latencies. Policies with positions derive them, on both sides, from hit ratios that
//! change every two seconds; `positions.rs` has an oracle for these.

use std::collections::HashMap;
use std::path::Path;

use crate::common::{self, scenario, twenty_sizes, zipf};
use forebay_block::{Nanos, Op, Request};
use forebay_cache::ReplacementParameters;
use forebay_config::ReplacementPolicy;
use forebay_replacement::{Hint, Kind, Policy, Positions, Replacement};
use forebay_results::ReadWrite;
use forebay_simulate::{Options, Pacing, simulate};
use forebay_trace::{Batch, OpenOptions, open};

/// The parameters of a policy; hit ratios, if it uses them, are of chunks of 1 MiB and intervals of
/// 2 s.
fn parameters(kind: Kind) -> ReplacementParameters {
    let mut parameters = ReplacementParameters::new(kind);
    for (name, value) in [("chunk_kib", 1024), ("interval_ms", 2000)] {
        if parameters.get(name).is_some() {
            parameters.set(name, value).unwrap();
        }
    }
    parameters
}

/// Hits of the policy alone, in a cache of `capacity` blocks that admits every block it misses.
fn alone(kind: Kind, capacity: u32, requests: &[Request]) -> ReadWrite {
    let mut policy = Replacement::new(capacity, capacity, &parameters(kind));
    let mut positions = Positions::new(&parameters(kind), capacity);
    positions.iter_mut().for_each(|positions| positions.start(Nanos(0)));
    let (mut index, mut keys) = (HashMap::new(), vec![0; capacity as usize]);
    let mut free: Vec<u32> = (0..capacity).rev().collect();
    let mut hits = ReadWrite::default();
    for request in requests {
        // (The same keys as in the cache, because policies hash them and make random choices.)
        let key = (u64::from(request.volume.0) << 48) | (request.offset / 4096);
        let mut hint = Hint::default();
        if let Some(positions) = &mut positions {
            // (Intervals count from the beginning of the run.)
            positions.advance(Nanos(request.time.0 - requests[0].time.0));
            positions.access(request.volume, request.offset, index.contains_key(&key));
            hint = positions.hint(request.volume, request.offset);
        }
        if let Some(&node) = index.get(&key) {
            policy.on_access(node);
            let of = if request.op == Op::Read { &mut hits.read } else { &mut hits.write };
            *of += 1;
            continue;
        }
        if policy.len() == capacity {
            let victim = policy.evict(Some(key)).unwrap();
            index.remove(&keys[victim as usize]);
            free.push(victim);
        }
        let node = free.pop().unwrap();
        policy.insert(node, key, hint);
        keys[node as usize] = key;
        index.insert(key, node);
    }
    hits
}

fn compare(requests: &[Request], what: &str) {
    for &kind in Kind::ALL {
        if kind.name().parse::<ReplacementPolicy>().is_err() {
            continue;
        }
        for capacity in twenty_sizes(64.0, 2000.0) {
            let expected = alone(kind, capacity, requests);
            for write_policy in ["write-through", "write-back"] {
                let mut scenario = scenario(capacity, None, write_policy);
                scenario.cache.replacement = parameters(kind);
                let options = Options { pacing: Pacing::Untimed, ..Options::default() };
                let result = simulate(&scenario, requests.iter().copied(), &options).unwrap();
                let hits = result.run.cache.unwrap().hits;
                assert_eq!(hits.tier1, expected, "{kind}, {capacity}, {write_policy}, {what}");
            }
        }
    }
}

#[test]
fn memory_alone_hits_exactly_as_the_policy_alone() {
    compare(&zipf(12_000, 8000, 4, 7), "zipf");
}

#[test]
fn and_so_on_a_real_trace() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/traces/sqlite-shop.parquet");
    let mut reader = open(&path, &OpenOptions::default()).unwrap();
    let (mut requests, mut batch) = (Vec::new(), Batch::default());
    while reader.read_batch(&mut batch).unwrap() > 0 {
        for r in batch.requests() {
            let blocks = r.offset / 4096..(r.offset + r.length).div_ceil(4096);
            if matches!(r.op, Op::Read | Op::Write) {
                let one = |block| Request { time: r.time, ..common::request(r.op, block, 1) };
                requests.extend(blocks.map(one));
            }
        }
    }
    requests.truncate(12_000);
    compare(&requests, "sqlite");
}
