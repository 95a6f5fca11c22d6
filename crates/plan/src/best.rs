//! The best sizes that a search has seen: of the fastest, the cheapest.

use crate::cost::Units;
use crate::error::PlanError;
use crate::evaluate::{Evaluator, evaluate};
use crate::ratio::HitMiss;
use crate::space::Space;

/// Latencies whose relative difference is at most this differ only by rounding.
pub(crate) const SAME: f64 = 1e-9;

/// The best sizes that a search found.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// Size of each tier, tier 1 first.
    pub sizes: Vec<Units>,
    /// The mean latency of these sizes, in microseconds, according to the evaluator.
    pub mean_latency_us: f64,
    /// Mean latency of the single tier that the budget buys, in microseconds, according to the
    /// evaluator.
    pub baseline_us: f64,
    /// Number of points evaluated, not counting the single tier.
    pub evaluations: u64,
}

/// The best sizes so far.
pub(crate) struct Best {
    pub found: Found,
    cost_usd: f64,
    /// Whether the last tier is known to be the smallest that is as fast.
    is_trimmed: bool,
    /// The lowest latency seen; `found`, the cheapest of the fastest, may be slower by rounding.
    lowest_us: f64,
}

impl Best {
    pub fn new(space: &Space<'_>, sizes: &[Units], us: f64) -> Self {
        let found =
            Found { sizes: sizes.to_vec(), mean_latency_us: us, baseline_us: us, evaluations: 0 };
        Self { found, cost_usd: usd(space, sizes), is_trimmed: false, lowest_us: us }
    }

    pub fn try_sizes(
        &mut self,
        space: &Space<'_>,
        evaluator: &mut dyn Evaluator,
        candidate: &HitMiss,
    ) -> Result<f64, PlanError> {
        let sizes = [candidate.tier1, candidate.tier2];
        let us = evaluate(space, evaluator, &sizes)?;
        self.found.evaluations += 1;
        self.consider(space, &sizes, us);
        Ok(us)
    }

    fn consider(&mut self, space: &Space<'_>, sizes: &[Units], us: f64) {
        if us > self.most_us() {
            return;
        }
        let cost_usd = usd(space, sizes);
        if us < self.lowest_us * (1.0 - SAME) || cost_usd < self.cost_usd {
            self.take(sizes, us, cost_usd);
        }
        self.lowest_us = self.lowest_us.min(us);
    }

    /// Like [`Best::consider`], but the last of `sizes` may be reduced.
    pub fn consider_cheaper(
        &mut self,
        space: &Space<'_>,
        evaluator: &mut dyn Evaluator,
        sizes: &[Units],
        us: f64,
    ) -> Result<(), PlanError> {
        let is_as_fast = (self.lowest_us * (1.0 - SAME)..=self.most_us()).contains(&us);
        if !is_as_fast {
            self.consider(space, sizes, us);
            return Ok(());
        }
        self.lowest_us = self.lowest_us.min(us);
        let (last, least) = smallest_last(sizes);
        let mut smallest = sizes.to_vec();
        smallest[last] = least;
        if usd(space, &smallest) < self.cost_usd {
            self.trim(space, evaluator)?;
        }
        // Trimming may have made the best cheaper.
        if usd(space, &smallest) < self.cost_usd {
            let sizes = self.trimmed(space, evaluator, sizes)?;
            let cost_usd = usd(space, &sizes);
            if cost_usd < self.cost_usd {
                self.take(&sizes, us, cost_usd);
                self.is_trimmed = true;
            }
        }
        Ok(())
    }

    /// Reduces the last tier to the smallest size that is as fast.
    pub fn trim(
        &mut self,
        space: &Space<'_>,
        evaluator: &mut dyn Evaluator,
    ) -> Result<(), PlanError> {
        if !self.is_trimmed {
            let sizes = self.found.sizes.clone();
            let sizes = self.trimmed(space, evaluator, &sizes)?;
            self.take(&sizes, self.found.mean_latency_us, usd(space, &sizes));
            self.is_trimmed = true;
        }
        Ok(())
    }

    /// Returns `sizes`, which are as fast as the best, with the smallest last tier that is still as
    /// fast.
    fn trimmed(
        &mut self,
        space: &Space<'_>,
        evaluator: &mut dyn Evaluator,
        sizes: &[Units],
    ) -> Result<Vec<Units>, PlanError> {
        let mut tried = sizes.to_vec();
        let (last, least) = smallest_last(sizes);
        let (mut least, mut most) = (least.0, sizes[last].0);
        while least < most {
            let middle = least + (most - least) / 2;
            tried[last] = Units(middle);
            let us = evaluate(space, evaluator, &tried)?;
            self.found.evaluations += 1;
            if us <= self.most_us() { most = middle } else { least = middle + 1 }
        }
        tried[last] = Units(most);
        Ok(tried)
    }

    fn take(&mut self, sizes: &[Units], us: f64, cost_usd: f64) {
        self.found.sizes.clear();
        self.found.sizes.extend_from_slice(sizes);
        self.found.mean_latency_us = us;
        (self.cost_usd, self.is_trimmed) = (cost_usd, false);
    }

    /// Sizes up to this latency count as equally fast as the fastest.
    fn most_us(&self) -> f64 {
        self.lowest_us * (1.0 + SAME)
    }
}

fn usd(space: &Space<'_>, sizes: &[Units]) -> f64 {
    space.cost().usd(&space.hierarchy().tiers, sizes)
}

/// The index of the last tier with a size, and the smallest size it can have: tier 1 is never
/// empty.
fn smallest_last(sizes: &[Units]) -> (usize, Units) {
    let last = sizes.iter().rposition(|size| size.0 > 0).unwrap_or(0);
    (last, Units(u64::from(last == 0)))
}
