#![no_main]
//! `cargo fuzz run config`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::config(bytes);
});
