#![no_main]
//! `cargo fuzz run flash_recovery`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::flash_recovery(bytes);
});
