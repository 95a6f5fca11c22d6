//! How fast flash wears out, and which sizes endure.
//!
//! A tier is a share of a drive, and so is its endurance: a tier that takes a tenth of a drive
//! rated for one drive write a day endures a tenth of the drive's bytes a day. A small tier through
//! which everything passes wears out first; a larger one endures more, even if the additional room
//! is not useful for hits.

use std::ops::Range;

use forebay_block::Nanos;

use crate::cost::{CostModel, Units};
use crate::counts::HitCounts;
use crate::device::DeviceKind;
use crate::hierarchy::Hierarchy;

pub(crate) const SECONDS_PER_DAY: f64 = 86_400.0;

/// The writes to the flash tiers of a hierarchy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wear {
    pub flash_bytes_written_per_day: f64,
    pub drive_writes_per_day: f64,
    /// Used share of the rated endurance, for the tier that wears fastest; `None` if no tier has a
    /// rating.
    pub endurance_used: Option<f64>,
}

/// A limit on how fast flash may wear out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WearLimit {
    /// The largest share of the rated endurance that may be used; above 1, flash wears out early.
    pub used_max: f64,
    /// Duration of the workload; at zero, for unknown, the limit has no effect.
    pub duration: Nanos,
    /// As [`PlanOptions::flash_writes`](crate::PlanOptions::flash_writes).
    pub flash_writes: f64,
}

/// Tolerance for rounding errors that put the wear above the limit.
const ROUNDING: f64 = 1.0 + 1e-9;

impl WearLimit {
    fn days(&self) -> f64 {
        self.duration.as_secs_f64() / SECONDS_PER_DAY
    }

    /// Whether `used`, a share of the rated endurance, is within the limit.
    pub(crate) fn allows_used(&self, used: f64) -> bool {
        used <= self.used_max * ROUNDING
    }

    /// Whether tiers of `sizes` stay within the limit. Flash without a rating does not wear out.
    pub fn allows<H: HitCounts + ?Sized>(
        &self,
        counts: &H,
        hierarchy: &Hierarchy,
        cost: &CostModel,
        sizes: &[Units],
    ) -> bool {
        let used = self.used(counts, hierarchy, cost, sizes, 0..sizes.len());
        used.is_none_or(|used| self.allows_used(used))
    }

    /// The smallest tier 1 within the limit when it has every possible hit and there is no tier
    /// below it; 0 if it does not wear out.
    pub(crate) fn single_tier_needed<H: HitCounts + ?Sized>(
        &self,
        counts: &H,
        hierarchy: &Hierarchy,
        cost: &CostModel,
    ) -> Units {
        let useful = cost.units_for(counts.useful_blocks()).0.max(1);
        let mut sizes = vec![Units(0); hierarchy.tiers.len()];
        sizes[0] = Units(useful);
        // With every hit, the bytes written do not depend on the size.
        let used = self.used(counts, hierarchy, cost, &sizes, 0..1).unwrap_or(0.0);
        Units((useful as f64 * used / self.used_max / ROUNDING).ceil() as u64)
    }

    /// The largest last tier that can be needed for endurance: the one behind the smallest tier 1,
    /// which lets the most through. 0 unless there are two tiers; with any other number, no tier
    /// grows beyond its useful size for endurance.
    pub(crate) fn last_tier_max<H: HitCounts + ?Sized>(
        &self,
        counts: &H,
        hierarchy: &Hierarchy,
        cost: &CostModel,
    ) -> Units {
        if hierarchy.tiers.len() != 2 || self.days() <= 0.0 {
            return Units(0);
        }
        self.last_tier_needed(counts, hierarchy, cost, &[Units(1), Units(1)])
    }

    /// The smallest last tier within the limit, behind tiers of `sizes`; 0 unless there are two
    /// tiers.
    pub(crate) fn last_tier_needed<H: HitCounts + ?Sized>(
        &self,
        counts: &H,
        hierarchy: &Hierarchy,
        cost: &CostModel,
        sizes: &[Units],
    ) -> Units {
        let mut sizes = sizes.to_vec();
        let Some(last) = sizes.last_mut().filter(|_| hierarchy.tiers.len() == 2) else {
            return Units(0);
        };
        // The amount written to the last tier does not depend on its size.
        *last = Units(1);
        let used = self.used(counts, hierarchy, cost, &sizes, 1..2).unwrap_or(0.0);
        Units((used / self.used_max / ROUNDING).ceil() as u64)
    }

    /// Used share of the rated endurance, for the most worn of `tiers`; `None` if it is not known.
    fn used<H: HitCounts + ?Sized>(
        &self,
        counts: &H,
        hierarchy: &Hierarchy,
        cost: &CostModel,
        sizes: &[Units],
        tiers: Range<usize>,
    ) -> Option<f64> {
        let days = self.days();
        let rated = |(device, size): (&crate::Device, &Units)| {
            device.kind == DeviceKind::Flash && device.drive_writes_per_day.is_some() && size.0 > 0
        };
        if days <= 0.0
            || !hierarchy.tiers.iter().zip(sizes).take(tiers.end).skip(tiers.start).any(rated)
        {
            return None;
        }
        let blocks: Vec<u64> = sizes.iter().map(|s| s.0 * cost.unit_blocks()).collect();
        let evaluation = hierarchy.evaluate(counts, &blocks);
        let blocks = evaluation.written_with(self.flash_writes);
        let daily = |(tier, blocks): (usize, &f64)| match tiers.contains(&tier) {
            true => blocks * cost.block_size.bytes() as f64 / days,
            false => 0.0,
        };
        let daily: Vec<f64> = blocks.iter().enumerate().map(daily).collect();
        hierarchy.wear(sizes, cost, &daily).endurance_used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Steps, hierarchy};
    use crate::{Catalogue, Combination, PlanOptions, WritePolicy, plan};

    #[test]
    fn flash_without_memory_is_bought_larger_than_of_use_where_that_makes_it_endure() {
        let at = vec![(256, 10, 0), (30 * 256, 9_970, 0)];
        let counts = Steps { reads: 10_000, writes: 0, at, footprint: 30 * 256 };
        let bought = |tiers: &[&str], usd: f64| {
            let tiers = tiers.iter().map(|tier| tier.to_string()).collect();
            let of = Combination { tiers, backing: "SlowHDD".into() };
            let options = PlanOptions {
                wear_max: Some(0.001),
                duration: Nanos(18_000_000_000_000),
                ..PlanOptions::default()
            };
            plan(&counts, &Catalogue::default(), &[of], usd, &options)
        };
        // With every hit, 30 blocks are written in five hours.
        let h = hierarchy(["SlowSSD"], "SlowHDD", WritePolicy::WriteThrough);
        let rated = h.tiers[0].drive_writes_per_day.unwrap();
        let units = (30.0 / 256.0 * 24.0 / 5.0 / rated / 0.001).ceil() as u64;
        assert!(units > 60, "{units}");
        let plan = bought(&["SlowSSD"], 10.0).unwrap();
        let purchase = &plan.choices[0].purchase;
        assert_eq!(purchase.tiers[0].bytes >> 20, units, "of which 30 are useful");
        assert!(bought(&["SlowSSD"], purchase.cost_usd * 0.99).is_err());
        let plan = bought(&["FastSSD", "SlowSSD"], 10.0).unwrap();
        for purchase in [&plan.choices[0].purchase, &plan.choices[0].baseline] {
            assert!(purchase.endurance_used.unwrap() <= 0.001 * ROUNDING, "{purchase:?}");
        }
    }
}
