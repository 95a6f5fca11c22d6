//! The tests of the log in one program: each file is a module, and the crates are linked only once.
//! `Cargo.toml` names the tests that need a program of their own.

mod activity;
mod common;
mod cuts;
mod damage;
mod directory;
mod format;
mod held;
mod running;
mod seal;
mod slots;
mod store_headers;
