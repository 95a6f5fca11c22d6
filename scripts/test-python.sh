#!/usr/bin/env bash
# Tests the Python package as users get it, a wheel that includes the command: docstrings, tests and
# the tour of the documentation, in a virtual environment of their own. The command is the one that
# the Rust tests use.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
cargo build --workspace --bin forebay
rm -rf target/wheel
FOREBAY="$target/debug/forebay" OUT=target/wheel scripts/package.sh wheel
wheel="$(realpath target/wheel/*.whl)"
python3 -m venv target/python
target/python/bin/pip install -q --disable-pip-version-check "${wheel}[test]"
# (Even if this version was installed before.)
target/python/bin/pip install -q --disable-pip-version-check --force-reinstall --no-deps "$wheel"
# Only the command in the wheel may be found.
unset FOREBAY
target/python/bin/python -m pytest -q python
[ "$(target/python/bin/forebay --version)" = "$("$target/debug/forebay" --version)" ]
commands="representatives study fleet advise"
for command in $commands; do
    PATH="$PWD/target/python/bin:$PATH" forebay "$command" --help >/dev/null
done
# Runs the examples of these commands, which the Rust tests leave out where the package is missing.
examples="$(PATH="$PWD/target/python/bin:$PATH" EXAMPLES="$commands" cargo test --workspace \
    --test all the_example_of_every_command -- --nocapture)"
grep -q ' 1 passed' <<<"$examples" && ! grep 'left to' <<<"$examples"
