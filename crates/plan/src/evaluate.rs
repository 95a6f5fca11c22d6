//! Evaluators: how a search finds out the latency of a choice of sizes.

use crate::cost::{CostModel, Units};
use crate::counts::HitCounts;
use crate::error::{BoxError, PlanError};
use crate::hierarchy::Hierarchy;
use crate::space::Space;
use crate::wear::WearLimit;

/// Judges sizes. [`Analytic`] uses the formulas; for a simulation or a replay the caller passes a
/// closure, so that this crate depends on neither.
///
/// ```
/// use forebay_plan::{Evaluator, Hierarchy, Units};
/// let mut tried = 0;
/// let mut simulate = |_: &Hierarchy, sizes: &[Units]| {
///     tried += 1;
///     Ok(1000.0 / (1 + sizes[0].0) as f64)
/// };
/// fn takes_one(_: &mut impl Evaluator) {}
/// takes_one(&mut simulate);
/// ```
pub trait Evaluator {
    /// The mean latency per block access, in microseconds, of a hierarchy whose tiers have `sizes`.
    ///
    /// # Errors
    /// Any error of the evaluation; the search then stops.
    fn mean_latency_us(&mut self, hierarchy: &Hierarchy, sizes: &[Units]) -> Result<f64, BoxError>;
}

impl<F> Evaluator for F
where
    F: FnMut(&Hierarchy, &[Units]) -> Result<f64, BoxError>,
{
    fn mean_latency_us(&mut self, hierarchy: &Hierarchy, sizes: &[Units]) -> Result<f64, BoxError> {
        self(hierarchy, sizes)
    }
}

/// The mean latency of tiers of these sizes, in microseconds.
pub(crate) fn evaluate(
    space: &Space<'_>,
    evaluator: &mut dyn Evaluator,
    sizes: &[Units],
) -> Result<f64, PlanError> {
    evaluator.mean_latency_us(space.hierarchy(), sizes).map_err(|source| PlanError::Evaluation {
        what: space.hierarchy().describe(sizes, space.cost()),
        source,
    })
}

/// Wraps an evaluator: sizes that wear out too fast get an infinite latency.
pub(crate) struct Enduring<'a, H: ?Sized> {
    pub counts: &'a H,
    pub cost: &'a CostModel,
    pub limit: Option<WearLimit>,
    pub inner: &'a mut dyn Evaluator,
}

impl<H: HitCounts + ?Sized> Evaluator for Enduring<'_, H> {
    fn mean_latency_us(&mut self, hierarchy: &Hierarchy, sizes: &[Units]) -> Result<f64, BoxError> {
        match self.limit {
            Some(limit) if !limit.allows(self.counts, hierarchy, self.cost, sizes) => {
                Ok(f64::INFINITY)
            }
            _ => self.inner.mean_latency_us(hierarchy, sizes),
        }
    }
}

/// Judges sizes by the formulas, in constant time.
#[derive(Debug)]
pub struct Analytic<'a, H: ?Sized> {
    counts: &'a H,
    unit_blocks: u64,
    blocks: Vec<u64>,
}

impl<'a, H: HitCounts + ?Sized> Analytic<'a, H> {
    /// An evaluator for a workload with these `counts`, with the block size of `cost`.
    pub fn new(counts: &'a H, cost: &CostModel) -> Self {
        Self { counts, unit_blocks: cost.unit_blocks(), blocks: Vec::new() }
    }
}

impl<H: HitCounts + ?Sized> Evaluator for Analytic<'_, H> {
    fn mean_latency_us(&mut self, hierarchy: &Hierarchy, sizes: &[Units]) -> Result<f64, BoxError> {
        self.blocks.clear();
        self.blocks.extend(sizes.iter().map(|s| s.0 * self.unit_blocks));
        Ok(hierarchy.mean_latency_us(self.counts, &self.blocks))
    }
}
