//! Campaigns: many independent runs on several threads, and their totals.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::coverage::Coverage;
use crate::run::Seen;

/// The totals of several runs.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Number of runs.
    pub runs: u64,
    /// Power cuts, including those during a recovery.
    pub cuts: u64,
    /// Number of requests answered.
    pub replies: u64,
    /// The combined digests of the runs, regardless of their order.
    pub digest: u64,
    /// The coverage counters.
    pub coverage: Coverage,
    /// The failures, by seed.
    pub failures: Vec<(u64, String)>,
}

impl Tally {
    /// Adds a successful run.
    pub fn add_seen(&mut self, seen: &Seen) {
        self.cuts += seen.cuts + seen.cuts_in_recovery;
        self.replies += seen.replies;
        self.digest = self.digest.wrapping_add(seen.digest);
        self.coverage.merge(&seen.stats);
    }

    /// Adds the totals of another tally.
    pub fn merge(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.cuts += other.cuts;
        self.replies += other.replies;
        self.digest = self.digest.wrapping_add(other.digest);
        self.coverage.merge(&other.coverage);
        self.failures.extend(other.failures.iter().cloned());
        self.failures.sort();
    }
}

/// Number of failing runs after which a campaign gives up.
const FAILURES_MAX: usize = 8;

/// Runs `each` for every seed of a range on `jobs` threads. The totals do not depend on the number
/// of threads, unless the campaign gives up.
pub fn sweep(jobs: usize, seeds: Range<u64>, each: impl Fn(u64, &mut Tally) + Sync) -> Tally {
    sweep_until(jobs, seeds, &AtomicBool::new(false), each).0
}

/// Like [`sweep`], but ends early once `stop` is set. Also returns the next seed.
pub fn sweep_until(
    jobs: usize,
    seeds: Range<u64>,
    stop: &AtomicBool,
    each: impl Fn(u64, &mut Tally) + Sync,
) -> (Tally, u64) {
    let next = AtomicU64::new(seeds.start);
    let enough = AtomicBool::new(false);
    let total = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                let mut own = Tally::default();
                while !enough.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    each(seed, &mut own);
                    if own.failures.len() >= FAILURES_MAX {
                        enough.store(true, Ordering::Relaxed);
                    }
                }
                total.lock().unwrap_or_else(PoisonError::into_inner).merge(&own);
            });
        }
    });
    let next = next.into_inner().min(seeds.end);
    (total.into_inner().unwrap_or_else(PoisonError::into_inner), next)
}

/// Processor time that this process has used, in seconds; 0 if the system does not report it.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in parentheses, which may contain anything.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    // USER_HZ is 100 on every Linux.
    ticks as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_does_not_depend_on_the_number_of_threads() {
        let sum = |jobs| {
            let t = sweep(jobs, 10..200, |seed, tally| {
                tally.runs += 1;
                tally.digest = tally.digest.wrapping_add(seed.wrapping_mul(0x9e37_79b9));
                tally.coverage.add("odd", seed & 1);
            });
            (t.runs, t.digest, t.coverage)
        };
        assert_eq!(sum(1), sum(4));
        assert_eq!(sum(2).0, 190);
    }

    #[test]
    fn a_campaign_that_is_stopped_has_played_every_seed_before_the_next() {
        let stop = AtomicBool::new(false);
        let (t, next) = sweep_until(4, 5..1_000_000, &stop, |seed, tally| {
            tally.runs += 1;
            stop.store(seed > 200, Ordering::Relaxed);
        });
        assert!(next > 200 && next < 1_000_000);
        assert_eq!(t.runs, next - 5);
    }

    #[test]
    fn a_campaign_gives_up_after_a_few_failures() {
        let t = sweep(2, 0..1_000_000, |seed, tally| tally.failures.push((seed, "no".into())));
        assert!((FAILURES_MAX..=2 * FAILURES_MAX).contains(&t.failures.len()));
    }
}
