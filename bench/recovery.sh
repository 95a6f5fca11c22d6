#!/bin/bash
# How long a start after kill -9 takes. Fills a flash tier with random writes of 4 KiB, of which a
# third are FUA (batches are small then), kills the server, starts it again three times, each killed
# in turn, and prints a Markdown table.
#
#   cargo build --release -p forebay && BENCH_GIB=16 bench/recovery.sh
#
# BENCH_GIB (4) GiB of records and their headers, which need the same space in TMPDIR. BENCH_LAYOUT=slots
# selects the other layout. With BEFORE=PATH, another forebay (an older one) also fills its own tier and
# starts with it.
set -euo pipefail
cd "$(dirname "$0")/.."
gib=${BENCH_GIB:-4} layout=${BENCH_LAYOUT:-log}
forebay=${FOREBAY:-${CARGO_TARGET_DIR:-$PWD/target}/release/forebay}
work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-bench-XXXXXX")
cd "$work"
server=
trap '[ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

cat >forebay.toml <<TOML
[cache]
block_size = "4KiB"
dram = "64MiB"
write_policy = "write-back"
[flash]
path = "$work/flash.img"
size = "$((gib * 1280))MiB"
layout = "$layout"
[[volume]]
name = "vm1"
backing = "$work/disk.img"
size = "$((gib * 4))GiB"
[serve]
nbd = "unix:$work/nbd.sock"
control = "unix:$work/control.sock"
TOML

# start BINARY: waits for the ready line.
start() {
    : >ready
    "$1" -q serve --config forebay.toml >ready &
    server=$!
    until [ -s ready ]; do
        kill -0 "$server" || exit 1
        sleep 0.01
    done
}
crash() {
    kill -KILL "$server"
    wait "$server" 2>/dev/null || true
    server=
}
# field NAME: a number of ctl status.
field() { "$1" ctl status --control "unix:$work/control.sock" | grep -m1 "\"$2\"" | tr -dc '0-9'; }

measure() { # measure NAME BINARY
    rm -f flash.img disk.img
    start "$2"
    "$2" -q load "uniform:blocks=$((gib * 1024 * 1024)),write=1,fua=0.3" \
        --target "nbd+unix:///vm1?socket=$work/nbd.sock" --write --queue-depth 8 --jobs 2 \
        --requests $((gib * 240000)) >/dev/null
    local records batches
    records=$(field "$2" records) batches=$(field "$2" batches)
    crash
    for _ in 1 2 3; do
        # (What it wrote is on its way to the disk yet.)
        sync
        local began ended read ticks
        began=$(date +%s%N)
        start "$2"
        ended=$(date +%s%N)
        read=$(sed -n 's/^read_bytes: //p' "/proc/$server/io")
        ticks=$(awk '{print $14 + $15}' "/proc/$server/stat")
        crash
        echo "$1 $records $batches $(((ended - began) / 1000000)) $((read >> 20)) $((ticks * 10))"
    done
}
echo "| server | records | batches | start s | CPU s | read MiB |"
echo "| --- | ---: | ---: | ---: | ---: | ---: |"
{
    [ -z "${BEFORE:-}" ] || measure before "$BEFORE"
    measure forebay "$forebay"
} | awk '{ printf "| %s | %d | %d | %.2f | %.2f | %d |\n", $1, $2, $3, $4 / 1000, $6 / 1000, $5; fflush() }'
