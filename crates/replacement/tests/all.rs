//! All tests of policies in one program: each file is a module, so the dependencies are linked only
//! once.

mod admission;
mod against_oracles;
mod common;
mod oracle;
mod popularity;
mod properties;
mod queues;
