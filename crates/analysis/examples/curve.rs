//! How many accesses miss in a cache of each size, under LRU, under ARC and with knowledge of the
//! future?
//!
//! `cargo run -p forebay-analysis --example curve`

#![allow(clippy::print_stdout)] // a program, not the library

mod workload;

use std::error::Error;

use forebay_analysis::Unobserved;
use forebay_analysis::curve::{self, policies};

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let (_directory, traces) = workload::synthetic("zipf:blocks=4k,requests=30k")?;
    let observer = Unobserved::default();
    let lru = curve::Question::new(traces.clone()).ask(&observer)?;
    let names = ["arc".parse()?, "opt".parse()?];
    let question =
        policies::Question { points: 6, ..policies::Question::new(traces, names.into()) };
    let others = question.ask(&observer)?;

    println!("{:>8} {:>8} {:>8} {:>8}", "blocks", "lru", "arc", "opt");
    for (arc, opt) in others.policies[0].points.iter().zip(&others.policies[1].points) {
        let at = [opt.size_blocks];
        let points = curve::points(&lru.all, 1, &at);
        let lru = points.iter().find(|point| point.size_blocks == opt.size_blocks);
        let lru = lru.map_or(f64::NAN, |point| point.miss_ratio);
        println!("{:>8} {lru:>8.4} {:>8.4} {:>8.4}", at[0], arc.miss_ratio, opt.miss_ratio);
        assert!(opt.miss_ratio <= arc.miss_ratio && opt.miss_ratio <= lru);
    }
    Ok(())
}
