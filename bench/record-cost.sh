#!/bin/bash
# What `serve --record` costs: two servers alike, one of which records, under the same load of
# hits, in turns; the processor time of each for a request, and the ratio of each pair. Prints a
# Markdown table and the median ratio.
#
#   cargo build --release -p forebay && bench/record-cost.sh
#
# BENCH_REQUESTS (2M) per run; BENCH_ROUNDS (9) pairs.
set -euo pipefail
cd "$(dirname "$0")/.."
requests=${BENCH_REQUESTS:-2M} rounds=${BENCH_ROUNDS:-9}
forebay=${FOREBAY:-${CARGO_TARGET_DIR:-$PWD/target}/release/forebay}
work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-bench-XXXXXX")
cd "$work"
declare -A pid_of
trap 'kill "${pid_of[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT

for server in plain recording; do
    mkdir "$server"
    cat >"$server.toml" <<TOML
[cache]
dram = "128MiB"
write_policy = "write-back"
[[volume]]
name = "ram"
backing = "$work/$server/disk.img"
size = "64MiB"
[serve]
nbd = "unix:$work/$server/nbd.sock"
control = "unix:$work/$server/control.sock"
TOML
    record=()
    [ "$server" = plain ] || record=(--record "$work/$server/trace.parquet")
    "$forebay" -q serve --config "$server.toml" "${record[@]}" >"$server/ready" &
    pid_of[$server]=$!
done

# load SERVER REQUESTS: one run of reads.
load() {
    "$forebay" -q load uniform:blocks=16Ki --requests "$2" --queue-depth 16 --jobs 4 \
        --target "nbd+unix:///ram?socket=$work/$1/nbd.sock" >/dev/null
}

# nanos SERVER: CPU time of its process so far, ended threads included.
hertz=$(getconf CLK_TCK)
nanos() {
    awk -v hz="$hertz" '{ sub(/^.*\) /, ""); printf "%.0f\n", ($12 + $13) / hz * 1e9 }' \
        "/proc/${pid_of[$1]}/stat"
}

for server in plain recording; do
    for _ in $(seq 100); do [ -S "$server/nbd.sock" ] && break; sleep 0.05; done
    load "$server" 200k # brings the volume into memory
done
echo "| pair | plain, CPU ns | recording, CPU ns | ratio |"
echo "| --- | --- | --- | --- |"
for pair in $(seq "$rounds"); do
    # Who is first changes, so that whatever drifts helps neither.
    order=(plain recording)
    [ $((pair % 2)) = 1 ] || order=(recording plain)
    for server in "${order[@]}"; do
        before=$(nanos "$server")
        load "$server" "$requests"
        sleep 0.3 # the recording thread takes up what is left
        echo "$(($(nanos "$server") - before))" >"$server/ns"
    done
    python3 - "$pair" "$(cat plain/ns)" "$(cat recording/ns)" "$requests" <<'PYTHON' | tee -a pairs
import sys
pair, plain, recording, requests = sys.argv[1:]
unit = {"k": 10**3, "M": 10**6}
n = int(requests[:-1]) * unit[requests[-1]] if requests[-1] in unit else int(requests)
plain, recording = int(plain) / n, int(recording) / n
print(f"| {pair} | {plain:.0f} | {recording:.0f} | {recording / plain:.3f} |")
PYTHON
done
python3 - <<'PYTHON'
import statistics
ratios = [float(line.split("|")[4]) for line in open("pairs")]
print(f"median ratio {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")
PYTHON
