#![no_main]
//! `cargo fuzz run units`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::units(bytes);
});
