//! A hunt: plays all trials in turn, in small slices, until the first failure.

use std::time::{Duration, Instant};

use forebay_adversary::campaign::sweep;
use forebay_adversary::trials::Trial;

/// Plays the trials in turn, starting with number 0.
///
/// # Errors
/// Returns which trial failed, how, and after how many seconds.
pub fn hunt(jobs: usize, minutes: f64, kinds: Option<&str>) -> Result<(), String> {
    let trials = kinds.map_or_else(|| Ok(Trial::all()), Trial::named)?;
    let limit = Duration::try_from_secs_f64(minutes * 60.0).unwrap_or(Duration::MAX);
    let start = Instant::now();
    for round in 0_u64.. {
        for trial in &trials {
            if start.elapsed() > limit {
                println!("nothing found in {minutes} minutes, {round} rounds");
                return Ok(());
            }
            let numbers = round * trial.slice()..(round + 1) * trial.slice();
            let tally = sweep(jobs, numbers, |n, tally| trial.play(n, tally));
            if let Some((n, how)) = tally.failures.first() {
                let (name, seconds) = (trial.name(), start.elapsed().as_secs_f64());
                return Err(format!("found by {name} seed {n} after {seconds:.1} s: {how}"));
            }
        }
    }
    Ok(())
}
