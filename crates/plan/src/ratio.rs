//! Hit-miss ratio and overhead-gain ratio: does a second tier help? (Bhandari 2024, 3.2.3)
//!
//! Adding tier 2 behind an unchanged tier 1 makes every tier-2 read hit faster by the **gain** and
//! every tier-2 write hit and every miss slower by the **overhead**. It helps iff hits x gain >
//! misses x overhead, that is, iff the workload's hit-miss ratio (HMR) is above the devices'
//! overhead-gain ratio (OGR).
//!
//! With write-back there is a third effect: dirty blocks stay longer, so fewer are written back,
//! and they leave from tier 2. The time that this saves is divided by the gain and counted as hits,
//! so "HMR > OGR" means "it helps" under either policy. (The paper compares hits alone.)

use crate::cost::{CostModel, Units};
use crate::counts::HitCounts;
use crate::hierarchy::{Hierarchy, WritePolicy};
use crate::space::Space;

/// The effect of a second tier on one access, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tradeoff {
    /// Time saved per tier-2 read hit; zero or negative if such a hit, with the demotion that it
    /// causes, is no faster than the backing store.
    pub gain_us: f64,
    /// Time added per tier-2 write hit, write miss and read miss.
    pub overhead_us: f64,
}

impl Tradeoff {
    /// The tradeoff between a hierarchy's first two tiers; `None` if it has only one.
    pub fn from_hierarchy(hierarchy: &Hierarchy) -> Option<Self> {
        let [first, second, ..] = hierarchy.tiers.as_slice() else { return None };
        let overhead_us = first.read_latency_us + second.write_latency_us;
        let gain_us = hierarchy.backing.read_latency_us - second.read_latency_us - overhead_us;
        Some(Self { gain_us, overhead_us })
    }

    /// Overhead divided by gain, which the hit-miss ratio must exceed; infinite without gain.
    pub fn overhead_gain_ratio(&self) -> f64 {
        if self.gain_us > 0.0 { self.overhead_us / self.gain_us } else { f64::INFINITY }
    }
}

/// Hits and misses of *adding* tier 2 to tier 1, for one pair of sizes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HitMiss {
    /// Size of tier 1.
    pub tier1: Units,
    /// Size of tier 2.
    pub tier2: Units,
    /// Accesses made faster: tier-2 read hits and, with write-back, the saved write-backs converted
    /// to hits (not below zero).
    pub hits: f64,
    /// Accesses made slower: tier-2 write hits, write misses and read misses.
    pub misses: u64,
}

impl HitMiss {
    /// Computes the counts for one pair of sizes. Without gain, saved write-backs do not count.
    pub fn measure<H: HitCounts + ?Sized>(
        counts: &H,
        hierarchy: &Hierarchy,
        cost: &CostModel,
        (tier1, tier2): (Units, Units),
    ) -> Self {
        let one = tier1.0 * cost.unit_blocks();
        let both = one + tier2.0 * cost.unit_blocks();
        let (all_reads, above) = (counts.read_hits(both), counts.read_hits(one));
        let tier1_writes = counts.write_hits(one);
        let misses = (counts.writes() - tier1_writes) + (counts.reads() - all_reads);
        let saved = saved_write_backs(counts, hierarchy, one, both);
        Self { tier1, tier2, hits: ((all_reads - above) as f64 + saved).max(0.0), misses }
    }

    /// Hits divided by misses: infinite if there are only hits, 0 if there are no hits.
    pub fn ratio(&self) -> f64 {
        match (self.hits > 0.0, self.misses) {
            (false, _) => 0.0,
            (true, 0) => f64::INFINITY,
            (true, misses) => self.hits / misses as f64,
        }
    }
}

