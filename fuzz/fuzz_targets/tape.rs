#![no_main]
//! `cargo fuzz run tape`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::tape(bytes);
});
