//! Add tier 2, or grow tier 1? The price ratio at which both cost the same.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cost::{CostModel, Units};
use crate::counts::HitCounts;
use crate::hierarchy::Hierarchy;

/// Compares the tiers below the first with growing the first until it is as fast (Bhandari 2024,
/// section 4.3.6, which treats two tiers).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, JsonSchema)]
pub struct BreakEven {
    /// Size in bytes of the smallest single tier that is as fast as this choice.
    pub single_tier_bytes: u64,
    /// The price ratio (tier 1's price per byte, divided by that of the tiers below it) above which the tiers
    /// below are cheaper. It equals the size of the tiers below divided by the growth of tier 1 that they
    /// save.
    pub price_ratio_needed: f64,
    /// The actual price ratio, including metadata. With several tiers below tier 1, it uses their mean price
    /// per byte.
    pub price_ratio: f64,
    /// Whether the tiers below are cheaper.
    pub second_tier_is_cheaper: bool,
}

impl BreakEven {
    /// Compares tiers of `sizes`. Returns `None` if there is no tier below the first, if the first
    /// tier alone is as fast, or if no single tier is.
    pub fn find<H: HitCounts + ?Sized>(
        counts: &H,
        hierarchy: &Hierarchy,
        cost: &CostModel,
        sizes: &[Units],
    ) -> Option<Self> {
        let ([first, ..], [tier1, below @ ..]) = (hierarchy.tiers.as_slice(), sizes) else {
            return None;
        };
        let blocks = |units: u64| units * cost.unit_blocks();
        let all: Vec<u64> = sizes.iter().map(|s| blocks(s.0)).collect();
        let target_us = hierarchy.mean_latency_us(counts, &all);
        let as_fast = |units: u64| {
            hierarchy.mean_latency_us(counts, &[blocks(units)]) <= target_us * (1.0 + 1e-12)
        };
        let (mut low, mut high) = (tier1.0, cost.units_for(counts.useful_blocks()).0);
        let below: u64 = below.iter().map(|s| s.0).sum();
        if below == 0 || as_fast(low) || !as_fast(high) {
            return None;
        }
        // Latency never rises with the size of a single tier: halve the interval.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if as_fast(middle) { high = middle } else { low = middle }
        }
        let price_ratio_needed = below as f64 / (high - tier1.0) as f64;
        let below_usd = cost.usd(&hierarchy.tiers, sizes) - cost.usd(&hierarchy.tiers, &sizes[..1]);
        let price_ratio = cost.unit_usd(0, first, first) / (below_usd / below as f64);
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
        // The dissertation's example in units: 5 units of tier 1 and 20 of tier 2 are as fast as 10
        // of tier 1 alone, so tier 1 must cost 4 times as much. Here the hits end at 5, 10 and 25
        // units, with 1 hit beyond 10: a hit in tier 2 is slower than one in tier 1, so 10 units
        // are as fast.
        let at = vec![(5 * 256, 500, 0), (10 * 256, 800, 0), (25 * 256, 801, 0)];
        let counts = Steps { reads: 1000, writes: 0, at, footprint: 25 * 256 };
        let h = hierarchy(["FastDRAM", "FastSSD"], "FastHDD", WritePolicy::WriteThrough);
        let cost = CostModel::default();
        let sizes = [Units(5), Units(20)];
        let b = BreakEven::find(&counts, &h, &cost, &sizes).unwrap();
        assert_eq!(b.single_tier_bytes, 10 << 20);
        assert_eq!(b.price_ratio_needed, 4.0);
        assert!((b.price_ratio - 0.007_923_84 / 0.003_191_267_6).abs() < 1e-6);
        assert!(!b.second_tier_is_cheaper);
        assert_eq!(BreakEven::find(&counts, &h, &cost, &[Units(5), Units(0)]), None);
    }

    #[test]
    fn of_three_tiers_all_below_the_first_count() {
        let at = vec![(5 * 256, 500, 0), (10 * 256, 800, 0), (30 * 256, 801, 0)];
        let counts = Steps { reads: 1000, writes: 0, at, footprint: 30 * 256 };
        let names = ["FastDRAM", "SlowDRAM", "FastSSD"];
        let h = hierarchy(names, "FastHDD", WritePolicy::WriteThrough);
        let cost = CostModel::default();
        let b = BreakEven::find(&counts, &h, &cost, &[Units(5), Units(5), Units(20)]).unwrap();
        assert_eq!((b.single_tier_bytes, b.price_ratio_needed), (10 << 20, 5.0));
        let of = |tier: usize| cost.unit_usd(tier, &h.tiers[tier], &h.tiers[0]);
        let mean = (5.0 * of(1) + 20.0 * of(2)) / 25.0;
        assert!((b.price_ratio - of(0) / mean).abs() < 1e-9);
        // An intermediate tier that is not bought does not matter.
        let without =
            BreakEven::find(&counts, &h, &cost, &[Units(5), Units(0), Units(20)]).unwrap();
        assert_eq!(without.price_ratio_needed, 4.0);
    }
}
