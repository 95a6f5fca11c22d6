#![no_main]
//! `cargo fuzz run nbd_uri`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::nbd_uri(bytes);
});
