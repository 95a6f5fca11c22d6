#!/usr/bin/env bash
# Every study in studies/, in full, into target/papers: a report each. What is there already is gone
# on with. STUDIES="NAME..." for some; ARGS for forebay study, such as "--workers 8".
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
cargo build --release --quiet -p forebay
python3 -m venv target/python
target/python/bin/pip install -q --disable-pip-version-check ./python
built="${CARGO_TARGET_DIR:-$PWD/target}/release"
export FOREBAY="${FOREBAY:-$built/forebay}"
for name in ${STUDIES:-$(cd studies && ls *.toml)}; do
    name="${name%.toml}"
    say "=== $name"
    # shellcheck disable=SC2086
    target/python/bin/forebay-study "studies/$name.toml" -o "target/papers/$name" ${ARGS:-}
done