/// The time that tier 2 saves on write-backs, divided by the gain. 0 with write-through.
fn saved_write_backs<H: HitCounts + ?Sized>(
    counts: &H,
    hierarchy: &Hierarchy,
    one: u64,
    both: u64,
) -> f64 {
    let ([first, second, ..], WritePolicy::WriteBack) =
        (hierarchy.tiers.as_slice(), hierarchy.policy)
    else {
        return 0.0;
    };
    if both == one {
        return 0.0;
    }
    let gain_us = Tradeoff::from_hierarchy(hierarchy).map_or(0.0, |t| t.gain_us);
    if gain_us <= 0.0 {
        return 0.0;
    }
    let write_backs = |blocks| (counts.writes() - counts.rewrite_hits(blocks)) as f64;
    let store_us = hierarchy.backing.write_latency_us;
    let from_first_us = write_backs(one) * (first.read_latency_us + store_us);
    let from_second_us = write_backs(both) * (second.read_latency_us + store_us);
    (from_first_us - from_second_us) / gain_us
}

/// The HMR curve at the cost limit of `space`: for every affordable size of tier 1, in ascending
/// order, tier 2 gets the rest of the money. Sizes that leave nothing for tier 2 are omitted.
pub fn hit_miss_curve<H: HitCounts + ?Sized>(counts: &H, space: &Space<'_>) -> Vec<HitMiss> {
    let mut curve = Vec::new();
    for tier1 in 1..=space.tier1_max().0 {
        let tier2 = space.rest(&[Units(tier1)]);
        if tier2.0 > 0 {
            let sizes = (Units(tier1), tier2);
            curve.push(HitMiss::measure(counts, space.hierarchy(), space.cost(), sizes));
        }
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{any_hierarchy, hierarchy, steps};
    use proptest::prelude::*;

    #[test]
    fn gain_and_overhead_are_the_papers() {
        let h = hierarchy(["FastDRAM", "FastSSD"], "SlowHDD", WritePolicy::WriteThrough);
        let t = Tradeoff::from_hierarchy(&h).unwrap();
        assert!((t.gain_us - (1661.1 - 0.0619 - 1.82 - 2.0)).abs() < 1e-9);
        assert!((t.overhead_us - 2.0619).abs() < 1e-12);
        // Reading from the slow SSD directly is faster than reading from the medium SSD and
        // demoting a block to it.
        let h = hierarchy(["FastDRAM", "MediumSSD"], "SlowSSD", WritePolicy::WriteThrough);
        let t = Tradeoff::from_hierarchy(&h).unwrap();
        assert!(t.gain_us < 0.0 && t.overhead_gain_ratio() == f64::INFINITY);
    }

    #[test]
    fn only_hits_is_infinitely_good_and_nothing_is_nothing() {
        let at = |hits, misses| HitMiss { tier1: Units(1), tier2: Units(1), hits, misses }.ratio();
        assert_eq!(
            (at(3.0, 0), at(0.0, 0), at(0.0, 7), at(3.0, 4)),
            (f64::INFINITY, 0.0, 0.0, 0.75)
        );
    }

    proptest! {
        /// Checks the statement that defines the ratios, for the paper's policy and for write-back.
        #[test]
        fn a_second_tier_helps_iff_hmr_is_above_ogr(
            counts in steps(40), h in any_hierarchy(), tier1 in 1u64..40, tier2 in 1u64..40,
        ) {
            let cost = CostModel::default();
            let (b1, b2) = (tier1 * 256, tier2 * 256);
            let with = h.mean_latency_us(&counts, &[b1, b2]);
            let without = h.mean_latency_us(&counts, &[b1, 0]);
            let measured = HitMiss::measure(&counts, &h, &cost, (Units(tier1), Units(tier2)));
            let ogr = Tradeoff::from_hierarchy(&h).unwrap().overhead_gain_ratio();
            // Where both sides are equal, rounding decides.
            prop_assume!((with - without).abs() > 1e-9 * without);
            prop_assert_eq!(measured.ratio() > ogr, with < without,
                "hmr {} ogr {} with {} without {}", measured.ratio(), ogr, with, without);
        }
    }
}
