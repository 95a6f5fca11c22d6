#!/usr/bin/env bash
# The main use of Forebay from start to end: runs a real application on a cache in front of a slow
# disk, records its requests, measures them, plans tiers for them, and tries out the plan.
#
#   scripts/demo.sh [DIRECTORY]              results go to DIRECTORY, forebay-demo by default
#   TRACE=file scripts/demo.sh [DIRECTORY]   the same for your own trace, without the application
#
# Results and a recording of an earlier run in DIRECTORY are replaced; other files there are kept.
# FOREBAY=path uses that binary instead of building one. The devices are files in a temporary
# directory; the slow disk has the latencies of a hard disk in the catalogue of the planner.
set -euo pipefail
invoked_from="$PWD"
. "$(dirname "$0")/common.sh"

BACKING=SlowHDD
POLICY=write-back
BUDGET=5%
VOLUME_SIZE=$((2 << 30))
# The replays take real time, so they use only this many requests of a long trace.
REPLAYED_MAX=60000
QUEUE_DEPTH=8
# The results in $out.
RESULTS="serve.toml live.json info.json mrc.json mrc.html plan.json plan.html one-tier.toml one-tier.json
    one-tier-simulated.json two-tiers.toml two-tiers.json two-tiers-simulated.json report.html"

fail() {
    say "demo: $*" >&2
    exit 1
}

