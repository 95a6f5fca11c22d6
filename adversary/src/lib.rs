//! The adversary: runs the cache, its log and the executor under power cuts, kills, faults and
//! completions in any order, and checks the guarantees of a disk.
//!
//! It drives the production code: [`forebay_cache::Cache`] with [`forebay_device::Executor`], on
//! devices in memory that lose unsynced data. Every choice comes from one seed, so a run can be
//! repeated, and a failing run can be shrunk.

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
