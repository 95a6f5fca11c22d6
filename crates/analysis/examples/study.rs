//! Which shape of two-tier cache wins, for a range of budgets?
//!
//! `cargo run -p forebay-analysis --example study`

#![allow(clippy::print_stdout)] // a program, not the library

mod workload;

use std::error::Error;

use forebay_analysis::{Unobserved, plan::study};
use forebay_plan::{Catalogue, Class, CostModel, CydoniaOptions};

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let (_directory, traces) = workload::synthetic("zipf:blocks=5k,requests=20k,write=0.2")?;
    let catalogue = Catalogue::default();
    let combinations = catalogue.combine(&[], &["SlowHDD".to_owned()])?;
    let question = study::Question {
        traces,
        catalogue,
        combinations,
        budgets: 5,
        cost: CostModel::default(),
        cydonia: CydoniaOptions::default(),
        sample_rate: None,
        resume: None,
    };
    let document = question.ask(&Unobserved::default())?.document();

    for of in &document.policies {
        println!("{}:", of.policy);
        for combination in &of.combinations {
            let first = combination.winners.first().map(|winners| winners.share(Class::Single));
            println!("  {}: one tier wins {first:?} of the traces", combination.name());
        }
    }
    assert_eq!(document.policies.len(), 2);
    Ok(())
}
