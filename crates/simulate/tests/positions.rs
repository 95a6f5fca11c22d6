//! Goal: in the cache, HR LRU and Priority LRU do what their paper says (Hazan et al., Caching
//! according to use and QoS requirements), hit for hit, and priorities of volumes have the effect
//! that they are meant to have.
//!
//! Method: compare the real cache in virtual time with a cache written from the paper alone, a
//! plain list with tables of counts, on random and on recorded requests of one block each.

use std::collections::HashMap;
use std::path::Path;

use crate::common::{Random, VOLUME_BYTES, request, twenty_sizes};
use forebay_block::{Nanos, Op, Request, Volume};
use forebay_config::Config;
use forebay_simulate::{
    Defaults, Options, Pacing, Scenario, SimulationResult, TracedVolume, simulate,
};
use forebay_trace::{Batch, OpenOptions, open};

const BLOCK: u64 = 4096;

/// The rule that decides at which position of the list a block enters.
enum Rule {
    HitRatio {
        min_hit_ratio: f64,
    },
    Priority {
        weight: f64,
    },
    /// Not in the paper: in proportion to the hits that the volume would gain from a larger cache.
    Derivative,
}

/// The cache of the paper. `list[0]` is evicted next.
struct Paper {
    rule: Rule,
    capacity: usize,
    sub_queues: usize,
    min_position: f64,
    chunk_bytes: Option<u64>,
    interval: u64,
    priorities: Vec<f64>,
    list: Vec<(u32, u64)>,
    /// Accesses and hits of each chunk in this interval, by volume and chunk number.
    counts: HashMap<(u32, u64), (u64, u64)>,
    /// All blocks that were used, the most recently used one last.
    stack: Vec<(u32, u64)>,
    /// Additional hits of each volume with a cache a quarter larger: in this interval, and in the
    /// last interval in which there were any.
    gains: [[u64; 3]; 2],
    /// The hit ratio of each chunk in percent, in the last interval in which it was accessed.
    ratios: HashMap<(u32, u64), f64>,
    intervals: u64,
}

impl Paper {
    fn access(&mut self, r: &Request) -> bool {
        if r.time.0 / self.interval > self.intervals {
            self.intervals = r.time.0 / self.interval;
            for (chunk, (accesses, hits)) in self.counts.drain() {
                self.ratios.insert(chunk, 100.0 * hits as f64 / accesses as f64);
            }
            if self.gains[0] != [0; 3] {
                self.gains = [[0; 3], self.gains[0]];
            }
        }
        let block = (r.volume.0, r.offset / BLOCK);
        let chunk = (r.volume.0, self.chunk_bytes.map_or(0, |bytes| r.offset / bytes));
        let found = self.list.iter().position(|b| *b == block);
        let gained = self.gains[1];
        let at = self.stack.iter().rev().position(|b| *b == block);
        let larger = self.capacity + self.capacity.div_ceil(4);
        if at.is_some_and(|distance| (self.capacity..larger).contains(&distance)) {
            self.gains[0][r.volume.0 as usize] += 1;
        }
        self.stack.retain(|b| *b != block);
        self.stack.push(block);
        let count = self.counts.entry(chunk).or_default();
        count.0 += 1;
        count.1 += u64::from(found.is_some());
        if let Some(at) = found {
            self.list.remove(at);
            self.list.push(block);
            return true;
        }
        if self.list.len() == self.capacity {
            self.list.remove(0);
        }
        let hit_ratio = self.ratios.get(&chunk).copied().unwrap_or(0.0);
        let priority = self.priorities[r.volume.0 as usize];
        let percent = match self.rule {
            Rule::HitRatio { min_hit_ratio } => hit_ratio + min_hit_ratio,
            Rule::Priority { weight } => {
                weight * (3.0 - priority) + hit_ratio * (1.0 - (priority - 1.0) / 5.0)
            }
            Rule::Derivative if gained == [0; 3] => 100.0,
            Rule::Derivative => {
                let most = *gained.iter().max().unwrap() as f64;
                100.0 * gained[r.volume.0 as usize] as f64 / most
            }
        };
        let percent = percent.min(100.0).max(self.min_position).round() as usize;
        // Insert at the nearest boundary between two sub-queues, behind a whole number of them.
        let below = (percent * self.sub_queues + 50) / 100;
        let ahead = self.list.len() * (self.sub_queues - below) / self.sub_queues;
        self.list.insert(self.list.len() - ahead, block);
        false
    }
}

