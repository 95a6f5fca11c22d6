//! Questions about block workloads, and their answers.
//!
//! One module for each question: [`plan`] (which tiers to buy), [`growth`](plan::growth) (grow
//! tier 1 or add tier 2), [`study`](plan::study) (which shape of cache wins),
//! [`partition`] (how a cache is divided), [`consolidate`] (do workloads fit together),
//! [`curve`] (what a cache of each size misses), [`miniature`] (the same of any configuration, by
//! simulation), [`simulation`] (what a configured cache does with it), [`sample`] (a smaller trace
//! like the whole). A question is a struct of what is
//! asked, its answer a struct of data: nothing here reads a command line, prints, or handles
//! signals. The caller passes an [`Observer`], which sees the progress and may stop the work; errors
//! are [`AnalysisError`]s.
//!
//! The mathematics stands in `forebay_plan` and `forebay_locality`, the simulator in
//! `forebay_simulate`; here is what reads the traces, calls those, and puts their results
//! together. The `forebay` command prints these answers.

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
pub mod sample;
pub mod simulation;
mod traces;

pub use columns::{Column, Columns, Values};
pub use error::AnalysisError;
pub use note::Note;
pub use observer::{Interrupted, Meter, Observer, Unit, Unobserved};
pub use traces::{Described, Traces};
