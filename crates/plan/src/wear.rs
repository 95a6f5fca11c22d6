//! How fast flash wears out, and what of it endures.
//!
//! What is bought is a share of a drive, and its endurance is that share of the drive's: a tier of a
//! tenth of a drive that is rated for one drive write a day endures a tenth of the drive's bytes a
//! day. A small tier that everything goes through wears out first; a larger one endures more, whether
//! its room is useful or not.

use forebay_block::Nanos;

use crate::cost::{CostModel, Units};
use crate::counts::HitCounts;
use crate::device::DeviceKind;
use crate::hierarchy::Hierarchy;

pub(crate) const SECONDS_PER_DAY: f64 = 86_400.0;

/// What is written to the flash tiers of a hierarchy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wear {
    pub flash_bytes_written_per_day: f64,
    pub drive_writes_per_day: f64,
    /// The part that is used of the rating of the tier that wears fastest; none where no tier has one.
    pub endurance_used: Option<f64>,
}

/// How fast flash may wear out at most.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WearLimit {
    /// The largest share of the rated endurance that may be used; above 1 it wears out early.
    pub used_max: f64,
    /// How long the workload took; a limit means something only where that is known.
    pub duration: Nanos,
    /// As [`PlanOptions::flash_writes`](crate::PlanOptions::flash_writes).
    pub flash_writes: f64,
}

/// Wear that rounding alone puts above the limit is not above it.
const ROUNDING: f64 = 1.0 + 1e-9;

impl WearLimit {
    fn days(&self) -> f64 {
        self.duration.as_secs_f64() / SECONDS_PER_DAY
    }

    /// Whether this share of its rated endurance may be used.
    pub(crate) fn allows_used(&self, used: f64) -> bool {
        used <= self.used_max * ROUNDING
    }

    /// Whether tiers of `sizes` wear out no faster. Flash without a rating does not wear out.
    pub fn allows<H: HitCounts + ?Sized>(
        &self,
        counts: &H,
        hierarchy: &Hierarchy,
        cost: &CostModel,
        sizes: &[Units],
    ) -> bool {
        self.used(counts, hierarchy, cost, sizes).is_none_or(|used| self.allows_used(used))
    }

    /// The largest last tier that endurance alone can be a reason for: with the smallest tier 1, which
    /// lets the most through. None but of two tiers; with more, sizes are those that are useful.
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

    /// The smallest last tier that endures what tiers of `sizes` let through to it.
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
        // Whatever its size, what comes to the last tier is the same.
        *last = Units(1);
        let used = self.used(counts, hierarchy, cost, &sizes).unwrap_or(0.0);
        Units((used / self.used_max / ROUNDING).ceil() as u64)
    }

    /// The share of its rated endurance that the most worn tier uses; none where nobody knows.
    fn used<H: HitCounts + ?Sized>(
        &self,
        counts: &H,
        hierarchy: &Hierarchy,
        cost: &CostModel,
        sizes: &[Units],
    ) -> Option<f64> {
        let days = self.days();
        let rated = |(device, size): (&crate::Device, &Units)| {
            device.kind == DeviceKind::Flash && device.drive_writes_per_day.is_some() && size.0 > 0
        };
        if days <= 0.0 || !hierarchy.tiers.iter().zip(sizes).any(rated) {
            return None;
        }
        let blocks: Vec<u64> = sizes.iter().map(|s| s.0 * cost.unit_blocks()).collect();
        let evaluation = hierarchy.evaluate(counts, &blocks);
        let blocks = evaluation.written_with(self.flash_writes);
        let daily: Vec<f64> =
            blocks.iter().map(|blocks| blocks * cost.block_size.bytes() as f64 / days).collect();
        hierarchy.wear(sizes, cost, &daily).endurance_used
    }
}
