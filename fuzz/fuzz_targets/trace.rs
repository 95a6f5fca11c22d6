#![no_main]
//! `cargo fuzz run trace`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::trace(bytes);
});
