#![no_main]
//! `cargo fuzz run nbd_transmission`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::nbd_transmission(bytes);
});
