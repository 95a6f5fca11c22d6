//! The Pareto front: plans that are not worse than another in everything.

use serde::Serialize;

use crate::best::SAME;
use crate::budget::budget_range;
use crate::cost::Units;
use crate::counts::HitCounts;
use crate::error::PlanError;
use crate::evaluate::{Analytic, Enduring};
use crate::hierarchy::Hierarchy;
use crate::plan::PlanOptions;
use crate::search::exhaustive;
use crate::space::Space;
use crate::wear::WearLimit;

/// Largest number of sizes of one hierarchy that are all evaluated; beyond it, a grid is.
const POINTS_MAX: u64 = 1 << 20;
/// Sizes per tier of the grid, at most.
const SIZES_PER_TIER: usize = 64;
/// Approximate number of combinations of sizes in the grid.
const GRID_POINTS: f64 = 40_000.0;
/// Budgets whose best sizes are added to the grid.
const BUDGETS: usize = 48;

/// A front, and whether it is exact.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Front {
    /// In order of ascending cost.
    pub points: Vec<ParetoPoint>,
    /// Whether every size was evaluated: no affordable plan then dominates a point. Otherwise the
    /// points are those of a logarithmic grid plus the fastest ones for a range of budgets.
    pub is_exact: bool,
}

/// One plan of the front. Lower is better in cost, mean and tail latency, and drive writes.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ParetoPoint {
    /// Index of the hierarchy among those given.
    pub hierarchy: usize,
    /// Bytes per tier, tier 1 first.
    pub tier_bytes: Vec<u64>,
    /// Cost of the tiers, including metadata, in US dollars.
    pub cost_usd: f64,
    /// Mean latency per block access, in microseconds.
    pub mean_latency_us: f64,
    /// 99th percentile of the latency of block accesses, in microseconds.
    pub p99_latency_us: f64,
    /// How often the capacity of the most heavily written flash tier is written over the whole
    /// workload.
    pub drive_writes: f64,
    /// Bytes written to flash over the whole workload.
    pub flash_bytes_written: u64,
}

/// The plans within `budget_usd`, over all `hierarchies` (which should have the same backing
/// store), that are Pareto-optimal in cost, mean latency, 99th percentile and drive writes: no
/// other plan is better in one of these without being worse in another. In order of ascending cost.
///
/// Sizes are whole units, together no larger than is useful. If the last tier or a single tier has
/// to be larger to stay within the wear limit, it gets the smallest size that does. Up to about a
/// million sizes per hierarchy are all evaluated; beyond that, a grid of sizes and the fastest plan
/// for each of `budgets` and for a range of budgets.
///
/// # Errors
/// If the budget is not a positive amount.
pub fn pareto_front<H: HitCounts + ?Sized>(
    counts: &H,
    hierarchies: &[Hierarchy],
    options: &PlanOptions,
    budget_usd: f64,
    budgets: &[f64],
) -> Result<Front, PlanError> {
    let mut all = Front { points: Vec::new(), is_exact: true };
    for (index, hierarchy) in hierarchies.iter().enumerate() {
        let space = match Space::new(counts, hierarchy, &options.cost, budget_usd) {
            Err(PlanError::BuysNothing { .. }) => continue,
            space => space?,
        };
        let limit = options.wear_limit();
        let (flash_writes, points) = (options.flash_writes, Vec::new());
        let space = &space;
        let mut candidates = Candidates { counts, index, space, limit, flash_writes, points };
        if candidates.count_up_to(POINTS_MAX) <= POINTS_MAX {
            let mut sizes = vec![Units(0); hierarchy.tiers.len()];
            candidates.each(0, &mut sizes, &mut |this, sizes| this.look(sizes));
        } else {
            all.is_exact = false;
            candidates.look_at_grid();
            candidates.look_at_budgets(budgets)?;
        }
        candidates.look_at_enduring_single_tier();
        all.points.extend(front(candidates.points));
    }
    all.points = front(all.points);
    Ok(all)
}

/// The sizes of one hierarchy that may be on the front.
struct Candidates<'a, 'b, H: ?Sized> {
    counts: &'a H,
    index: usize,
    space: &'a Space<'b>,
    limit: Option<WearLimit>,
    flash_writes: f64,
    points: Vec<ParetoPoint>,
}