/// A cache of `blocks` blocks with the policy `replacement`, and one volume for each priority.
fn scenario(blocks: usize, replacement: &str, priorities: &[u8]) -> Scenario {
    let bytes = blocks as u64 * BLOCK;
    let mut text = format!("[cache]\ndram = {bytes}\n[replacement]\n{replacement}\n");
    let mut traced = Vec::new();
    for (number, priority) in priorities.iter().enumerate() {
        let name = format!("v{number}");
        text +=
            &format!("[[volume]]\nname = '{name}'\nbacking = '/{name}'\npriority = {priority}\n");
        traced.push(TracedVolume { name, bytes: VOLUME_BYTES });
    }
    Scenario::new(&Config::from_toml(&text).unwrap(), &traced, &Defaults::default()).unwrap()
}

fn run(scenario: &Scenario, requests: &[Request]) -> SimulationResult {
    let options = Options { pacing: Pacing::Untimed, ..Options::default() };
    simulate(scenario, requests.iter().copied(), &options).unwrap()
}

/// Compares the cache with the paper under all three policies, with chunks of `chunk_kib` KiB (0: a
/// chunk is a whole volume) and intervals of `interval_ms` ms.
fn compare(requests: &[Request], what: &str, capacity: usize, chunk_kib: u64, interval_ms: u64) {
    let priorities = [1, 3, 2];
    for (name, sub_queues, own, rule) in [
        ("hr-lru", 10, "min_hit_ratio_percent = 15", Rule::HitRatio { min_hit_ratio: 15.0 }),
        ("priority-lru", 7, "priority_weight_percent = 12", Rule::Priority { weight: 12.0 }),
        ("derivative-lru", 10, "", Rule::Derivative),
    ] {
        let mut paper = Paper {
            rule,
            capacity,
            sub_queues,
            min_position: 5.0,
            chunk_bytes: (chunk_kib > 0).then_some(chunk_kib << 10),
            interval: interval_ms * 1_000_000,
            priorities: priorities.map(f64::from).to_vec(),
            list: Vec::new(),
            counts: HashMap::new(),
            stack: Vec::new(),
            gains: [[0; 3]; 2],
            ratios: HashMap::new(),
            intervals: 0,
        };
        let mut expected = [0; 3];
        for r in requests {
            // Intervals count from the beginning of the run, which is its first request.
            let time = Nanos(r.time.0 - requests[0].time.0);
            expected[r.volume.0 as usize] += u64::from(paper.access(&Request { time, ..*r }));
        }
        let own = if own.is_empty() {
            String::new()
        } else {
            format!("{own}, chunk_kib = {chunk_kib}, ")
        };
        let replacement = format!(
            "policy = '{name}'\nparameters = {{ sub_queues = {sub_queues}, min_position_percent = 5, \
             {own}interval_ms = {interval_ms} }}"
        );
        let result = run(&scenario(capacity, &replacement, &priorities), requests);
        let hits: Vec<u64> = result.volumes.iter().map(|v| v.hits.tier1.sum()).collect();
        let what = format!("{name}, {what}, {capacity} blocks, {chunk_kib} KiB, {interval_ms} ms");
        assert_eq!(hits, expected, "{what}");
        assert!(paper.ratios.values().any(|&ratio| ratio > 0.0), "no interval ended: {what}");
    }
}

/// Requests for blocks of three volumes, 1 ms apart. Each volume has a hot range, and it moves.
fn random(count: u64, seed: u64) -> Vec<Request> {
    let mut random = Random(seed);
    let one = |i: u64| {
        let (volume, blocks) = [(0, 3000.0), (1, 1000.0), (2, 8000.0)][random.next() as usize % 3];
        let near = f64::powf(random.unit(), 3.0) * blocks;
        let block = (near as u64 + (i / 5000) * 700) % 9000;
        let op = if random.next().is_multiple_of(3) { Op::Write } else { Op::Read };
        let time = Nanos(i * 1_000_000);
        Request { time, volume: Volume(volume), ..request(op, block, 1) }
    };
    (0..count).map(one).collect()
}

/// The first `count` block accesses of a trace; ranges of 64 blocks go to three volumes in turn.
fn recorded(path: &Path, count: usize) -> Vec<Request> {
    let mut reader = open(path, &OpenOptions::default()).unwrap();
    let (mut requests, mut batch) = (Vec::new(), Batch::default());
    while requests.len() < count && reader.read_batch(&mut batch).unwrap() > 0 {
        for r in batch.requests().filter(|r| matches!(r.op, Op::Read | Op::Write)) {
            for block in r.offset / BLOCK..(r.offset + r.length).div_ceil(BLOCK) {
                let (volume, block) =
                    (Volume((block / 64 % 3) as u32), block % (VOLUME_BYTES / BLOCK));
                requests.push(Request { time: r.time, volume, ..request(r.op, block, 1) });
            }
        }
    }
    requests.truncate(count);
    requests
}

