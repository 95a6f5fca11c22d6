//! The tests of replays in one program: each file is a module, so that the dependencies are linked
//! only once.

mod block;
mod engine;
mod nbd;
mod support;
