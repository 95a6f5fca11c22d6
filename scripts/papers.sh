#!/usr/bin/env bash
# Runs every study in studies/ in full, with a report of each in target/papers, and compares the
# tables of docs/papers.md with the results. Interrupted studies resume. STUDIES="NAME..." runs only
# some, without the comparison; ARGS are further arguments of forebay study, such as "--workers 8".
# FOREBAY=path uses that binary instead of building one.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/common.sh
[ -n "${FOREBAY:-}" ] || cargo build --release --quiet -p forebay
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
if [ -z "${STUDIES:-}" ]; then
    target/python/bin/python bench/papers.py --check
fi
