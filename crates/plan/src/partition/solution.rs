//! Searches for shares with either method.

use super::anneal::{AnnealOptions, anneal};
use super::cost::{Cost, Costs, Share};
use super::exact::exact;
use super::watch::Watch;
use crate::error::PlanError;

/// How to search for shares.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Search {
    /// Dynamic programming: the best division into whole units, with the rest for one volume.
    Exact,
    /// Simulated annealing.
    Anneal(AnnealOptions),
}

impl Search {
    /// The name as written in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Anneal(_) => "anneal",
        }
    }
}

/// Shares of all volumes and their total cost.
#[derive(Clone, PartialEq, Debug)]
pub struct Solution {
    /// By volume, in the order of the problem.
    pub shares: Vec<Share>,
    /// The sum over volumes.
    pub cost: Cost,
    /// A lower bound: no division of the same budget into finer units costs less. `None` if it is
    /// not known.
    pub bound: Option<Cost>,
    /// Number of evaluated costs of single volumes.
    pub evaluations: u64,
}

/// Searches for shares.
///
/// # Errors
/// If the floors exceed the budget, an exact search would take too long or too much memory, or
/// `watch` stops the search.
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
