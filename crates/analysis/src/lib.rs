//! Questions about block workloads, and their answers.
//!
//! There is one module for each question: [`plan`] (which tiers to buy), [`growth`](plan::growth)
//! (grow tier 1 or add tier 2), [`study`](plan::study) (which shape of cache wins), [`partition`]
//! (how to divide a cache), [`consolidate`] (do workloads fit together), [`curve`] (the miss ratio
//! of a cache of each size), [`miniature`] (the same for any configuration, by simulation),
//! [`simulation`] (what a configured cache does with a workload) and [`sample`] (a smaller trace
//! that resembles the whole). A question is a struct of parameters, its answer a struct of data:
//! nothing here reads a command line, prints, or handles signals. The caller passes an
//! [`Observer`], which sees the progress and can stop the work; errors are [`AnalysisError`]s.
//!
//! The mathematics is in `forebay_plan` and `forebay_locality`, the simulator in
//! `forebay_simulate`. This crate reads the traces, calls them, and combines their results. The
//! `forebay` command prints these answers.

mod columns;
pub mod consolidate;
pub mod curve;
mod error;
mod kept;
pub mod miniature;
mod note;
mod numbering;
mod observer;
pub mod parallel;
pub mod partition;
pub mod plan;
mod read_ahead;
pub mod sample;
pub mod simulation;
mod traces;

pub use columns::{Column, Columns, Values};
pub use error::AnalysisError;
pub use note::Note;
pub use observer::{Interrupted, Meter, Observer, Unit, Unobserved};
pub use traces::{Described, Traces};
