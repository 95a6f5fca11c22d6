//! The tests of the engine in one program: each file is a module, and the crates below are linked once.
//! In `Cargo.toml` are those that need a program of their own.

mod changed;
mod common;
mod ends;
mod engine;
mod examples;
mod fail;
mod flash_layout;
mod grown;
mod header_syncs;
mod hits;
mod hung;
mod older_copies;
mod relations;
mod roles;
mod status;
mod twins;
mod used_elsewhere;
