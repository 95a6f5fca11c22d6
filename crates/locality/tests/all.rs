//! The tests of reuse distances and curves, in one program: each file is a module, so that
//! dependencies are linked once. `Cargo.toml` lists the tests that need a program of their own.

mod clairvoyant;
mod contents;
mod lru;
mod real_traces;
mod scale;
