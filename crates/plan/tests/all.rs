//! All tests of this crate in one program: each file is a module, so the dependencies are linked
//! only once.

mod examples;
mod partition;
mod partition_baselines;
mod two_tiers;
