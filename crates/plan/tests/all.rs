//! The tests of the plan in one program: each file is a module, and the crates below are linked once.

mod examples;
mod partition;
mod partition_baselines;
mod two_tiers;
