#!/usr/bin/env bash
# Tests the Python package as users get it, a wheel with the command in it: docstrings, tests and the
# tour of the documentation, in a virtual environment of their own. The command is that of the Rust tests.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
cargo build --workspace --bin forebay
rm -rf target/wheel
FOREBAY="$target/debug/forebay" OUT=target/wheel scripts/package.sh wheel
wheel="$(realpath target/wheel/*.whl)"
python3 -m venv target/python
target/python/bin/pip install -q --disable-pip-version-check "${wheel}[test]"
# (Also if this version was installed before.)
target/python/bin/pip install -q --disable-pip-version-check --force-reinstall --no-deps "$wheel"
# Nothing else may be found in its place.
unset FOREBAY
target/python/bin/python -m pytest -q python
[ "$(target/python/bin/forebay --version)" = "$("$target/debug/forebay" --version)" ]
commands="representatives study fleet advise"
for command in $commands; do
    PATH="$PWD/target/python/bin:$PATH" forebay "$command" --help >/dev/null
done
# Their examples, which the tests in Rust leave out where the package is missing.
examples="$(PATH="$PWD/target/python/bin:$PATH" EXAMPLES="$commands" cargo test --workspace \
    --test all the_example_of_every_command -- --nocapture)"
grep -q ' 1 passed' <<<"$examples" && ! grep 'left to' <<<"$examples"
