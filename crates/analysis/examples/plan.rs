//! Which cache tiers to buy for a slow disk, at half of the cost of DRAM for all data?
//!
//! `cargo run -p forebay-analysis --example plan`

#![allow(clippy::print_stdout)] // a program, not the library

mod workload;

use std::error::Error;

use forebay_analysis::{Unobserved, plan};
use forebay_plan::Catalogue;

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let (_directory, traces) = workload::synthetic("zipf:blocks=20k,requests=50k,write=0.3")?;
    let catalogue = Catalogue::default();
    let combinations = catalogue.combine(&[], &["SlowHDD".to_owned()])?;
    let mut question = plan::Question::new(traces, catalogue, combinations, vec!["50%".parse()?]);
    question.options.wear_max = Some(1.0);
    let answer = question.ask(&Unobserved::default())?;

    let plan = &answer.plans[0];
    for choice in &plan.choices {
        let bought = &choice.purchase;
        for tier in bought.tiers.iter().filter(|tier| tier.bytes > 0) {
            print!("{:>4} MiB {:9}", tier.bytes >> 20, tier.device);
        }
        println!("  ${:.4}  {:.0} us", bought.cost_usd, bought.mean_latency_us);
        assert!(bought.cost_usd <= plan.budget_usd);
    }
    assert!(plan.choices.is_sorted_by_key(|choice| choice.purchase.mean_latency_us));
    Ok(())
}
