//! How long it takes to divide a cache among volumes: to measure 32 volumes, and to search for
//! their shares.
//!
//!     cargo bench -p forebay-plan --bench partition

#![allow(clippy::print_stdout, reason = "a benchmark's output")]

use std::time::Instant;

use forebay_block::{BlockSize, Flags, Nanos, Op, Request, Volume};
use forebay_plan::partition::{
    AnnealOptions, ByPlace, Goal, PartitionProfile, PartitionProfileBuilder, Problem,
    ProblemOptions, Search, Sizes, VolumeModel, Weigh, choose_units, solve, unwatched,
};

const VOLUMES: u64 = 32;
const REQUESTS: u64 = 2_000_000;
/// 8 GiB of flash, 1 GiB of memory.
const SIZES: Sizes = Sizes { dram_bytes: 1 << 30, flash_bytes: 8 << 30 };

/// Volumes of 64 MiB to 2 GiB: skewed readers of single blocks, and readers of 16 blocks at once.
fn requests() -> Vec<Request> {
    let mut state = 1u64;
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let request = |at: u64| {
        let volume = at % VOLUMES;
        let blocks = (volume + 1) << 14;
        let length = if volume.is_multiple_of(2) { 1 } else { 16 };
        let rank = (next().powi(1 + volume as i32 % 4) * (blocks - length) as f64) as u64;
        Request {
            time: Nanos(at * 1000),
            volume: Volume(volume as u32),
            op: if next() < 0.33 { Op::Write } else { Op::Read },
            flags: Flags::NONE,
            offset: rank * 4096,
            length: length * 4096,
        }
    };
    (0..REQUESTS).map(request).collect()
}

fn problem(profile: &PartitionProfile, sizes: Sizes, units: Sizes, goal: Goal) -> Problem<'_> {
    let read = ByPlace { dram: 1.0, flash: 100.0, miss: 5_000.0 };
    let model = VolumeModel {
        read,
        write: ByPlace::all(5_000.0),
        write_uncached: 5_000.0,
        iops_backing: 200.0,
        iops_cache: 10_000.0,
        writes_through: true,
        measured: Vec::new(),
    };
    let options = ProblemOptions {
        goal,
        weigh: Weigh::Volumes,
        block_size: BlockSize::KIB_4,
        sizes,
        units,
        floor: Sizes::default(),
        transit_blocks: 0,
    };
    let curves: Vec<_> = profile.volumes.values().collect();
    let models = vec![model; curves.len()];
    Problem::new(options, curves, models)
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
    let measure = || {
        let mut builder = PartitionProfileBuilder::new(Default::default()).expect("no options");
        for request in &requests {
            builder.add(request).expect("there are few blocks");
        }
        builder.finish().expect("there are few blocks")
    };
    let started = Instant::now();
    let profile = measure();
    let seconds = started.elapsed().as_secs_f64();
    println!("measuring {VOLUMES} volumes: {:.2} M requests/s", REQUESTS as f64 / 1e6 / seconds);
    for (name, sizes) in [("flash", Sizes { dram_bytes: 0, ..SIZES }), ("memory and flash", SIZES)]
    {
        for (goal_name, goal) in [("latency", Goal::Latency), ("hits", Goal::Hits)] {
            let units = |anneals| {
                choose_units(sizes, Sizes::default(), BlockSize::KIB_4, anneals, |u| {
                    problem(&profile, sizes, u, goal)
                })
            };
            for search in [Search::Exact, Search::Anneal(AnnealOptions::default())] {
                let anneals = search != Search::Exact;
                let choosing = if anneals { 0.0 } else { shortest(|| units(false)) };
                let units = units(anneals);
                let problem = problem(&profile, sizes, units, goal);
                let solved =
                    || solve(&problem, search, &mut unwatched).expect("there are no floors");
                let kib = |bytes: u64| bytes >> 10;
                println!(
                    "{name}, {goal_name}, {}: {:.3} s, and {choosing:.3} s to choose units of {} + \
                     {} KiB; {:.6}",
                    if anneals { "annealing" } else { "exact" },
                    shortest(solved),
                    kib(units.dram_bytes),
                    kib(units.flash_bytes),
                    solved().cost.value,
                );
            }
        }
    }
}
