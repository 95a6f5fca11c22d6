//! Measures how long calls to the cache take, except for hits:
//! `cargo run --release -p forebay-simulate --example longest_calls [requests] [MiB of flash]`.
//!
//! The workload is 4 KiB requests over four times the size of flash, 16 in flight at a time: 30 %
//! are writes; half are uniform and half follow a Zipf law. DRAM is 64 MiB. Each case runs three
//! times, and the shortest time of each call counts. Prints percentiles in microseconds.

#![allow(clippy::print_stdout)]

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_config::Config;
use forebay_simulate::{Defaults, Options, Pacing, Scenario, Simulation, TracedVolume};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (count, mib) = (number(2_500_000), number(4096));
    let blocks = 4 * mib * 256;
    println!(
        "{:<22} {:>9} {:>7} {:>7} {:>7} {:>7}",
        "us", "calls", "50%", "99.9%", "99.99%", "max"
    );
    for layout in ["slots", "log"] {
        for policy in ["write-back", "write-through"] {
            let mut least = Vec::new();
            for _ in 0..3 {
                let calls = run(layout, policy, (count, mib, blocks));
                if least.is_empty() {
                    least = calls;
                } else {
                    assert_eq!(least.len(), calls.len(), "runs of the same requests differ");
                    least.iter_mut().zip(calls).for_each(|(least, call)| *least = call.min(*least));
                }
            }
            least.sort_unstable();
            let at =
                |share: f64| f64::from(least[((least.len() - 1) as f64 * share) as usize]) / 1000.0;
            println!(
                "{:<22} {:>9} {:>7.2} {:>7.1} {:>7.1} {:>7.1}",
                format!("{layout} {policy}"),
                least.len(),
                at(0.5),
                at(0.999),
                at(0.9999),
                at(1.0)
            );
        }
    }
}

fn run(layout: &str, policy: &str, (count, mib, blocks): (u64, u64, u64)) -> Vec<u32> {
    let text = format!(
        "[cache]\ndram = '64MiB'\nwrite_policy = '{policy}'\n\
         [flash]\npath = '/dev/x'\nsize = '{mib}MiB'\nshape = 'FastSSD'\nlayout = '{layout}'\n\
         [[volume]]\nname = 'a'\nbacking = '/a'\nshape = 'FastSSD'\n"
    );
    let config = Config::from_toml(&text).expect("the configuration is sound");
    let traced = [TracedVolume { name: "a".into(), bytes: blocks * 4096 }];
    let scenario = Scenario::new(&config, &traced, &Defaults::default()).expect("a sound scenario");
    let pacing = Pacing::ClosedLoop { queue_depth: 16 };
    let options = Options { pacing, ..Options::default() };
    let mut simulation = Simulation::new(&scenario, &options).expect("the simulation begins");
    simulation.time_calls();
    for request in requests(count, blocks) {
        simulation.add(&request).expect("the simulation runs");
    }
    simulation.run_until_idle().expect("the simulation ends");
    simulation.take_calls()
}

fn requests(count: u64, blocks: u64) -> impl Iterator<Item = Request> {
    let mut state = 42u64;
    let mut next = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let ln = (blocks as f64).ln();
    (0..count).map(move |_| {
        let u = (next() >> 11) as f64 / (1u64 << 53) as f64;
        let rank = ((u * ln).exp() as u64).min(blocks - 1);
        let block = match next() % 2 {
            0 => rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % blocks,
            _ => next() % blocks,
        };
        let op = if next() % 100 < 30 { Op::Write } else { Op::Read };
        let (time, volume, flags) = (Nanos(0), Volume(0), Flags::NONE);
        Request { time, volume, op, flags, offset: block * 4096, length: 4096 }
    })
}
