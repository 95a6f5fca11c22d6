#![no_main]
//! `cargo fuzz run synth`

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    forebay_fuzz::targets::synth(bytes);
});
