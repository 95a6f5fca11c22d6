//! The tests of policies in one program: each file is a module, and the crates below are linked once.

mod admission;
mod against_oracles;
mod common;
mod oracle;
mod popularity;
mod properties;
mod queues;
