#!/bin/bash
# What `serve --record`, `--record --hash` and `--record --sample 0.1` cost. Of four otherwise identical servers,
# one records, one records with hashes and one records a sample; they take turns under the same load of hits.
# Prints a Markdown table with the processor time per request of each, that of the recording thread alone, and
# the ratios of each round, and then the median ratios.
#
#   cargo build --release -p forebay && bench/record-cost.sh
#
# BENCH_REQUESTS (2M) per run; BENCH_ROUNDS (9) rounds.
set -euo pipefail
cd "$(dirname "$0")/.."
requests=${BENCH_REQUESTS:-2M} rounds=${BENCH_ROUNDS:-9}
forebay=${FOREBAY:-${CARGO_TARGET_DIR:-$PWD/target}/release/forebay}
work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-bench-XXXXXX")
cd "$work"
declare -A pid_of
trap 'kill "${pid_of[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT

servers=(plain recording hashing sampling)
for server in "${servers[@]}"; do
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
    [ "$server" != hashing ] || record+=(--hash)
    [ "$server" != sampling ] || record+=(--sample 0.1)
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

# thread_nanos SERVER: that of its recording thread alone, which the kernel counts exactly.
thread_nanos() {
    local comm
    for comm in "/proc/${pid_of[$1]}"/task/*/comm; do
        [ "$(<"$comm")" != forebay-record ] || awk '{ print $1 }' "${comm%comm}schedstat"
    done
}

for server in "${servers[@]}"; do
    for _ in $(seq 100); do [ -S "$server/nbd.sock" ] && break; sleep 0.05; done
    load "$server" 200k # brings the volume into memory
done
echo "| round | plain, CPU ns | recording, CPU ns | ratio | its thread, CPU ns | share | \
with hashes, CPU ns | ratio | its thread, CPU ns | sampling, CPU ns | ratio | its thread, CPU ns |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for round in $(seq "$rounds"); do
    # Who is first changes, so that whatever drifts helps nobody.
    for turn in 0 1 2 3; do
        server=${servers[$(((round + turn) % 4))]}
        before=$(nanos "$server") thread_before=$(thread_nanos "$server")
        load "$server" "$requests"
        sleep 0.3 # the recording thread takes up what is left
        echo "$(($(nanos "$server") - before))" >"$server/ns"
        echo "$(($(thread_nanos "$server") - thread_before))" >"$server/thread"
    done
    python3 - "$round" "$requests" "$(cat plain/ns)" "$(cat recording/ns)" "$(cat recording/thread)" \
        "$(cat hashing/ns)" "$(cat hashing/thread)" "$(cat sampling/ns)" "$(cat sampling/thread)" \
        <<'PYTHON' | tee -a rounds
import sys
number, requests, *nanos = sys.argv[1:]
unit = {"k": 10**3, "M": 10**6}
n = int(requests[:-1]) * unit[requests[-1]] if requests[-1] in unit else int(requests)
plain, recording, thread, hashing, hasher, sampling, sampler = (int(ns) / n for ns in nanos)
print(f"| {number} | {plain:.0f} | {recording:.0f} | {recording / plain:.3f} "
      f"| {thread:.0f} | {thread / plain:.3f} | {hashing:.0f} | {hashing / plain:.3f} | {hasher:.0f} "
      f"| {sampling:.0f} | {sampling / plain:.3f} | {sampler:.0f} |")
PYTHON
done
python3 - <<'PYTHON'
import statistics
rows = [line.split("|") for line in open("rounds")]
for what, column in [("recording", 4), ("its thread alone", 6), ("with hashes", 8),
                     ("a sample", 11)]:
    ratios = [float(row[column]) for row in rows]
    median = statistics.median(ratios)
    print(f"{what}: median ratio {median:.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")
PYTHON
