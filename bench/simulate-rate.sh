#!/bin/bash
# How fast `forebay simulate` is: millions of requests per second of processor time, with DRAM
# alone and with two tiers in both layouts, by pacing and write policy. Prints a Markdown table of medians.
#
#   cargo build --release -p forebay && bench/simulate-rate.sh
#
# The trace: Zipf 1.0 over 2.2 million blocks of 4 KiB, once all reads and once with one write in
# four; DRAM holds 1 % of the blocks, flash 10 %.
#
# BENCH_REQUESTS (20M) per run; BENCH_ROUNDS (5) runs of each cell, taken in turns.
set -euo pipefail
cd "$(dirname "$0")/.."
requests=${BENCH_REQUESTS:-20M} rounds=${BENCH_ROUNDS:-5}
forebay=${FOREBAY:-${CARGO_TARGET_DIR:-$PWD/target}/release/forebay}
work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

for load in reads:0 mixed:0.25; do
    spec="zipf:blocks=2200k,theta=1,requests=$requests,write=${load#*:}"
    "$forebay" -q trace synth "$spec" -o "${load%:*}.parquet" >/dev/null
done
for policy in write-through write-back; do
    printf '[cache]\ndram = "86MiB"\nwrite_policy = "%s"\n' "$policy" >"dram-$policy.toml"
    for layout in log slots; do
        printf '[flash]\npath = "/flash"\nsize = "860MiB"\nshape = "FastSSD"\nlayout = "%s"\n' "$layout" |
            cat "dram-$policy.toml" - >"$layout-$policy.toml"
    done
done

cells=()
for tiers in dram log slots; do
    for load in reads/write-through mixed/write-through mixed/write-back; do
        for pacing in --untimed "--queue-depth 16" ""; do cells+=("$tiers/$load/$pacing"); done
    done
done
for _ in $(seq "$rounds"); do
    for cell in "${cells[@]}"; do
        IFS=/ read -r tiers load policy pacing <<<"$cell"
        # shellcheck disable=SC2086
        "$forebay" -q simulate "$load.parquet" --config "$tiers-$policy.toml" $pacing --json |
            python3 -c '
import json, sys
answer = json.load(sys.stdin)
print(sys.argv[1], answer["trace"]["requests"] / answer["cpu_s"] / 1e6, sep="\t")' "$cell" >>rates
    done
done
python3 - <<'PYTHON'
import collections, statistics

rates = collections.defaultdict(list)
for line in open("rates"):
    cell, rate = line.rsplit("\t", 1)
    rates[cell].append(float(rate))
print("| tiers | requests | write policy | pacing | M requests/s |")
print("| --- | --- | --- | --- | --- |")
for cell, values in rates.items():
    tiers, load, policy, pacing = cell.split("/")
    pacing = pacing.lstrip("-").replace("-", " ") or "the trace's timestamps"
    print(f"| {tiers} | {load} | {policy} | {pacing} | {statistics.median(values):.2f} |")
PYTHON
