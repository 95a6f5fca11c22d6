//! The example runs, and what it asserts holds.

#[path = "../examples/embed.rs"]
mod embed;

#[test]
fn the_embedded_engine_reads_back_what_was_written() {
    embed::main().unwrap();
}
