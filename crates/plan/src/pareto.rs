//! The Pareto front: plans that are not worse than another in everything.

use serde::Serialize;

use crate::cost::{CostModel, Units};
use crate::counts::HitCounts;
use crate::hierarchy::Hierarchy;

/// Sizes per tier that a front is drawn from, at most.
const SIZES_PER_TIER: usize = 64;
/// Combinations of sizes that one hierarchy adds to it, about.
const POINTS: f64 = 40_000.0;

/// One plan of the front. Lower is better in cost, mean and tail latency, and drive writes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ParetoPoint {
    /// Index of the hierarchy among those given.
    pub hierarchy: usize,
    /// Bytes per tier, tier 1 first.
    pub tier_bytes: Vec<u64>,
    /// Cost of the tiers with their metadata, in US dollars.
    pub cost_usd: f64,
    /// Mean latency per block access, in microseconds.
    pub mean_latency_us: f64,
    /// 99 % of block accesses take no longer, in microseconds.
    pub p99_latency_us: f64,
    /// How often the size of the most written flash tier is written over the whole workload.
    pub drive_writes: f64,
    /// Bytes written to flash over the whole workload.
    pub flash_bytes_written: u64,
}

/// The plans within `budget_usd`, over all `hierarchies` (which should have the same backing
/// store), that no other plan beats in one of cost, mean latency, 99th percentile and drive writes
/// without losing in another. By ascending cost. Sizes are taken from a logarithmic grid per tier.
pub fn pareto_front<H: HitCounts + ?Sized>(
    counts: &H,
    hierarchies: &[Hierarchy],
    cost: &CostModel,
    budget_usd: f64,
) -> Vec<ParetoPoint> {
    let useful = cost.units_for(counts.useful_blocks()).0;
    let mut points = Vec::new();
    for (index, hierarchy) in hierarchies.iter().enumerate() {
        let tiers = hierarchy.tiers.len();
        let each = (POINTS.powf(1.0 / tiers as f64) as usize).min(SIZES_PER_TIER);
        let grid: Vec<Units> = grid(useful, each).into_iter().map(Units).collect();
        let mut sizes = vec![Units(0); tiers];
        choose(&grid, 0, &mut sizes, &mut |sizes| {
            let cost_usd = cost.usd(&hierarchy.tiers, sizes);
            let affordable = cost_usd <= budget_usd;
            if affordable {
                points.push(point(counts, index, hierarchy, cost, sizes, cost_usd));
            }
            affordable
        });
    }
    front(points)
}

/// Goes through all sizes of the tiers from `tier` on, of which tier 1 is never empty. `look` says
/// whether larger ones need to be looked at.
fn choose(
    grid: &[Units],
    tier: usize,
    sizes: &mut [Units],
    look: &mut impl FnMut(&[Units]) -> bool,
) -> bool {
    if tier == sizes.len() {
        return look(sizes);
    }
    for (at, &size) in grid.iter().filter(|size| tier > 0 || size.0 > 0).enumerate() {
        sizes[tier] = size;
        if !choose(grid, tier + 1, sizes, look) {
            sizes[tier] = Units(0);
            return at > 0;
        }
    }
    sizes[tier] = Units(0);
    true
}

fn point<H: HitCounts + ?Sized>(
    counts: &H,
    index: usize,
    hierarchy: &Hierarchy,
    cost: &CostModel,
    sizes: &[Units],
    cost_usd: f64,
) -> ParetoPoint {
    let blocks: Vec<u64> = sizes.iter().map(|s| s.0 * cost.unit_blocks()).collect();
    let evaluation = hierarchy.evaluate(counts, &blocks);
    ParetoPoint {
        hierarchy: index,
        tier_bytes: sizes.iter().map(|s| s.0 * cost.unit_bytes).collect(),
        cost_usd,
        mean_latency_us: evaluation.mean_latency_us,
        p99_latency_us: evaluation.p99_latency_us,
        drive_writes: hierarchy.drive_writes(&evaluation, sizes, cost),
        flash_bytes_written: hierarchy.flash_bytes_written(&evaluation, cost),
    }
}

/// 0, 1, and on to `most` in steps that grow with the size: at most `count` sizes.
fn grid(most: u64, count: usize) -> Vec<u64> {
    let most = most.max(1);
    let ratio = (most as f64).powf(1.0 / (count - 2) as f64);
    let mut sizes: Vec<u64> = (0..count - 1).map(|k| ratio.powi(k as i32).round() as u64).collect();
    sizes.extend([0, most]);
    sizes.sort_unstable();
    sizes.dedup();
    sizes.retain(|&units| units <= most);
    sizes
}

