//! The tests of the protocol in one program: each file is a module, and the crates below are linked
//! once. `Cargo.toml` lists the tests that need their own program.

mod bad_clients;
mod conversations;
mod fuzz;
mod handshake;
mod interop;
mod support;
mod table;
mod transmission;
