//! How long planning takes: to measure a workload, and then to plan for every combination of the
//! default catalogue over a range of budgets.
//!
//!     cargo bench -p forebay-plan

#![allow(clippy::print_stdout, reason = "a benchmark's output")]

use std::time::Instant;

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_plan::{
    Catalogue, CydoniaOptions, Method, PlanOptions, Profile, ProfileBuilder, ProfileOptions,
    WritePolicy, budget_range, full_usd, plan,
};

const ACCESSES: u64 = 4_000_000;
/// 16 GiB of 4 KiB blocks.
const BLOCKS: u64 = 4 << 20;

/// Skewed accesses, a third of them writes: the rank is the cube of a uniform number.
fn requests() -> Vec<Request> {
    let mut state = 1u64;
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let request = |at: u64| {
        let rank = (next().powi(3) * BLOCKS as f64) as u64;
        Request {
            time: Nanos(at * 1000),
            volume: Volume(0),
            op: if next() < 0.33 { Op::Write } else { Op::Read },
            flags: Flags::NONE,
            // Neighbours in rank are not neighbours on disk.
            offset: (rank.wrapping_mul(2_654_435_761) % BLOCKS) * 4096,
            length: 4096,
        }
    };
    (0..ACCESSES).map(request).collect()
}

fn profile(requests: &[Request], write_back: bool) -> Profile {
    let options = ProfileOptions { write_back, ..ProfileOptions::default() };
    let mut builder = ProfileBuilder::new(options).expect("the options are valid");
    for request in requests {
        builder.add(request).expect("there are few blocks");
    }
    builder.finish().expect("there are few blocks")
}

/// The shortest time of five runs, in seconds.
fn shortest<T>(mut work: impl FnMut() -> T) -> f64 {
    let run = |_| {
        let started = Instant::now();
        std::hint::black_box(work());
        started.elapsed().as_secs_f64()
    };
    (0..5).map(run).fold(f64::INFINITY, f64::min)
}

fn main() {
    let requests = requests();
    for (name, write_back) in [("write-through", false), ("write-back", true)] {
        let seconds = shortest(|| profile(&requests, write_back));
        println!("profile for {name}: {:.2} M accesses/s", ACCESSES as f64 / 1e6 / seconds);
    }
    let profile = profile(&requests, true);
    let catalogue = Catalogue::default();
    for policy in [WritePolicy::WriteThrough, WritePolicy::WriteBack] {
        for (name, method) in [
            ("exhaustive", Method::Exhaustive { points_max: 1 << 20 }),
            ("cydonia", Method::Cydonia(CydoniaOptions::default())),
        ] {
            let options = PlanOptions { policy, method, ..PlanOptions::default() };
            let full = full_usd(&profile, &catalogue, &options.cost);
            let ask = |usd| {
                let found = plan(&profile, &catalogue, catalogue.combinations(), usd, &options);
                found.expect("the budget buys something").evaluations
            };
            let sweep = || budget_range(full / 100.0, full, 50).into_iter().map(ask).sum::<u64>();
            println!(
                "17 combinations x 50 budgets, {policy:?}, {name}: {:.3} s, {} sizes tried",
                shortest(sweep),
                sweep()
            );
        }
    }
}
