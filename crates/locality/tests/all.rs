//! The tests of reuse distances and curves in one program: each file is a module, and the crates below are linked once.
//! In `Cargo.toml` are those that need a program of their own.

mod clairvoyant;
mod contents;
mod lru;
mod real_traces;
mod scale;
