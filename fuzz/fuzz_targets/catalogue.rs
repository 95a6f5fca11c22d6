#![no_main]
//! `cargo fuzz run catalogue`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::catalogue(bytes);
});
