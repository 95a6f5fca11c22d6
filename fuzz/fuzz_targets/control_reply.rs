#![no_main]
//! `cargo fuzz run control_reply`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::control_reply(bytes);
});
