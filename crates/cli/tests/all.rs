//! The command's tests, in one executable: each file is a module, so the crates are linked only
//! once. `Cargo.toml` lists the tests that need an executable of their own.

mod catalogue;
mod command_line;
mod common;
mod consolidate;
mod documented_fields;
mod equality;
mod flash;
mod formulas;
mod mrc;
mod mrc_policies;
mod outputs;
mod partition;
mod plan;
mod plan_replay;
mod plan_study;
mod policies;
mod replay;
mod report;
mod sample;
mod serve;
mod simulate;
mod simulate_policies;
mod trace;