#[test]
fn the_cache_hits_as_the_paper_says_on_random_requests() {
    let chunks = [(1024, 1000), (0, 3000), (900, 500), (20480, 4000)];
    for (n, capacity) in twenty_sizes(64.0, 2000.0).enumerate() {
        let (chunk_kib, interval_ms) = chunks[n % 4];
        let requests = random(10_000, n as u64);
        compare(&requests, "random", capacity as usize, chunk_kib, interval_ms);
    }
}

#[test]
fn and_on_recorded_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = std::env::var_os("FOREBAY_TRACES")
        .map_or_else(|| folder.join("../shared/traces"), std::path::PathBuf::from);
    for (path, interval_ms) in [
        (folder.join("docs/traces/sqlite-shop.parquet"), 1500),
        (beside.join("cloudphysics/cloudPhysicsIO.vscsi"), 60_000),
    ] {
        if !path.exists() {
            println!("skipped: there is no {}", path.display());
            continue;
        }
        let requests = recorded(&path, 10_000);
        for (n, capacity) in twenty_sizes(64.0, 2000.0).enumerate() {
            let what = path.display().to_string();
            compare(&requests, &what, capacity as usize, [1024, 0][n % 2], interval_ms);
        }
    }
}

#[test]
fn volumes_of_high_priority_miss_less_and_those_of_low_priority_pay_for_it() {
    // Three volumes take turns and have the same workload, so they differ only in their priorities.
    let mut random = Random(7);
    let one = |i: u64| {
        let block = (f64::powf(random.unit(), 3.0) * 4000.0) as u64;
        let time = Nanos(i * 1_000_000);
        Request { time, volume: Volume((i % 3) as u32), ..request(Op::Read, block, 1) }
    };
    let requests: Vec<Request> = (0..90_000).map(one).collect();
    let misses = |policy: &str, priorities: [u8; 3]| {
        let scenario = scenario(1500, policy, &priorities);
        let volumes = run(&scenario, &requests).volumes;
        [0, 1, 2].map(|n: usize| 1.0 - volumes[n].hit_ratio)
    };
    let parameters = "parameters = { interval_ms = 5000, chunk_kib = 0 }";
    let lru = misses("policy = 'lru'", [1, 2, 3]);
    let [high, medium, low] = misses(&format!("policy = 'priority-lru'\n{parameters}"), [1, 2, 3]);
    println!("LRU {lru:.3?}, Priority LRU {high:.3} {medium:.3} {low:.3}");
    assert!(high < medium - 0.01 && medium < low - 0.01, "{high} {medium} {low}");
    assert!(high < lru[0] - 0.01 && low > lru[2] + 0.01, "{lru:?} {high} {low}");
    // The effect comes from the priority, not from the number of the volume.
    let [low, medium, high] = misses(&format!("policy = 'priority-lru'\n{parameters}"), [3, 2, 1]);
    assert!(high < medium - 0.01 && medium < low - 0.01, "{high} {medium} {low}");
    // HR LRU ignores priorities.
    let hr = format!("policy = 'hr-lru'\n{parameters}");
    assert_eq!(misses(&hr, [1, 2, 3]), misses(&hr, [1, 1, 1]));
}

#[test]
fn a_volume_that_gains_nothing_gives_way_to_one_that_would_under_derivative_lru() {
    // The first volume reuses more blocks than fit into memory, the second uses each block once,
    // the
    // third has few blocks.
    let mut random = Random(9);
    let one = |i: u64| {
        let (volume, block) = match random.next() % 4 {
            0 => (2, (random.unit() * 100.0) as u64),
            1 => (0, (f64::powf(random.unit(), 2.0) * 3000.0) as u64),
            _ => (1, i),
        };
        let time = Nanos(i * 1_000_000);
        Request { time, volume: Volume(volume), ..request(Op::Read, block, 1) }
    };
    let requests: Vec<Request> = (0..60_000).map(one).collect();
    let hits = |policy: &str| {
        let scenario = scenario(1000, policy, &[1, 1, 1]);
        let volumes = run(&scenario, &requests).volumes;
        [0, 1, 2].map(|n: usize| volumes[n].hit_ratio)
    };
    let lru = hits("policy = 'lru'");
    let by_gain = hits("policy = 'derivative-lru'\nparameters = { interval_ms = 5000 }");
    println!("LRU {lru:.3?}, Derivative LRU {by_gain:.3?}");
    assert!(by_gain[0] > lru[0] + 0.1, "{by_gain:?} {lru:?}");
    assert!(by_gain[2] > lru[2] - 0.02, "{by_gain:?} {lru:?}");
}
