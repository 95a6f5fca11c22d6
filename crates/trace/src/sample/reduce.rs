//! The second step: removing regions until the features of the sample match those of the full
//! trace.

use std::collections::HashMap;

use super::moments::{Moments, mean_error};
use super::nearest::Removals;
use super::regions::{RegionKey, RegionTable};

/// The removals that [`reduce`] made, in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reduction {
    /// Mean error of the features before the first removal, as a fraction.
    pub error: f64,
    /// Number of regions before the first removal.
    pub regions: usize,
    /// The removals.
    pub steps: Vec<Step>,
}

/// A removal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// The removed region.
    pub key: RegionKey,
    /// Mean error of the features after this removal, as a fraction.
    pub error: f64,
}

/// Repeatedly removes the region whose removal lowers the mean error most, until `least` regions
/// are left or no removal lowers the error. Calls `go_on` before each removal, with the number of
/// removals so far, and stops if it returns false.
///
/// Each step evaluates only those regions whose removal may be the best (`Removals`).
pub fn reduce(
    mut table: RegionTable,
    full: &Moments,
    least: usize,
    mut go_on: impl FnMut(usize) -> bool,
) -> Reduction {
    let mut error = mean_error(&full.features(), &table.moments().features());
    let mut reduction = Reduction { error, regions: table.len(), steps: Vec::new() };
    // Sorted, so that ties go to the first key.
    let mut keys: Vec<RegionKey> = table.keys().collect();
    keys.sort_unstable();
    let changes = keys.iter().filter_map(|k| table.removal(*k)).collect();
    let mut removals = Removals::new(changes, table.moments(), full);
    let places: HashMap<RegionKey, usize> = keys.iter().copied().zip(0..).collect();
    while table.len() > least && go_on(reduction.steps.len()) {
        let Some((best, lowest)) = removals.lowest(table.moments()) else { break };
        if lowest >= error {
            break;
        }
        let key = keys[best];
        error = lowest;
        reduction.steps.push(Step { key, error });
        removals.remove(best);
        for neighbour in table.remove(key).into_iter().flatten() {
            if let Some(removal) = table.removal(neighbour) {
                removals.set(places[&neighbour], removal);
            }
        }
    }
    reduction
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

    /// Reduces by evaluating every region at every step.
    fn reduce_naively(mut table: RegionTable, full: &Moments) -> Vec<Step> {
        let full = full.features();
        let mut error = mean_error(&full, &table.moments().features());
        let mut keys: Vec<RegionKey> = table.keys().collect();
        keys.sort_unstable();
        let mut steps = Vec::new();
        loop {
            let after = keys.iter().map(|key| {
                let removal = table.removal(*key).unwrap();
                mean_error(&full, &table.moments().plus(&removal).features())
            });
            let best = after.enumerate().min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
            let Some((place, lowest)) = best.filter(|(_, lowest)| *lowest < error) else {
                return steps;
            };
            error = lowest;
            let key = keys.remove(place);
            table.remove(key);
            steps.push(Step { key, error });
        }
    }

    #[test]
    fn it_removes_what_a_search_through_all_regions_removes() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut removed = 0;
        for round in 0..20 {
            let (mut full, mut table) = (Moments::default(), RegionTable::new(4096 << (round % 3)));
            for _ in 0..1500 {
                let op = if random(3) == 0 { Op::Write } else { Op::Read };
                let length = 512 * (1 + random(64));
                let (near, short) = (random(8000) + 1, random(20));
                let request = request(op, 512 * random(near), length);
                let gap = Nanos(random(1 << short));
                full.add(&request, gap);
                // The sample has too few writes and too many small requests.
                if random(10) < if op == Op::Write { 2 } else { 20_000 / (length + 2000) } {
                    table.add(&request, gap);
                }
            }
            let steps = reduce(table.clone(), &full, 0, |_| true).steps;
            assert_eq!(steps, reduce_naively(table, &full), "round {round}");
            removed += steps.len();
        }
        assert!(removed > 200, "{removed} removals compared");
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
