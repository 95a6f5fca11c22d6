//! A fuzz target for every parser: of traces, network data, device contents and user input. Each
//! target takes any bytes, checks the guarantees of its parser, and panics if one does not hold.
//!
//! `corpus/TARGET/` contains accepted inputs, from which a fuzzer starts; `make corpora`
//! regenerates them. The tests (`tests/corpora.rs`) run these inputs and mutations of them through
//! their targets, with any compiler. `cargo fuzz run TARGET --features libfuzzer` searches further;
//! it requires a nightly compiler.

mod flash_device;
pub mod seeds;
pub mod targets;

use std::path::PathBuf;

/// A parser under test, as a function of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target, its corpus and its binary.
    pub name: &'static str,
    /// Parses the bytes and checks the result. Returns whether the parser accepted them.
    pub run: fn(&[u8]) -> bool,
    /// Accepted inputs, each with a name.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
}

impl Target {
    /// Directory of the target's corpus.
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
