//! The tests of replays in one program: each file is a module, and the crates below are linked once.

mod block;
mod engine;
mod nbd;
mod support;
