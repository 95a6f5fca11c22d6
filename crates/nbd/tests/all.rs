//! The tests of the protocol in one program: each file is a module, and the crates below are linked once.
//! In `Cargo.toml` are those that need a program of their own.

mod bad_clients;
mod conversations;
mod fuzz;
mod handshake;
mod interop;
mod support;
mod table;
mod transmission;
