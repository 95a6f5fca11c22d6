#![no_main]
//! `cargo fuzz run backing_header`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::backing_header(bytes);
});
