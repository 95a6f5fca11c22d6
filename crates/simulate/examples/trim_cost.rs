//! Measures what a large trim costs other requests: `cargo run --release -p forebay-simulate
//! --example trim_cost [GiB] [requests...]`.
//!
//! The workload is one trim of `GiB` (default 4), then `requests` (default: 0, 100, 1,000, 3,000
//! and 10,000) of 4 KiB within the trimmed range, 1 µs apart, one in four a write. Prints seconds
//! of processor time with 1 MiB of memory, with 64 MiB, and with 64 MiB and 512 MiB of flash.

#![allow(clippy::print_stdout)]

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_config::Config;
use forebay_simulate::{Defaults, Options, Pacing, Scenario, TracedVolume, simulate};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|n| n.parse::<u64>().expect("a number"));
    let bytes = arguments.next().unwrap_or(4) << 30;
    let mut counts: Vec<u64> = arguments.collect();
    if counts.is_empty() {
        counts = vec![0, 100, 1_000, 3_000, 10_000];
    }
    for tiers in ["1MiB", "64MiB", "two-tier"] {
        for policy in ["write-through", "write-back"] {
            for pacing in [Pacing::Untimed, Pacing::default()] {
                for &count in &counts {
                    let scenario = scenario(tiers, policy, bytes);
                    let options = Options { pacing, ..Options::default() };
                    let started = cpu_seconds();
                    let result = simulate(&scenario, requests(bytes, count), &options);
                    let seconds = cpu_seconds() - started;
                    let result = result.expect("the simulation runs");
                    println!(
                        "{tiers}/{policy}/{:<9} trim and {count:>6} requests: {seconds:>8.3} s   \
                         mean read {:.0} us",
                        pacing.name(),
                        result.run.latency_us.read.mean,
                    );
                }
            }
        }
    }
}

/// Processor time of this process.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("the kernel counts time");
    let nanos = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    nanos.expect("the kernel counts nanoseconds") * 1e-9
}

fn scenario(tiers: &str, policy: &str, bytes: u64) -> Scenario {
    let (dram, flash) = match tiers {
        "two-tier" => ("64MiB", "[flash]\npath = '/dev/x'\nsize = '512MiB'\nshape = 'FastSSD'\n"),
        dram => (dram, ""),
    };
    let text = format!(
        "[cache]\ndram = '{dram}'\nwrite_policy = '{policy}'\n{flash}\
         [[volume]]\nname = 'a'\nbacking = '/a'\nshape = 'FastHDD'\n"
    );
    let config = Config::from_toml(&text).expect("the configuration is sound");
    let traced = [TracedVolume { name: "a".into(), bytes }];
    Scenario::new(&config, &traced, &Defaults::default()).expect("the scenario is sound")
}

/// The trim, then `count` requests to blocks in no particular order.
fn requests(bytes: u64, count: u64) -> impl Iterator<Item = Request> {
    let (volume, flags) = (Volume(0), Flags::NONE);
    let trim = Request { time: Nanos(0), volume, op: Op::Trim, flags, offset: 0, length: bytes };
    let others = (1..=count).map(move |i| {
        let block = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (bytes / 4096);
        let op = if i % 4 == 0 { Op::Write } else { Op::Read };
        Request { time: Nanos(i * 1000), volume, op, flags, offset: block * 4096, length: 4096 }
    });
    std::iter::once(trim).chain(others)
}