impl<H: HitCounts + ?Sized> Candidates<'_, '_, H> {
    /// Counts the sizes, but stops soon after `most`.
    fn count_up_to(&mut self, most: u64) -> u64 {
        self.count(0, &mut vec![Units(0); self.space.hierarchy().tiers.len()], most)
    }

    fn count(&self, tier: usize, sizes: &mut [Units], most: u64) -> u64 {
        let (least, largest) = self.range(tier, sizes);
        if tier + 1 == sizes.len() {
            return (largest + 1).saturating_sub(least);
        }
        let mut points = 0;
        for size in least..=largest {
            sizes[tier] = Units(size);
            points += self.count(tier + 1, sizes, most - points.min(most));
            if points > most {
                break;
            }
        }
        points
    }

    /// The smallest and the largest size of `tier`, given the sizes of the tiers above. Tier 1 is
    /// never empty.
    fn range(&self, tier: usize, sizes: &[Units]) -> (u64, u64) {
        match tier {
            0 => (1, self.space.tier1_max().0),
            _ => (0, self.space.rest(&sizes[..tier]).0),
        }
    }

    fn each(
        &mut self,
        tier: usize,
        sizes: &mut [Units],
        look: &mut impl FnMut(&mut Self, &[Units]),
    ) {
        if tier == sizes.len() {
            return look(self, sizes);
        }
        let (least, largest) = self.range(tier, sizes);
        for size in least..=largest {
            sizes[tier] = Units(size);
            self.each(tier + 1, sizes, look);
        }
        if tier > 0 && tier + 1 == sizes.len() {
            self.look_at_enduring(sizes, largest);
        }
        sizes[tier] = Units(0);
    }

    /// Evaluates the smallest single tier within the wear limit, if it is larger than is useful.
    fn look_at_enduring_single_tier(&mut self) {
        let (hierarchy, cost) = (self.space.hierarchy(), self.space.cost());
        let needed =
            self.limit.map_or(Units(0), |l| l.single_tier_needed(self.counts, hierarchy, cost));
        let single = self.space.clone().with_single_tier_up_to(needed).single_tier();
        if single[0] == needed && needed > self.space.tier1_max() {
            self.look(&single);
        }
    }

    /// Evaluates the smallest last tier within the wear limit, if it is larger than `largest`.
    fn look_at_enduring(&mut self, sizes: &mut [Units], largest: u64) {
        let last = sizes.len() - 1;
        let needed = self.limit.map_or(0, |limit| {
            limit.last_tier_needed(self.counts, self.space.hierarchy(), self.space.cost(), sizes).0
        });
        let most = self.space.clone().with_last_tier_up_to(Units(needed)).rest(&sizes[..last]).0;
        if needed > largest && needed <= most {
            sizes[last] = Units(needed);
            self.look(sizes);
        }
    }

    fn look_at_grid(&mut self) {
        let tiers = self.space.hierarchy().tiers.len();
        let each = (GRID_POINTS.powf(1.0 / tiers as f64) as usize).min(SIZES_PER_TIER);
        let useful = self.space.cost().units_for(self.counts.useful_blocks()).0;
        let grid: Vec<Units> = grid(useful, each).into_iter().map(Units).collect();
        let budget_usd = self.space.budget_usd();
        choose(&grid, 0, &mut vec![Units(0); tiers], &mut |sizes| {
            let cost_usd = self.space.cost().usd(&self.space.hierarchy().tiers, sizes);
            let affordable = cost_usd <= budget_usd;
            if affordable {
                self.look(sizes);
            }
            affordable
        });
    }

    /// Evaluates the fastest plan for each of `budgets` and for a range of budgets.
    fn look_at_budgets(&mut self, budgets: &[f64]) -> Result<(), PlanError> {
        let (hierarchy, cost) = (self.space.hierarchy(), self.space.cost());
        let entry_usd = cost.unit_usd(0, &hierarchy.tiers[0], &hierarchy.tiers[0]);
        let most = self.space.budget_usd();
        let range = budget_range(entry_usd.min(most) * (1.0 + 1e-9), most, BUDGETS);
        let largest =
            self.limit.map_or(Units(0), |l| l.last_tier_max(self.counts, hierarchy, cost));
        for usd in range.into_iter().chain(budgets.iter().copied().filter(|&usd| usd <= most)) {
            let space = match Space::new(self.counts, hierarchy, cost, usd) {
                Err(PlanError::BuysNothing { .. }) => continue,
                space => space?.with_last_tier_up_to(largest),
            };
            let mut analytic = Analytic::new(self.counts, cost);
            let (counts, limit) = (self.counts, self.limit);
            let mut evaluator = Enduring { counts, cost, limit, inner: &mut analytic };
            let step = if hierarchy.tiers.len() <= 2 { 1 } else { space.step_for(POINTS_MAX / 16) };
            let found = exhaustive(&space, step, &mut evaluator)?;
            self.look(&found.sizes);
        }
        Ok(())
    }

