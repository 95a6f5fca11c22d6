//! With 16 MiB of DRAM in place, is money better spent on more DRAM or on a second tier?
//!
//! `cargo run -p forebay-analysis --example growth`

#![allow(clippy::print_stdout)] // a program, not the library

mod workload;

use std::error::Error;

use forebay_analysis::{Unobserved, plan, plan::growth};
use forebay_plan::Catalogue;

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let (_directory, traces) = workload::synthetic("zipf:blocks=20k,requests=50k")?;
    let catalogue = Catalogue::default();
    let tiers = ["FastDRAM".to_owned(), "FastSSD".to_owned()];
    let combinations = catalogue.combine(&tiers, &["SlowHDD".to_owned()])?;
    let plan = plan::Question::new(traces, catalogue, combinations, vec!["20%".parse()?]);
    let question = growth::Question { plan, have_bytes: 16 << 20 };
    let answer = question.ask(&Unobserved::default())?;

    let growth = &answer.document.growth[0];
    println!("now       {:6.0} us", growth.now.mean_latency_us);
    println!("grow it   {:6.0} us", growth.grow.mean_latency_us);
    println!("add flash {:6.0} us", growth.add.mean_latency_us);
    println!("better: {}", growth.better.name());
    assert!(growth.divide.mean_latency_us <= growth.now.mean_latency_us);
    Ok(())
}