case "${1:-forebay-demo}" in
    /*) out="$1" ;;
    *) out="$invoked_from/${1:-forebay-demo}" ;;
esac
trace="${TRACE:-}"
if [ -n "$trace" ]; then
    trace="$(cd "$invoked_from" && realpath -e -- "$trace")" || fail "the trace does not exist"
fi
mkdir -p "$out"
scratch="$(mktemp -d "${TMPDIR:-/tmp}/forebay-demo.XXXXXX")"

. scripts/demo/server.sh
. scripts/demo/application.sh

# On exit: nothing stays mounted or running, and no files but the results are left.
cleanup() {
    local status=$?
    trap - EXIT INT TERM
    set +e
    detach_disk 2>/dev/null
    if [ -n "$SERVER" ]; then
        kill -TERM "$SERVER" 2>/dev/null
        wait "$SERVER" 2>/dev/null
    fi
    rm -rf "$scratch"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

title() {
    say ""
    say "$*"
}

# Finds or builds the binary, and checks for Python.
set_up() {
    [ -z "$(missing python3)" ] || fail "python3 is missing; scripts/setup.sh installs it on Debian"
    if [ -n "${FOREBAY:-}" ]; then
        case "$FOREBAY" in /*) ;; *) FOREBAY="$invoked_from/$FOREBAY" ;; esac
        [ -x "$FOREBAY" ] || fail "$FOREBAY is not a program"
        return
    fi
    title "Setting up, and building the release binary (minutes, the first time)"
    scripts/setup.sh | sed 's/^/    /'
    cargo build --release --quiet -p forebay
    FOREBAY="${CARGO_TARGET_DIR:-$PWD/target}/release/forebay"
}

# Removes the results of an earlier run, and nothing else: the directory may contain files of the
# user.
remove_results() {
    local file
    for file in $RESULTS; do rm -f "$out/$file"; done
}

# Records a trace of an application on a cache in front of a slow disk.
record() {
    local why
    why="$(why_no_ext4)"
    trace="$out/demo.parquet"
    # The server does not overwrite a recording, complete or not: it would record to another file.
    rm -f "$trace" "$trace.partial" "$trace.partial.index"
    if [ -z "$why" ]; then
        title "1. A shop on SQLite, on ext4, through nbdfuse and a loop device, on Forebay"
        say "    16 MiB of memory and 64 MiB of flash in front of a $BACKING; filling the database"
        prepare_sqlite
        record_sqlite "$trace"
        check_sqlite
    elif [ -z "$(missing fio)" ]; then
        title "1. fio over NBD, on Forebay (not SQLite on ext4: $why)"
        record_fio "$trace"
    else
        fail "neither SQLite on ext4 ($why) nor fio over NBD (fio is missing) can run here. Set TRACE=file"
    fi
    [ -s "$trace" ] || fail "the server did not record to $trace"
    cp "$scratch/serve.toml" "$out/serve.toml"
    rm -f "$scratch"/*.img
    "$FOREBAY" -q trace info "$trace" | sed -n '1,8s/^/    /p'
}

measure() {
    title "2. How much cache can this workload use?"
    "$FOREBAY" -q trace info "$trace" --json -o "$out/info.json"
    "$FOREBAY" -q mrc "$trace" --json -o "$out/mrc.json" --html "$out/mrc.html"
    "$FOREBAY" -q mrc "$trace" | sed -n '/^cache size/,$s/^/    /p'
}

plan() {
    title "3. Which tiers should be bought for it, in front of a $BACKING?"
    # The application runs as fast as it can, and the plan assumes that it does so all day, which
    # would wear out any flash. The demo is about latency, so there is no limit on wear.
    "$FOREBAY" -q plan "$trace" --budget "$BUDGET" --sweep 12 --backing "$BACKING" --policy "$POLICY" \
        --wear-max none \
        --json -o "$out/plan.json" --html "$out/plan.html"
    eval "$(python3 scripts/demo/choice.py "$out/plan.json")"
    say "    for a budget of $BUDGET:"
    say "    two tiers    $TWO, $TWO_LATENCY_US µs on average"
    say "    one tier     $ONE, $ONE_LATENCY_US µs"
    say "    These are service times of one request at a time. Under load, requests also wait: see step 4."
}

# tiers NAME DRAM [FLASH]: writes a configuration for the replay, with an empty cache.
tiers() {
    local file="$scratch/$1.toml"
    {
        say '[cache]'
        say "dram = $2"
        say "write_policy = \"$POLICY\""
        if [ -n "${3:-}" ]; then
            say '[flash]'
            say "path = \"$scratch/flash.img\""
            say "size = $3"
            say "shape = \"$TWO_FLASH_DEVICE\""
        fi
        python3 scripts/demo/volumes.py "$out/info.json" "$scratch" "$BACKING"
    } >"$file"
    cp "$file" "$out/$1.toml"
}

# try_out NAME: simulates the configuration, then replays on real files.
try_out() {
    "$FOREBAY" -q simulate "$trace" --limit "$REPLAYED_MAX" --config "$scratch/$1.toml" \
        --queue-depth "$QUEUE_DEPTH" --json -o "$out/$1-simulated.json"
    rm -f "$scratch"/*.img
    "$FOREBAY" -q replay "$trace" --limit "$REPLAYED_MAX" --config "$scratch/$1.toml" \
        --as-fast-as-possible --queue-depth "$QUEUE_DEPTH" --write --json -o "$out/$1.json"
    rm -f "$scratch"/*.img
    python3 scripts/demo/summary.py "$out/$1-simulated.json" "$out/$1.json"
}

replay() {
    title "4. Is that true? The trace, simulated, then replayed on files slowed to the speed of those devices"
    tiers one-tier "$ONE_DRAM"
    tiers two-tiers "$TWO_DRAM" "$TWO_FLASH"
    say "    one tier:"
    try_out one-tier
    say "    two tiers:"
    try_out two-tiers
}

report() {
    local documents=("curve=$out/mrc.json" "plan=$out/plan.json")
    [ ! -e "$out/live.json" ] || documents+=("the application=$out/live.json")
    documents+=("one tier=$out/one-tier.json" "two tiers=$out/two-tiers.json")
    documents+=("one tier, simulated=$out/one-tier-simulated.json")
    documents+=("two tiers, simulated=$out/two-tiers-simulated.json")
    "$FOREBAY" -q report "${documents[@]}" --title "Forebay: $(basename "$trace")" -o "$out/report.html"
}

set_up
started=$SECONDS
remove_results
if [ -n "$trace" ]; then
    title "1. The trace $trace"
    "$FOREBAY" -q trace info "$trace" | sed -n '1,8s/^/    /p'
else
    record
fi
measure
plan
replay
report
title "5. The gain"
python3 scripts/demo/gain.py "$out"/{one-tier,two-tiers,one-tier-simulated,two-tiers-simulated}.json
title "Done in $((SECONDS - started)) s. The results are in $out; start with"
say "    $out/report.html"
