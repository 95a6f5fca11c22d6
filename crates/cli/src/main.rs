//! The `forebay` command line.
fn main() {}
