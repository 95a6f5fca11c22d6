#![no_main]
//! `cargo fuzz run nbd_client`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::nbd_client(bytes);
});
