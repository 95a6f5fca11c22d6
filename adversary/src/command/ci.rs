//! What every change has to pass, and the same without end.

use std::time::Instant;

use forebay_adversary::campaign::{Tally, sweep};
use forebay_adversary::kind::{CUTS, Kind};

use super::single::shrunk;
use super::table::{Row, head, measure};

/// Seeds of each kind of random run.
const SEEDS: [(&str, u64); 3] = [("dram", 2_000), ("back", 3_000), ("through", 2_500)];

pub fn ci(jobs: usize) -> Result<(), String> {
    println!("{}", head());
    let mut rows = Vec::new();
    for (name, seeds) in SEEDS {
        let kind = Kind::find(name)?;
        rows.push(measure(&format!("random cuts: {name}"), &format!("0..{seeds}"), || {
            sweep(jobs, 0..seeds, |seed, tally| kind.tally(seed, tally))
        }));
        explain(&kind, &rows[rows.len() - 1].tally)?;
    }
    finish(&rows)
}

/// Shrinks the first failure, if any, and keeps it in a file.
fn explain(kind: &Kind, tally: &Tally) -> Result<(), String> {
    for (seed, failure) in &tally.failures {
        println!("  {} seed {seed}: {failure}", kind.name);
    }
    let Some((seed, _)) = tally.failures.first() else { return Ok(()) };
    let tape = shrunk(kind, *seed)?;
    let path = std::env::temp_dir().join(format!("forebay-{}-{seed}.tape", kind.full_name()));
    std::fs::write(&path, tape.encode()).map_err(|e| format!("{}: {e}", path.display()))?;
    println!(
        "  shrunk to {} choices: forebay-adversary replay {}",
        tape.choices.len(),
        path.display()
    );
    Ok(())
}

fn finish(rows: &[Row]) -> Result<(), String> {
    let mut all = Tally::default();
    rows.iter().for_each(|r| all.merge(&r.tally));
    println!("met on the way:");
    for (name, n) in all.coverage.iter() {
        println!("  {n:>12} {name}");
    }
    let cpu: f64 = rows.iter().map(|r| r.cpu_seconds).sum();
    println!("{} runs, {} cuts, {cpu:.0} s of CPU, digest {:016x}", all.runs, all.cuts, all.digest);
    match all.failures.len() {
        0 => Ok(()),
        n => Err(format!("{n} violations")),
    }
}

pub fn soak(
    jobs: usize,
    only: Option<&str>,
    cuts: u64,
    hours: f64,
    first: u64,
) -> Result<(), String> {
    let kinds = match only {
        Some(name) => vec![Kind::find(name)?],
        None => CUTS.to_vec(),
    };
    let start = Instant::now();
    let mut all = Tally::default();
    let mut seed = first;
    println!("{}", head());
    while all.cuts < cuts && start.elapsed().as_secs_f64() < hours * 3600.0 {
        let mut rows = Vec::new();
        for kind in &kinds {
            let kind = *kind;
            let seeds = seed..seed + 2_000;
            let row = measure(kind.name, &format!("{}..{}", seeds.start, seeds.end), || {
                sweep(jobs, seeds, |seed, tally| kind.tally(seed, tally))
            });
            let failed = explain(&kind, &row.tally);
            all.merge(&row.tally);
            rows.push(row);
            failed?;
        }
        seed += 2_000;
        println!("so far {} runs, {} cuts, {} violations", all.runs, all.cuts, all.failures.len());
        if !all.failures.is_empty() {
            return finish(&rows);
        }
    }
    Ok(())
}
