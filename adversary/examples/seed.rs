//! Runs one seed and tells everything: `cargo run -p forebay-adversary --example seed -- KIND SEED`
//! with KIND one of `dram`, `back`, `through`.
#![allow(clippy::print_stderr)]

use forebay_adversary::run::{Plan, run};
use forebay_adversary::scenario::{Limits, draw};
use forebay_device::choices::{Choices, Seeded};

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_default();
    let seed: u64 = args.next().and_then(|s| s.parse().ok()).unwrap_or_default();
    let limits = match kind.as_str() {
        "dram" => Limits { flash: Some(false), ..Limits::default() },
        "back" => Limits { flash: Some(true), write_back: Some(true), ..Limits::default() },
        _ => Limits { flash: Some(true), write_back: Some(false), ..Limits::default() },
    };
    let mut choices = Seeded::new(seed);
    let scenario = draw(&mut choices, limits);
    let _ = choices.choose(2);
    let trace: fn(&str) = |line| eprintln!("{line}");
    eprintln!("{scenario:#?}");
    let result = run(&scenario, Plan { trace: Some(trace), ..Plan::CUTS }, &mut choices);
    eprintln!("{result:?}");
}
