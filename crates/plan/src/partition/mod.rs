//! Dividing a cache among volumes: how much memory and flash each one gets.
//!
//! One pass over the traces gives every volume its *request-level* hits by cache size
//! ([`PartitionProfileBuilder`]); a [`VolumeModel`] gives the latencies of its hits and misses; a
//! [`Goal`] turns both into the cost of each share to a volume ([`Problem`]). The goals are sums
//! over volumes, so a search needs nothing else: [`exact`] is dynamic programming, [`anneal`]
//! simulated annealing. [`iterate`] plans, has the plan measured, and plans again with the measured
//! latencies until prediction and measurement agree.
//!
//! Request-level curves need not be convex, so nothing here relies on convex minorants. The page
//! `docs/partitioning.md` explains the idea.
//!
//! Source: R. Koller, *Improving Caches in Consolidated Environments* (dissertation,
//! Florida International University, 2012), chapter 5, cited below as Koller (2012); and S.
//! Ahmadian and others, *ETICA*, for the goal [`Goal::Ppc`].

mod anneal;
mod cost;
mod curves;
mod cut;
mod exact;
mod iterate;
mod model;
mod problem;
mod solution;
#[cfg(test)]
mod testing;
mod units;
mod watch;

pub use anneal::{AnnealOptions, anneal};
pub use cost::{Cost, Costs, Rests, Share};
pub use curves::{PartitionProfile, PartitionProfileBuilder, PartitionProfileOptions, VolumeCurve};
pub use exact::{DynamicProgram, STEPS_MAX, exact};
pub use iterate::{Convergence, Iterated, Measure, Measured, Round, iterate};
pub use model::{ByPlace, LoadPoint, Place, VolumeModel};
pub use problem::{Goal, IopsGoal, Outcome, Problem, ProblemOptions, Sizes, Weigh};
pub use solution::{Search, Solution, solve};
pub use units::choose_units;
pub use watch::{Watch, unwatched};
