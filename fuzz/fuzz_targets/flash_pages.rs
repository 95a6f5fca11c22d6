#![no_main]
//! `cargo fuzz run flash_pages`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::flash_pages(bytes);
});
