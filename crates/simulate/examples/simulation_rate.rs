//! Measures how fast simulations run: `cargo run --release -p forebay-simulate --example
//! simulation_rate [requests] [case...]`.
//!
//! The workload is 4 KiB requests, Zipf 1.0 over 2 M blocks, either all reads or one write in four
//! requests; DRAM holds 1 % and flash 10 % of the blocks. Prints millions of requests per second of
//! processor time for each case.

#![allow(clippy::print_stdout)]

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_config::Config;
use forebay_simulate::{Defaults, Options, Pacing, Scenario, TracedVolume, simulate};

const BLOCKS: u64 = 2_000_000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(5_000_000u64);
    let wanted: Vec<String> = arguments.collect();
    let mixed = zipf(count);
    for tiers in ["dram", "two-tier"] {
        for load in ["reads", "write-through", "write-back"] {
            let reads = mixed.iter().map(|r| Request { op: Op::Read, ..*r });
            let requests = if load == "reads" { reads.collect() } else { mixed.clone() };
            for pacing in
                [Pacing::Untimed, Pacing::ClosedLoop { queue_depth: 16 }, Pacing::default()]
            {
                let case = format!("{tiers}/{load}/{}", pacing.name());
                if !wanted.is_empty() && !wanted.iter().any(|w| case.contains(w.as_str())) {
                    continue;
                }
                let scenario = scenario(tiers, load);
                let options = Options { pacing, ..Options::default() };
                let started = cpu_seconds();
                let result = simulate(&scenario, requests.iter().copied(), &options);
                let seconds = cpu_seconds() - started;
                let result = result.expect("the simulation runs");
                let hits = result.run.cache.unwrap_or_default();
                println!(
                    "{case:<36} {:>6.2} M/s   hit ratio {:.4}, tier 2 {:.4}",
                    count as f64 / seconds / 1e6,
                    hits.hit_ratio,
                    hits.hits.tier2.sum() as f64 / count as f64,
                );
            }
        }
    }
}

/// Processor time of this process, the measure that other work on the machine disturbs least. (Does
/// not use `clock_gettime`, so that it also works under valgrind.)
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("the kernel counts time");
    let nanos = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    nanos.expect("the kernel counts nanoseconds") * 1e-9
}

fn scenario(tiers: &str, load: &str) -> Scenario {
    let policy = if load == "reads" { "write-through" } else { load };
    let flash = match tiers {
        "two-tier" => "[flash]\npath = '/dev/x'\nsize = '800MiB'\nshape = 'FastSSD'\n",
        _ => "",
    };
    let text = format!(
        "[cache]\ndram = '80MiB'\nwrite_policy = '{policy}'\n{flash}\
         [[volume]]\nname = 'a'\nbacking = '/a'\nshape = 'FastHDD'\n"
    );
    let config = Config::from_toml(&text).expect("the configuration is sound");
    let traced = [TracedVolume { name: "a".into(), bytes: BLOCKS * 4096 }];
    Scenario::new(&config, &traced, &Defaults::default()).expect("the scenario is sound")
}

/// Requests 1 ms apart for blocks of Zipf popularity, spread over the volume.
fn zipf(count: u64) -> Vec<Request> {
    let mut state = 42u64;
    let mut next = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let ln = (BLOCKS as f64).ln();
    (0..count)
        .map(|i| {
            let u = (next() >> 11) as f64 / (1u64 << 53) as f64;
            // A continuous distribution with a density proportional to 1/rank.
            let rank = ((u * ln).exp() as u64).min(BLOCKS - 1);
            let block = rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % BLOCKS;
            Request {
                time: Nanos(i * 1_000_000),
                volume: Volume(0),
                op: if next() % 4 == 0 { Op::Write } else { Op::Read },
                flags: Flags::NONE,
                offset: block * 4096,
                length: 4096,
            }
        })
        .collect()
}
