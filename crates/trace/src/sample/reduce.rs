//! The second step: removing regions until the sample's features are the trace's.

use std::collections::HashMap;

use super::moments::{FEATURES, Moments, mean_error};
use super::regions::{RegionKey, RegionTable};

/// What was removed, in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reduction {
    /// The mean error of the features before, a fraction.
    pub error: f64,
    /// Regions before.
    pub regions: usize,
    /// The removals.
    pub steps: Vec<Step>,
}

/// A removal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// What was removed.
    pub key: RegionKey,
    /// The mean error of the features after it, a fraction.
    pub error: f64,
}

/// Removes the region whose removal lowers the mean error most, again and again, until `least`
/// regions are left or none helps. `go_on` is asked before each removal, with the number so far.
///
/// Each removal takes time in proportion to the regions left.
pub fn reduce(
    mut table: RegionTable,
    full: &Moments,
    least: usize,
    mut go_on: impl FnMut(usize) -> bool,
) -> Reduction {
    let full = full.features();
    let error_of = |moments: &Moments| mean_error(&full, &moments.features());
    let mut error = error_of(table.moments());
    let mut reduction = Reduction { error, regions: table.len(), steps: Vec::new() };
    // In order of their keys, so that of equals always the same is removed.
    let mut keys: Vec<RegionKey> = table.keys().collect();
    keys.sort_unstable();
    let mut removals: Vec<Moments> = keys.iter().filter_map(|k| table.removal(*k)).collect();
    let mut places: HashMap<RegionKey, usize> =
        keys.iter().enumerate().map(|(i, k)| (*k, i)).collect();
    while table.len() > least && go_on(reduction.steps.len()) {
        let Some((best, lowest)) = lowest(table.moments(), &removals, &full) else { break };
        if lowest >= error {
            break;
        }
        let key = keys[best];
        error = lowest;
        reduction.steps.push(Step { key, error });
        for neighbour in table.remove(key).into_iter().flatten() {
            if let Some(removal) = table.removal(neighbour) {
                removals[places[&neighbour]] = removal;
            }
        }
        places.remove(&key);
        keys.swap_remove(best);
        removals.swap_remove(best);
        if let Some(moved) = keys.get(best) {
            places.insert(*moved, best);
        }
    }
    reduction
}

/// The removal that leaves the lowest error: its place, and that error.
fn lowest(
    now: &Moments,
    removals: &[Moments],
    full: &[f64; FEATURES.len()],
) -> Option<(usize, f64)> {
    let after = removals.iter().map(|r| mean_error(full, &now.plus(r).features()));
    after.enumerate().fold(None, |best, (i, error)| match best {
        Some((_, lowest)) if lowest <= error => best,
        _ => Some((i, error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::{Flags, Nanos, Op, Request, Volume};

    fn request(op: Op, offset: u64, length: u64) -> Request {
        Request { time: Nanos(0), volume: Volume(0), op, flags: Flags::NONE, offset, length }
    }

    #[test]
    fn what_the_full_trace_has_not_goes_first_and_then_nothing() {
        let mut full = Moments::default();
        (0..10).for_each(|_| full.add(&request(Op::Read, 0, 4096), Nanos(1000)));
        let mut table = RegionTable::new(4096);
        for i in 0..5 {
            table.add(&request(Op::Read, i * 8192, 4096), Nanos(1000));
        }
        table.add(&request(Op::Write, 1 << 20, 4096), Nanos(1000));
        let reduction = reduce(table, &full, 0, |_| true);
        let removed: Vec<u64> = reduction.steps.iter().map(|s| s.key.region).collect();
        assert_eq!((removed, reduction.regions), (vec![256], 6));
        assert!(reduction.error > 0.1);
        assert_eq!(reduction.steps[0].error, 0.0);
    }

    #[test]
    fn it_stops_at_the_least_or_when_told_and_each_step_is_the_best() {
        let mut full = Moments::default();
        (0..10).for_each(|_| full.add(&request(Op::Read, 0, 4096), Nanos(1000)));
        let table = || {
            let mut table = RegionTable::new(4096);
            (0..20).for_each(|i| {
                table.add(&request(Op::Read, i * 8192, 4096 * (1 + i % 2)), Nanos(9))
            });
            table
        };
        let all = reduce(table(), &full, 0, |_| true);
        assert!(all.steps.windows(2).all(|w| w[1].error < w[0].error));
        assert_eq!(reduce(table(), &full, 27, |_| true).steps, all.steps[..3]);
        assert_eq!(reduce(table(), &full, 0, |n| n < 2).steps, all.steps[..2]);
    }
}
