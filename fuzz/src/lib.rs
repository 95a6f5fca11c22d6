//! A fuzz target for every parser: of traces, of the network, of what lies on devices, of what users
//! write. Each takes any bytes, checks what the parser promises, and panics if it does not hold.
//!
//! `corpus/TARGET/` has inputs that are accepted, from which a fuzzer starts; `make corpora` writes
//! them again. They run through their targets in the tests (`tests/corpora.rs`), as they are and
//! bent, on any compiler. `cargo fuzz run TARGET --features libfuzzer`, with a nightly one, looks further.

mod flash_device;
pub mod seeds;
pub mod targets;

use std::path::PathBuf;

/// A parser, as a function of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, that of its corpus and of its binary.
    pub name: &'static str,
    /// Parses, and checks. Returns whether the bytes were accepted.
    pub run: fn(&[u8]) -> bool,
    /// Inputs that are accepted, with a name for each.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
}

impl Target {
    /// Where its corpus is.
    pub fn corpus(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name)
    }
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        /// Every target.
        pub const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            run: targets::$name,
            seeds: seeds::$name,
        }),*];
    };
}

targets![
    backing_header,
    catalogue,
    config,
    control_reply,
    control_request,
    flash_pages,
    flash_recovery,
    nbd_client,
    nbd_server,
    nbd_transmission,
    nbd_uri,
    synth,
    tape,
    trace,
    units,
];