/// The points that no other dominates. In order of cost, a point is dominated iff a cheaper one is
/// at most as slow, in the mean and in the tail, and writes at most as much. `stairs` holds, of the
/// cheaper ones, those that matter, by their tail (of which there are few different ones): by
/// ascending mean, writes descend.
fn front(mut points: Vec<ParetoPoint>) -> Vec<ParetoPoint> {
    points.sort_by(|a, b| {
        let by_cost = a.cost_usd.total_cmp(&b.cost_usd);
        by_cost
            .then(a.mean_latency_us.total_cmp(&b.mean_latency_us))
            .then(a.p99_latency_us.total_cmp(&b.p99_latency_us))
            .then(a.drive_writes.total_cmp(&b.drive_writes))
    });
    let mut stairs: Vec<(f64, Vec<(f64, f64)>)> = Vec::new();
    points.retain(|p| {
        let (mean, writes) = (p.mean_latency_us, p.drive_writes);
        let no_slower = |stair: &[(f64, f64)]| stair.partition_point(|s| s.0 <= mean);
        let below = |(_, stair): &(f64, Vec<(f64, f64)>)| {
            let at = no_slower(stair);
            at > 0 && stair[at - 1].1 <= writes
        };
        let same = stairs.partition_point(|(tail, _)| *tail < p.p99_latency_us);
        let is_there = stairs.get(same).is_some_and(|(tail, _)| *tail == p.p99_latency_us);
        if stairs[..same + usize::from(is_there)].iter().any(below) {
            return false;
        }
        if !is_there {
            stairs.insert(same, (p.p99_latency_us, Vec::new()));
        }
        let stair = &mut stairs[same].1;
        let at = no_slower(stair);
        let covered = stair[at..].iter().take_while(|s| s.1 >= writes).count();
        stair.splice(at..at + covered, [(mean, writes)]);
        true
    });
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WritePolicy;
    use crate::testing::{Steps, hierarchy};
    use proptest::prelude::*;

    fn dominates(a: &ParetoPoint, b: &ParetoPoint) -> bool {
        let no_worse = a.cost_usd <= b.cost_usd
            && a.mean_latency_us <= b.mean_latency_us
            && a.p99_latency_us <= b.p99_latency_us
            && a.drive_writes <= b.drive_writes;
        no_worse && a != b
    }

    proptest! {
        #[test]
        fn the_front_is_what_nothing_dominates(
            raw in prop::collection::vec((0u8..9, 0u8..9, 0u8..4, 0u8..9), 1..120)
        ) {
            let mut points: Vec<ParetoPoint> = raw.iter().map(|&(cost, us, tail, writes)| ParetoPoint {
                hierarchy: 0, tier_bytes: vec![], cost_usd: cost.into(),
                mean_latency_us: us.into(), p99_latency_us: tail.into(),
                drive_writes: writes.into(), flash_bytes_written: 0,
            }).collect();
            let kept = front(points.clone());
            points.retain(|p| !raw.is_empty() && !kept.contains(p));
            for p in &points {
                prop_assert!(kept.iter().any(|k| dominates(k, p)), "{:?} is missing", p);
            }
            for (i, a) in kept.iter().enumerate() {
                prop_assert!(kept.iter().enumerate().all(|(j, b)| i == j || !dominates(b, a)));
            }
        }
    }

    #[test]
    fn all_tiers_of_a_hierarchy_are_drawn_from() {
        let at = vec![(5 * 256, 500, 0), (20 * 256, 800, 0), (60 * 256, 900, 0)];
        let counts = Steps { reads: 1000, writes: 0, at, footprint: 60 * 256 };
        let names = ["FastDRAM", "FastSSD", "SlowSSD"];
        let h = [hierarchy(names, "SlowHDD", WritePolicy::WriteBack)];
        let cost = CostModel::default();
        let points = pareto_front(&counts, &h, &cost, 0.2);
        assert!(points.iter().any(|p| p.tier_bytes.iter().all(|&bytes| bytes > 0)));
        assert!(points.iter().all(|p| p.cost_usd <= 0.2 && p.tier_bytes[0] > 0));
        // One that is not larger than any other costs the least.
        assert_eq!(points[0].tier_bytes, [1 << 20, 0, 0]);
        let dear = pareto_front(&counts, &h, &cost, 0.01);
        assert!(dear.iter().all(|p| p.cost_usd <= 0.01) && !dear.is_empty());
    }

    #[test]
    fn every_affordable_point_of_the_grid_is_looked_at_and_no_other() {
        let grid = [0, 1, 3, 9].map(Units);
        let price =
            |sizes: &[Units]| sizes.iter().zip([5, 3, 1]).map(|(s, p)| s.0 * p).sum::<u64>();
        let mut seen = Vec::new();
        choose(&grid, 0, &mut [Units(0); 3], &mut |sizes| {
            let affordable = price(sizes) <= 20;
            seen.extend(affordable.then(|| sizes.to_vec()));
            affordable
        });
        let mut all = Vec::new();
        for one in &grid[1..] {
            for two in &grid {
                all.extend(grid.iter().map(|three| vec![*one, *two, *three]));
            }
        }
        all.retain(|sizes| price(sizes) <= 20);
        assert_eq!(seen, all);
    }

    #[test]
    fn the_grid_has_nothing_and_everything() {
        for most in [1, 2, 63, 64, 1052, 1 << 30] {
            let sizes = grid(most, SIZES_PER_TIER);
            assert_eq!((sizes[0], *sizes.last().unwrap()), (0, most));
            assert!(sizes.len() <= SIZES_PER_TIER && sizes.windows(2).all(|w| w[0] < w[1]));
        }
    }
}
