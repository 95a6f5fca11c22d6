//! The table of results.

use std::time::Instant;

use forebay_adversary::campaign::{Tally, cpu_seconds};

/// The line of one test.
pub struct Row {
    pub test: String,
    pub seeds: String,
    pub tally: Tally,
    pub cpu_seconds: f64,
    pub seconds: f64,
}

/// Runs a test and measures it.
pub fn measure(test: &str, seeds: &str, f: impl FnOnce() -> Tally) -> Row {
    let (cpu, start) = (cpu_seconds(), Instant::now());
    let tally = f();
    let row = Row {
        test: test.into(),
        seeds: seeds.into(),
        cpu_seconds: cpu_seconds() - cpu,
        seconds: start.elapsed().as_secs_f64(),
        tally,
    };
    println!("{}", line(&row));
    row
}

/// The headings of the columns.
pub fn head() -> String {
    format!(
        "{:<34} {:>9} {:>9} {:>10} {:>8} {:>8}  {}",
        "test", "runs", "cuts", "violations", "CPU s", "wall s", "seeds"
    )
}

fn line(row: &Row) -> String {
    let t = &row.tally;
    format!(
        "{:<34} {:>9} {:>9} {:>10} {:>8.1} {:>8.1}  {}",
        row.test,
        t.runs,
        t.cuts,
        t.failures.len(),
        row.cpu_seconds,
        row.seconds,
        row.seeds
    )
}
