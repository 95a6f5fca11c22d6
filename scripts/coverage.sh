#!/usr/bin/env bash
# Shows which lines of the Rust code its tests execute: a table by file, and the annotated code as
# HTML pages in target/coverage/html.
#
#   scripts/coverage.sh                 the whole workspace
#   scripts/coverage.sh -p forebay-nbd  one crate, or any other arguments of `cargo test`
#
# It takes as long as a first build plus the step `tests` of `make test`. Runs of the binary by
# tests/integration do not count.
set -euo pipefail
. "$(dirname "$0")/common.sh"

VERSION=0.9.1

if ! cargo llvm-cov --version >/dev/null 2>&1; then
    say "installing: cargo-llvm-cov $VERSION, for this user"
    cargo install --locked cargo-llvm-cov@"$VERSION"
fi
! has rustup || rustup component add llvm-tools
[ $# -gt 0 ] || set -- --workspace --exclude forebay-tidy
cargo llvm-cov clean --profraw-only
# Uses a target directory of its own: nothing can be shared with a build without counters.
cargo llvm-cov --no-report --lib --bins --tests "$@"
cargo llvm-cov report --html --output-dir "${CARGO_TARGET_DIR:-target}/coverage"
cargo llvm-cov report | tee "${CARGO_TARGET_DIR:-target}/coverage/table.txt"
say "pages: ${CARGO_TARGET_DIR:-target}/coverage/html/index.html"