    fn look(&mut self, sizes: &[Units]) {
        let (hierarchy, cost) = (self.space.hierarchy(), self.space.cost());
        if self.limit.is_some_and(|l| !l.allows(self.counts, hierarchy, cost, sizes)) {
            return;
        }
        let blocks: Vec<u64> = sizes.iter().map(|s| s.0 * cost.unit_blocks()).collect();
        let evaluation = hierarchy.evaluate(self.counts, &blocks);
        let written = evaluation.written_with(self.flash_writes);
        self.points.push(ParetoPoint {
            hierarchy: self.index,
            tier_bytes: sizes.iter().map(|s| s.0 * cost.unit_bytes).collect(),
            cost_usd: cost.usd(&hierarchy.tiers, sizes),
            mean_latency_us: evaluation.mean_latency_us,
            p99_latency_us: evaluation.p99_latency_us,
            drive_writes: hierarchy.drive_writes(&written, sizes, cost),
            flash_bytes_written: hierarchy.flash_bytes_written(&written, cost),
        });
    }
}

/// The points of a front that no other point beats in cost and mean latency alone, in order of
/// ascending cost: the fastest plan for every amount of money.
pub fn fastest(points: &[ParetoPoint]) -> impl Iterator<Item = &ParetoPoint> {
    let mut lowest_us = f64::INFINITY;
    points.iter().filter(move |p| {
        let is_faster = p.mean_latency_us < lowest_us * (1.0 - SAME);
        lowest_us = lowest_us.min(p.mean_latency_us);
        is_faster
    })
}

/// Enumerates all sizes of the tiers from `tier` on; tier 1 is never empty. `look` returns whether
/// larger sizes need to be evaluated.
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

/// 0, 1, and further sizes up to `most` whose steps grow with the size: at most `count` sizes.
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

