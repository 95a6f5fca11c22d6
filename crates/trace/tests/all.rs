//! The tests of traces in one program: each file is a module, and the crates below are linked once.

mod common;
mod convert;
mod csv;
mod formats;
mod info;
mod merged;
mod parquet;
mod real_traces;
mod synth;
