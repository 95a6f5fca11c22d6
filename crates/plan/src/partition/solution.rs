//! Searching for shares, by either search.

use super::anneal::{AnnealOptions, anneal};
use super::cost::{Cost, Costs, Share};
use super::exact::exact;
use super::watch::Watch;
use crate::error::PlanError;

/// How shares are searched.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Search {
    /// Dynamic programming: the best there is in whole units, with the rest for one volume.
    Exact,
    /// Simulated annealing.
    Anneal(AnnealOptions),
}

impl Search {
    /// As it is written in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Anneal(_) => "anneal",
        }
    }
}

/// Shares of all volumes and what they cost together.
#[derive(Clone, PartialEq, Debug)]
pub struct Solution {
    /// By volume, in the order of the problem.
    pub shares: Vec<Share>,
    /// The sum over volumes.
    pub cost: Cost,
    /// No division of the same budget into finer units costs less than this; none where that is
    /// not known.
    pub bound: Option<Cost>,
    /// Costs of single volumes that were looked at.
    pub evaluations: u64,
}

/// Finds shares.
///
/// # Errors
/// If floors leave nothing to choose, an exact search would take too long, or `watch` ends it.
pub fn solve(
    costs: &dyn Costs,
    search: Search,
    watch: &mut Watch<'_>,
) -> Result<Solution, PlanError> {
    match search {
        Search::Exact => exact(costs, watch),
        Search::Anneal(options) => anneal(costs, options, watch),
    }
}