/// The points that no other point dominates. Means that differ only by rounding count as equal. In
/// order of cost, a point is dominated iff a cheaper one is at most as slow, in the mean and in the
/// tail, and writes at most as much. For each tail latency (there are few different ones), `stairs`
/// holds the relevant cheaper points: as the mean ascends, the writes descend.
fn front(mut points: Vec<ParetoPoint>) -> Vec<ParetoPoint> {
    points.sort_by(|a, b| a.mean_latency_us.total_cmp(&b.mean_latency_us));
    // Pair each point with the smallest mean that counts as equal to its own.
    let mut least = f64::NEG_INFINITY;
    let mut points: Vec<(f64, ParetoPoint)> = points
        .into_iter()
        .map(|p| {
            if p.mean_latency_us > least * (1.0 + SAME) {
                least = p.mean_latency_us;
            }
            (least, p)
        })
        .collect();
    points.sort_by(|(a_us, a), (b_us, b)| {
        let by_cost = a.cost_usd.total_cmp(&b.cost_usd);
        by_cost
            .then(a_us.total_cmp(b_us))
            .then(a.p99_latency_us.total_cmp(&b.p99_latency_us))
            .then(a.drive_writes.total_cmp(&b.drive_writes))
    });
    let mut stairs: Vec<(f64, Vec<(f64, f64)>)> = Vec::new();
    points.retain(|(mean, p)| {
        let (mean, writes) = (*mean, p.drive_writes);
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
    points.into_iter().map(|(_, point)| point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Steps, any_hierarchy, hierarchy, steps};
    use crate::{CostModel, DeviceKind, Evaluation, WritePolicy};
    use forebay_block::Nanos;
    use proptest::prelude::*;

    fn dominates(a: &ParetoPoint, b: &ParetoPoint) -> bool {
        let no_worse = a.cost_usd <= b.cost_usd
            && a.mean_latency_us <= b.mean_latency_us * (1.0 + SAME)
            && a.p99_latency_us <= b.p99_latency_us
            && a.drive_writes <= b.drive_writes;
        no_worse && a != b
    }

    proptest! {
        #[test]
        fn the_front_is_what_nothing_dominates(
            raw in prop::collection::vec((0u8..9, 1u8..9, 0u8..4, 0u8..9, 0u8..3), 1..120)
        ) {
            let mut points: Vec<ParetoPoint> = raw.iter().map(|&(cost, us, tail, writes, off)| ParetoPoint {
                hierarchy: 0, tier_bytes: vec![], cost_usd: cost.into(),
                // The last bits differ, as those of sums in another order do.
                mean_latency_us: f64::from(us) * (1.0 + f64::from(off) * f64::EPSILON), p99_latency_us: tail.into(),
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

    const COST: CostModel = CostModel::with_block_size(forebay_block::BlockSize::KIB_4);

    fn objectives(p: &ParetoPoint) -> [f64; 4] {
        [p.cost_usd, p.mean_latency_us, p.p99_latency_us, p.drive_writes]
    }

    /// Whether every flash tier stays within `limit` times its rated writes per day.
    fn endures(h: &Hierarchy, e: &Evaluation, sizes: &[Units], limit: f64) -> bool {
        h.tiers.iter().zip(sizes).zip(e.written_with(1.0)).all(|((device, size), written)| {
            let rated = device.drive_writes_per_day.unwrap_or(f64::INFINITY);
            let daily = written / (size.0.max(1) * 256) as f64 * 24.0;
            device.kind != DeviceKind::Flash || size.0 == 0 || daily <= limit * rated * (1.0 + 1e-9)
        })
    }

    /// Every affordable choice of sizes, computed without any of the front's code.
    fn brute_force(
        counts: &Steps,
        hierarchies: &[Hierarchy],
        usd: f64,
        limit: f64,
    ) -> Vec<[f64; 4]> {
        let useful = counts.footprint / 256;
        let mut all = Vec::new();
        for h in hierarchies {
            for one in 1..=useful {
                // Beyond what is useful, up to the first size within the wear limit.
                for two in 0..=if h.tiers.len() == 1 { 0 } else { 4000 } {
                    let sizes = &[Units(one), Units(two)][..h.tiers.len()];
                    let cost = COST.usd(&h.tiers, sizes);
                    if cost > usd {
                        break;
                    }
                    let blocks = [one * 256, two * 256];
                    let e = h.evaluate(counts, &blocks[..h.tiers.len()]);
                    let endures = endures(h, &e, sizes, limit);
                    if endures {
                        let writes = h.drive_writes(&e.written_with(1.0), sizes, &COST);
                        all.push([cost, e.mean_latency_us, e.p99_latency_us, writes]);
                    }
                    if one + two >= useful && (endures || two == 0 && limit.is_infinite()) {
                        break;
                    }
                }
            }
            let single = |units: u64| {
                let (mut sizes, mut blocks) =
                    (vec![Units(0); h.tiers.len()], vec![0; h.tiers.len()]);
                (sizes[0], blocks[0]) = (Units(units), units * 256);
                (h.evaluate(counts, &blocks), sizes)
            };
            let larger =
                (useful..100_000).map(single).find(|(e, sizes)| endures(h, e, sizes, limit));
            if let Some((e, sizes)) = larger
                && COST.usd(&h.tiers, &sizes) <= usd
            {
                let writes = h.drive_writes(&e.written_with(1.0), &sizes, &COST);
                let cost = COST.usd(&h.tiers, &sizes);
                all.push([cost, e.mean_latency_us, e.p99_latency_us, writes]);
            }
        }
        let beats = |a: &[f64; 4], b: &[f64; 4]| {
            a != b && a.iter().zip(b).all(|(a, b)| *a <= b * (1.0 + 1e-12))
        };
        let mut kept: Vec<[f64; 4]> =
            all.iter().filter(|b| !all.iter().any(|a| beats(a, b))).copied().collect();
        kept.sort_by(|a, b| a.partial_cmp(b).expect("all are numbers"));
        kept.dedup();
        kept
    }

    fn sorted(found: &Front) -> Vec<[f64; 4]> {
        let mut front: Vec<[f64; 4]> = found.points.iter().map(objectives).collect();
        front.sort_by(|a, b| a.partial_cmp(b).expect("all are numbers"));
        front
    }

    /// Options for a workload of one hour.
    fn options(wear_max: Option<f64>) -> PlanOptions {
        PlanOptions { duration: Nanos(3_600_000_000_000), wear_max, ..PlanOptions::default() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn the_front_is_that_of_brute_force(
            counts in steps(9), of in any_hierarchy(), budget in 0.01..0.1f64,
            wear_max in prop_oneof![Just(None), Just(Some(0.3)), Just(Some(1.0)), Just(Some(30.0))],
        ) {
            let other = hierarchy(["FastDRAM", "SlowSSD"], "SlowHDD", of.policy);
            let both = [Hierarchy { backing: other.backing.clone(), ..of }, other];
            let found = pareto_front(&counts, &both, &options(wear_max), budget, &[]).unwrap();
            prop_assert!(found.is_exact);
            let all = brute_force(&counts, &both, budget, wear_max.unwrap_or(f64::INFINITY));
            prop_assert_eq!(sorted(&found), all);
        }

        #[test]
        fn the_front_of_flash_without_memory_is_that_of_brute_force(
            counts in steps(9), budget in 0.001..0.1f64, write_back in any::<bool>(),
            wear_max in prop_oneof![Just(None), Just(Some(0.3)), Just(Some(1.0)), Just(Some(30.0))],
        ) {
            let policy = if write_back { WritePolicy::WriteBack } else { WritePolicy::WriteThrough };
            let of = [
                hierarchy(["MediumSSD"], "SlowHDD", policy),
                hierarchy(["FastSSD", "SlowSSD"], "SlowHDD", policy),
            ];
            let found = pareto_front(&counts, &of, &options(wear_max), budget, &[]).unwrap();
            prop_assert!(found.is_exact);
            let all = brute_force(&counts, &of, budget, wear_max.unwrap_or(f64::INFINITY));
            prop_assert_eq!(sorted(&found), all);
        }

        /// With too many sizes to evaluate them all, the front still includes what a budget buys.
        #[test]
        fn no_budget_buys_better_than_a_front_of_a_grid(
            counts in steps(3000), of in any_hierarchy(), share in 0.05..1.0f64, wear in any::<bool>(),
        ) {
            let options = options(wear.then_some(1.0));
            let of = [of];
            let most = 40.0;
            let found = pareto_front(&counts, &of, &options, most, &[share * most]).unwrap();
            prop_assert!(!found.is_exact);
            let last = options.wear_limit().map_or(Units(0), |l| l.last_tier_max(&counts, &of[0], &COST));
            let space = Space::new(&counts, &of[0], &COST, share * most).unwrap();
            let space = space.with_last_tier_up_to(last);
            let mut analytic = Analytic::new(&counts, &COST);
            let (limit, cost) = (options.wear_limit(), &COST);
            let mut judge = Enduring { counts: &counts, cost, limit, inner: &mut analytic };
            let best = exhaustive(&space, 1, &mut judge).unwrap();
            let within = found.points.iter().filter(|p| p.cost_usd <= share * most * (1.0 + 1e-9));
            let lowest = within.map(|p| p.mean_latency_us).fold(f64::INFINITY, f64::min);
            prop_assert!(lowest <= best.mean_latency_us * (1.0 + 1e-9), "{} {:?}", lowest, best);
        }
    }

    #[test]
    fn all_tiers_of_a_hierarchy_are_drawn_from() {
        let at = vec![(5 * 256, 500, 0), (20 * 256, 800, 0), (60 * 256, 900, 0)];
        let counts = Steps { reads: 1000, writes: 0, at, footprint: 60 * 256 };
        let names = ["FastDRAM", "FastSSD", "SlowSSD"];
        let h = [hierarchy(names, "SlowHDD", WritePolicy::WriteBack)];
        let of = |usd| pareto_front(&counts, &h, &options(None), usd, &[]).unwrap().points;
        let points = of(0.2);
        assert!(points.iter().any(|p| p.tier_bytes.iter().all(|&bytes| bytes > 0)));
        assert!(points.iter().all(|p| p.cost_usd <= 0.2 && p.tier_bytes[0] > 0));
        // The cheapest point has the smallest possible tiers.
        assert_eq!(points[0].tier_bytes, [1 << 20, 0, 0]);
        let dear = of(0.01);
        assert!(dear.iter().all(|p| p.cost_usd <= 0.01) && !dear.is_empty());
        let us: Vec<f64> = fastest(&points).map(|p| p.mean_latency_us).collect();
        assert!(us.windows(2).all(|w| w[0] > w[1]) && us.len() > 3);
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
