//! What does a configured cache miss with other sizes of memory and flash? Small caches that run on
//! a sample of the blocks answer this.
//!
//! `cargo run -p forebay-analysis --example miniature`

#![allow(clippy::print_stdout)] // a program, not the library

mod workload;

use std::error::Error;

use forebay_analysis::Unobserved;
use forebay_analysis::miniature::Question;
use forebay_config::Config;

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let (_directory, traces) = workload::synthetic("zipf:blocks=20k,requests=60k")?;
    let config = "[cache]\ndram = '16MiB'\n[flash]\npath = 'simulated'\nlayout = 'slots'\n";
    let question = Question {
        sample_rate: Some(0.25),
        memory_bytes: vec![4 << 20, 16 << 20],
        flash_bytes: vec![64 << 20],
        ..Question::new(traces, Config::from_toml(config)?)
    };
    let answer = question.ask(&Unobserved::default())?;

    for point in &answer.points {
        let Some(ratios) = point.ratios else { continue };
        println!(
            "{:>3} MiB of memory: {:.1} % found there, {:.1} % on flash, {:.1} % missed",
            point.size.size_bytes >> 20,
            100.0 * ratios.tier1_hit_ratio,
            100.0 * ratios.tier2_hit_ratio,
            100.0 * ratios.miss_ratio
        );
    }
    let found = |at: usize| answer.points[at].ratios.map_or(0.0, |ratios| ratios.tier1_hit_ratio);
    assert!(found(1) > found(0), "more memory finds more");
    Ok(())
}
