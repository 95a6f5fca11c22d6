//! Measures the speed and the misses of every policy behind a plain driver: a hash map from keys to
//! nodes.
//!
//!     cargo bench -p forebay-replacement [-- --requests N --objects N --capacity C]
//!     cargo bench -p forebay-replacement -- --keys FILE --capacity C [--policy NAME] [--set PARAMETER=N]
//!
//! The default is 4 million requests, zipf 1.0, over 1 million objects, and a cache of 10 % of the
//! objects. With `--keys` the requests are the lines of a file, one number each. `--set` sets a
//! parameter of the policies that have it. Times are processor time of one thread; generating the
//! keys is not counted. The row `driver` is the map alone, with as many entries as the cache.

#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Instant;

use forebay_replacement::{Hint, Kind, Parameters, Policy, Replacement};

/// A hasher that multiplies and folds, which is enough for numbers.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64")
    }
    fn write_u64(&mut self, key: u64) {
        let wide = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}

type Index = HashMap<u64, u32, BuildHasherDefault<Fold>>;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let text = |name: &str| {
        args.iter().position(|a| a == name).and_then(|at| args.get(at + 1)).map(String::as_str)
    };
    let number =
        |name: &str, default: u64| text(name).map_or(default, |n| n.parse().expect("a number"));
    let objects = number("--objects", 1_000_000);
    let keys = match text("--keys") {
        Some(file) => {
            let lines = std::fs::read_to_string(file).expect("the file of keys");
            lines.lines().map(|line| line.trim().parse().expect("a number a line")).collect()
        }
        None => zipf(objects, number("--requests", 4_000_000)),
    };
    let capacity = number("--capacity", objects / 10) as u32;
    let only = text("--policy");
    println!("{} requests, a cache of {capacity} blocks", keys.len());
    println!(
        "{:14} {:>10} {:>8} {:>8} {:>10} {:>9} {:>12}",
        "policy", "misses", "ratio", "M req/s", "ns/request", "B/block", "steps/miss"
    );
    driver(&keys, capacity);
    for &kind in Kind::ALL {
        if only.is_none_or(|only| only == kind.name()) {
            let mut parameters = Parameters::new(kind);
            for pair in args.iter().skip_while(|a| *a != "--set").skip(1).take(1) {
                let (name, value) = pair.split_once('=').expect("--set PARAMETER=N");
                if parameters.get(name).is_some() {
                    parameters.set(name, value.parse().expect("a number")).expect("in its range");
                }
            }
            run(parameters, &keys, capacity);
        }
    }
}

fn run(parameters: Parameters, keys: &[u64], capacity: u32) {
    let mut policy = Replacement::new(capacity, capacity, &parameters);
    let mut index = Index::with_capacity_and_hasher(capacity as usize, Default::default());
    let mut key_of = vec![0; capacity as usize];
    let mut fresh = 0..capacity;
    let mut misses = 0_u64;
    let start = Instant::now();
    for &key in keys {
        if let Some(&node) = index.get(&key) {
            policy.on_access(node);
            continue;
        }
        misses += 1;
        let node = if policy.len() < capacity {
            fresh.next().expect("a free node")
        } else {
            let node = policy.evict(Some(key)).expect("not empty");
            index.remove(&key_of[node as usize]);
            node
        };
        policy.insert(node, key, Hint::default());
        key_of[node as usize] = key;
        index.insert(key, node);
    }
    let seconds = start.elapsed().as_secs_f64();
    let steps = policy.steps() as f64 / misses as f64;
    let bytes = policy.metadata_bytes() as f64 / f64::from(capacity);
    print(parameters.kind().name(), keys.len(), misses, seconds, bytes, steps);
}

/// Measures the map alone: a lookup for each request, and a removal and an insertion for each miss.
fn driver(keys: &[u64], capacity: u32) {
    let mut index = Index::with_capacity_and_hasher(capacity as usize, Default::default());
    let mut key_of: Vec<u64> = Vec::new();
    let mut misses = 0_u64;
    let start = Instant::now();
    for &key in keys {
        if index.contains_key(&key) {
            continue;
        }
        let node = (misses % u64::from(capacity)) as usize;
        misses += 1;
        if node < key_of.len() {
            index.remove(&key_of[node]);
            key_of[node] = key;
        } else {
            key_of.push(key);
        }
        index.insert(key, node as u32);
    }
    print("driver", keys.len(), misses, start.elapsed().as_secs_f64(), 0.0, 0.0);
}

fn print(name: &str, requests: usize, misses: u64, seconds: f64, bytes: f64, steps: f64) {
    let rate = requests as f64 / seconds / 1e6;
    let ratio = misses as f64 / requests as f64;
    println!(
        "{name:14} {misses:>10} {ratio:>8.4} {rate:>8.2} {:>10.1} {bytes:>9.1} {steps:>12.2}",
        1e3 / rate
    );
}

/// Keys with a Zipf 1.0 distribution; ranks are scattered over 64-bit keys.
fn zipf(objects: u64, count: u64) -> Vec<u64> {
    let mut sums = Vec::with_capacity(objects as usize);
    let mut sum = 0.0;
    for rank in 1..=objects {
        sum += 1.0 / rank as f64;
        sums.push(sum);
    }
    let mut state = 1_u64;
    let mut draw = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let unit = ((x ^ (x >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = sums.partition_point(|&s| s < unit * sum) as u64;
        rank.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    (0..count).map(|_| draw()).collect()
}
