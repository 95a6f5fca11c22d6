//! Takes a tenth of a trace whose features and hit ratios are close to those of the whole: the
//! closest of four samples.
//!
//! `cargo run -p forebay-analysis --example sample`

#![allow(clippy::print_stdout)] // a program, not the library

mod workload;

use std::error::Error;

use forebay_analysis::Unobserved;
use forebay_analysis::sample::Question;

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let (directory, traces) = workload::synthetic("zipf:blocks=20k,requests=60k,write=0.3")?;
    let output = directory.path().join("tenth.parquet");
    let question = Question {
        bits: vec![4, 5],
        best_of: 2,
        reduce: None,
        ..Question::new(traces, 0.1, output.clone())
    };
    let answer = question.ask(&Unobserved::default())?;

    let sample = &answer.samples[0];
    println!("{:.1} % of the requests", 100.0 * sample.request_ratio);
    println!("feature error {:.1} %", 100.0 * sample.mean_error);
    println!("hit-ratio error {:.1} %", 100.0 * sample.hit_ratio_error.all);
    assert_eq!(answer.candidates.len(), 4);
    assert!(output.exists());
    Ok(())
}
