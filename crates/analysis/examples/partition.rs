//! How is 4 MiB of flash divided between a database and a backup?
//!
//! `cargo run -p forebay-analysis --example partition`

#![allow(clippy::print_stdout)] // a program, not the library

mod workload;

use std::error::Error;

use forebay_analysis::Unobserved;
use forebay_analysis::partition::{Devices, Question};
use forebay_plan::partition::Sizes;

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let spec = "zipf:volume=db,blocks=2k,requests=20k + sequential:volume=backup,blocks=4k";
    let (_directory, traces) = workload::synthetic(spec)?;
    let devices =
        Devices { memory: None, flash: "nvme".to_owned(), backing: "hdd-7200".to_owned() };
    let sizes = Sizes { dram_bytes: 0, flash_bytes: 4 << 20 };
    let question = Question::new(traces, sizes, devices);
    let observer = Unobserved::default();
    let workload = question.measure(&observer)?;
    let document = question.divide(&workload, &observer)?.document();

    for volume in &document.volumes {
        println!(
            "{:6} {:>8} bytes, {:.0} us, {:.0} % hits",
            volume.volume,
            volume.flash_bytes,
            volume.predicted_latency_us,
            100.0 * volume.hit_ratio
        );
    }
    let given: u64 = document.volumes.iter().map(|volume| volume.flash_bytes).sum();
    assert_eq!(given + document.unallocated.flash_bytes, document.flash_bytes);
    Ok(())
}
