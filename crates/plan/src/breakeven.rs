//! Add tier 2, or grow tier 1? The price ratio at which both cost the same.

use serde::Serialize;

use crate::cost::{CostModel, Units};
use crate::counts::HitCounts;
use crate::hierarchy::Hierarchy;

/// Compares a second tier with growing the first until it is as fast (Bhandari 2024, section
/// 4.3.6).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct BreakEven {
    /// The smallest single tier that is as fast, in bytes.
    pub single_tier_bytes: u64,
    /// How many times as much a byte of tier 1 must cost as one of tier 2 for the second tier
    /// to be the cheaper way: tier 2's size over the growth of tier 1 that it spares.
    pub price_ratio_needed: f64,
    /// How many times as much it does cost, metadata included.
    pub price_ratio: f64,
    /// Whether the second tier is the cheaper way.
    pub second_tier_is_cheaper: bool,
}

impl BreakEven {
    /// For tiers of `sizes`, of which the first two count. `None` without a second tier, or
    /// where the first tier alone is as fast, or where no single tier is.
    pub fn of<H: HitCounts + ?Sized>(
        counts: &H,
        hierarchy: &Hierarchy,
        cost: &CostModel,
        sizes: &[Units],
    ) -> Option<Self> {
        let ([first, second, ..], [tier1, tier2, ..]) = (hierarchy.tiers.as_slice(), sizes) else {
            return None;
        };
        let blocks = |units: u64| units * cost.unit_blocks();
        let us = |tier1: u64, tier2: u64| {
            hierarchy.mean_latency_us(counts, &[blocks(tier1), blocks(tier2)])
        };
        let target_us = us(tier1.0, tier2.0);
        let as_fast = |units: u64| us(units, 0) <= target_us * (1.0 + 1e-12);
        let (mut low, mut high) = (tier1.0, cost.units_for(counts.useful_blocks()).0);
        if tier2.0 == 0 || as_fast(low) || !as_fast(high) {
            return None;
        }
        // Latency never rises with the size of a single tier: halve the interval.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if as_fast(middle) { high = middle } else { low = middle }
        }
        let price_ratio_needed = tier2.0 as f64 / (high - tier1.0) as f64;
        let price_ratio = cost.unit_usd(0, first, first) / cost.unit_usd(1, second, first);
        Some(Self {
            single_tier_bytes: high * cost.unit_bytes,
            price_ratio_needed,
            price_ratio,
            second_tier_is_cheaper: price_ratio > price_ratio_needed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WritePolicy;
    use crate::testing::{Steps, hierarchy};

    #[test]
    fn the_ratio_is_tier_2_over_the_growth_it_spares() {
        // The dissertation's example in units: 5 of tier 1 and 20 of tier 2 are as fast as 10 of
        // tier 1 alone, so tier 1 must cost 4 times as much. Here reads that hit up to 5, 10 and
        // 25 units: hits in tier 2 are slower than in tier 1, so that 10 units match.
        let at = vec![(5 * 256, 500, 0), (10 * 256, 800, 0), (25 * 256, 801, 0)];
        let counts = Steps { reads: 1000, writes: 0, at, footprint: 25 * 256 };
        let h = hierarchy(["FastDRAM", "FastSSD"], "FastHDD", WritePolicy::WriteThrough);
        let cost = CostModel::default();
        let sizes = [Units(5), Units(20)];
        let b = BreakEven::of(&counts, &h, &cost, &sizes).unwrap();
        assert_eq!(b.single_tier_bytes, 10 << 20);
        assert_eq!(b.price_ratio_needed, 4.0);
        assert!((b.price_ratio - 0.007_923_84 / 0.003_191_267_6).abs() < 1e-6);
        assert!(!b.second_tier_is_cheaper);
        assert_eq!(BreakEven::of(&counts, &h, &cost, &[Units(5), Units(0)]), None);
    }
}
