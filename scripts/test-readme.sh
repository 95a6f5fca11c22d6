#!/usr/bin/env bash
# Runs the commands of the README's tour in a shell, in an empty directory.
# FOREBAY=path of the binary; status 77: skipped.
set -euo pipefail
. "$(dirname "$0")/common.sh"

lacking="$(missing fio nbdinfo)"
if [ -n "$lacking" ]; then
    say "skipped: $lacking is missing"
    exit 77
fi
scratch="$(mktemp -d "${TMPDIR:-/tmp}/forebay-readme.XXXXXX")"
# If the tour fails half-way, its server is still running.
cleanup() {
    (cd "$scratch" && bin/forebay ctl stop --config forebay.toml >/dev/null 2>&1) || true
    rm -rf "$scratch"
}
trap cleanup EXIT
mkdir "$scratch/bin"
ln -s "$(realpath "${FOREBAY:-${CARGO_TARGET_DIR:-target}/debug/forebay}")" "$scratch/bin/forebay"
ln -s "$PWD/docs" "$scratch/docs"
sed -n '/^## Five minutes/,/^## What is promised/s/^    //p' README.md >"$scratch/tour.sh"
[ -s "$scratch/tour.sh" ] || { say "the README has no commands"; exit 1; }
cd "$scratch"
PATH="$scratch/bin:$PATH" bash -eux tour.sh
for result in mrc.html plan.html mine.parquet; do
    [ -s "$result" ] || { say "the tour did not create $result"; exit 1; }
done
