//! The example runs, and what it asserts holds.

#[path = "../examples/sans_io.rs"]
mod sans_io;

#[test]
fn the_cache_driven_by_hand_misses_fetches_and_hits() {
    sans_io::main();
}
