//! Scenarios and workloads that several tests use.

#![allow(dead_code, reason = "each test uses a part of it")]

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_config::Config;
use forebay_model::Profile;
use forebay_simulate::{Defaults, Memory, Scenario, TracedVolume};

/// Size of the single volume in bytes.
pub const VOLUME_BYTES: u64 = 8 << 30;

/// A cache of `dram_blocks` blocks of 4 KiB, with a flash tier of size `flash` if that is set.
pub fn scenario(dram_blocks: u32, flash: Option<&str>, policy: &str) -> Scenario {
    scenario_with(dram_blocks, flash, policy, "region_size = '1MiB'")
}

/// Like [`scenario`], with an additional `line` in `[flash]`. The layout is the log unless `line`
/// sets another.
pub fn scenario_with(dram_blocks: u32, flash: Option<&str>, policy: &str, line: &str) -> Scenario {
    let layout = if line.contains("layout") { "" } else { "layout = 'log'\n" };
    let flash = flash.map_or(String::new(), |size| {
        format!("[flash]\npath = '/dev/x'\nsize = '{size}'\n{layout}{line}\n")
    });
    let bytes = u64::from(dram_blocks) * 4096;
    let text = format!("[cache]\ndram = {bytes}\nwrite_policy = '{policy}'\n{flash}");
    let config = Config::from_toml(&text).unwrap();
    let traced = [TracedVolume { name: "a".into(), bytes: VOLUME_BYTES }];
    Scenario::new(&config, &traced, &Defaults::default()).unwrap()
}

/// The scenario on devices with the fixed latencies `l`, which are named as in the formulas.
pub fn fixed(mut scenario: Scenario, l: &Latencies) -> Scenario {
    scenario.memory = Memory { read: Nanos(l.r1), write: Nanos(l.w1) };
    scenario.flash = Profile::fixed(Nanos(l.r2), Nanos(l.w2), 0);
    scenario.volumes[0].backing = Profile::fixed(Nanos(l.rs), Nanos(l.ws), 0);
    scenario
}

/// Latencies of memory, flash and backing store, in nanoseconds.
pub struct Latencies {
    pub r1: u64,
    pub w1: u64,
    pub r2: u64,
    pub w2: u64,
    pub rs: u64,
    pub ws: u64,
}

pub const LATENCIES: Latencies =
    Latencies { r1: 100, w1: 300, r2: 20_000, w2: 50_000, rs: 4_000_000, ws: 7_000_000 };

/// Twenty sizes from `smallest` to `largest`, in geometric progression.
pub fn twenty_sizes(smallest: f64, largest: f64) -> impl Iterator<Item = u32> {
    let step = (largest / smallest).ln() / 19.0;
    (0..20).map(move |i| (smallest * (step * f64::from(i)).exp()).round() as u32)
}

pub fn request(op: Op, block: u64, blocks: u64) -> Request {
    Request {
        time: Nanos(0),
        volume: Volume(0),
        op,
        flags: Flags::NONE,
        offset: block * 4096,
        length: blocks * 4096,
    }
}

/// Random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// `count` requests of one block each, 1 ms apart, Zipf 1.0 over `blocks` blocks, one in
/// `writes` a write.
pub fn zipf(count: u64, blocks: u64, writes: u64, seed: u64) -> Vec<Request> {
    let mut random = Random(seed);
    let ln = (blocks as f64).ln();
    (0..count)
        .map(|i| {
            let rank = ((random.unit() * ln).exp() as u64).min(blocks - 1);
            let write = random.next().is_multiple_of(writes);
            let op = if write { Op::Write } else { Op::Read };
            // Popular blocks are spread over the range, but stay within it.
            let block = rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % blocks;
            Request { time: Nanos(i * 1_000_000), ..request(op, block, 1) }
        })
        .collect()
}
