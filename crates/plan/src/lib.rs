//! Planning of cache tiers: a device catalogue, a cost model and a search for tier sizes.
//!
//! A plan is based on the workload ([`HitCounts`]: hits by cache size, measured by
//! [`ProfileBuilder`]), on the cost and latency of devices ([`Catalogue`], [`CostModel`]) and on a
//! budget. [`plan()`] covers all combinations of devices at once; [`exhaustive`] and [`cydonia`]
//! search one of them. Everything is arithmetic on constant-time lookups, so a whole catalogue over
//! a whole range of budgets takes seconds.
//!
//! [`partition`] divides an existing cache among several volumes. [`Consolidation`] says whether
//! workloads fit together in one cache.
//!
//! The model: tiers are exclusive, so each block is in one of them; blocks enter tier 1 and are
//! demoted tier by tier as they age; devices are accessed one after another. The formulas and their
//! derivation are in `docs/planning-reference.md`. Source: P. Bhandari, *Optimizing Block Storage
//! Servers Using Multi-tier Caches* (dissertation, Emory University, 2024), chapter 3, cited below
//! as Bhandari (2024).

mod best;
mod bounds;
mod breakeven;
mod budget;
mod catalogue;
mod choice;
mod consolidate;
mod cost;
mod counts;
mod device;
mod error;
mod evaluate;
mod growth;
mod hierarchy;
mod judged_by;
mod pareto;
pub mod partition;
mod plan;
mod profile;
mod purchase;
mod ratio;
mod search;
mod shortlist;
mod space;
mod study;
#[cfg(test)]
mod testing;
mod wear;

pub use best::Found;
pub use breakeven::BreakEven;
pub use budget::{Budget, BudgetError, budget_range, check_budget, full_usd};
pub use catalogue::{Catalogue, Combination};
pub use choice::Choice;
pub use consolidate::{Consolidation, Demand};
pub use cost::{CostModel, Metadata, MetadataError, Units};
pub use counts::HitCounts;
pub use device::{Device, DeviceKind};
pub use error::{BoxError, PlanError};
pub use evaluate::{Analytic, Evaluator};
pub use growth::{Growth, Way};
pub use hierarchy::{Evaluation, Hierarchy, WritePolicy};
pub use judged_by::{JudgedBy, UnknownJudge};
pub use pareto::{Front, ParetoPoint, fastest, pareto_front};
pub use plan::{Method, Plan, PlanOptions, plan, plan_with};
pub use profile::{Profile, ProfileBuilder, ProfileOptions};
pub use purchase::{Class, Purchase, Tier};
pub use ratio::{HitMiss, Tradeoff, hit_miss_curve};
pub use search::{CydoniaOptions, cydonia, exhaustive};
pub use shortlist::{Judged, Judgements, judge_shortlist};
pub use space::Space;
pub use study::{StudyPoint, StudySummary};
pub use wear::WearLimit;
