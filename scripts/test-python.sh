#!/usr/bin/env bash
# Tests the Python package with the binary of the Rust tests: docstrings, tests and the tour of the
# documentation, in a virtual environment of their own.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
cargo build -p forebay
python3 -m venv target/python
target/python/bin/pip install -q --disable-pip-version-check ./python[test]
FOREBAY=$(realpath "$target/debug/forebay") target/python/bin/python -m pytest -q python
# The command is installed where the package is, and the binary finds it on the PATH.
for command in representatives study fleet advise; do
    PATH="$PWD/target/python/bin:$PATH" "$target/debug/forebay" "$command" --help >/dev/null
done
