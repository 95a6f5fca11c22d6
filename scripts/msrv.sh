#!/usr/bin/env bash
# Checks that everything builds with the oldest supported Rust, `rust-version` in Cargo.toml. rustup
# installs that version if it is missing.
set -euo pipefail
. "$(dirname "$0")/common.sh"

version="$(sed -nE 's/^rust-version = "([0-9.]+)"$/\1/p' Cargo.toml)"
[ -n "$version" ] || { say "Cargo.toml has no rust-version"; exit 1; }
has rustup || { say "missing: rustup, needed to install Rust $version: see https://rustup.rs"; exit 1; }
rustup toolchain install "$version" --profile minimal --no-self-update
# Uses a target directory of its own, so that the usual build stays up to date.
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/msrv" \
    cargo "+$version" check --workspace --all-targets --locked
say "everything builds with Rust $version"
