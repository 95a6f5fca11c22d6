//! Do a web server and a backup fit together in a cache of 64 MiB?
//!
//! `cargo run -p forebay-analysis --example consolidate`

#![allow(clippy::print_stdout)] // a program, not the library

mod workload;

use std::error::Error;

use forebay_analysis::Unobserved;
use forebay_analysis::consolidate::{By, Question};

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let spec = "zipf:volume=web,blocks=10k,requests=40k + sequential:volume=backup,blocks=60k";
    let (_directory, traces) = workload::synthetic(spec)?;
    let question = Question { by: By::Volume, ..Question::new(traces, (64 << 20) / 4096) };
    let answer = question.ask(&Unobserved::default())?;

    for workload in &answer.workloads {
        println!(
            "{:6} needs {:>6} blocks; misses {:.0} % alone, {:.0} % shared",
            workload.name,
            workload.demand.erss_blocks,
            100.0 * workload.miss_ratio_alone,
            100.0 * workload.miss_ratio_shared
        );
        assert!(workload.miss_ratio_shared >= workload.miss_ratio_alone);
    }
    println!("they fit: {}", answer.is_isolated_simulated());
    Ok(())
}
