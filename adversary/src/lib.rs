//! The adversary: the cache, its log and the executor under power cuts, kills, faults and
//! completions in any order, judged by what a disk promises.
//!
//! It drives the very code that serves: [`forebay_cache::Cache`] over
//! [`forebay_device::Executor`] over devices in memory that forget what was not synced. Every
//! choice comes from one seed, so a run can be repeated, and a failing one shrunk.

pub mod campaign;
pub mod canary;
pub mod catch;
pub mod coverage;
pub mod exhaustive;
mod header_syncs;
pub mod kind;
pub mod lookout;
pub mod manage;
pub mod model;
pub mod oracle;
pub mod run;
pub mod scenario;
pub mod sectors;
pub mod tape;
pub mod trials;
pub mod watch;
pub mod witness;
pub mod world;
