#!/bin/bash
# How fast `forebay simulate` is with each replacement policy of DRAM: millions of requests per second of
# processor time, untimed, without a flash tier. Prints a Markdown table of medians.
#
#   cargo build --release -p forebay && bench/policies-rate.sh
#
# The trace: Zipf 1.0 over 2.2 million blocks of 4 KiB, one write in four; DRAM holds 1 % and 10 % of the blocks.
#
# BENCH_REQUESTS (20M) per run; BENCH_ROUNDS (3) runs of each policy, taken in turns.
set -euo pipefail
cd "$(dirname "$0")/.."
requests=${BENCH_REQUESTS:-20M} rounds=${BENCH_ROUNDS:-3}
forebay=${FOREBAY:-${CARGO_TARGET_DIR:-$PWD/target}/release/forebay}
work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

"$forebay" -q trace synth "zipf:blocks=2200k,theta=1,requests=$requests,write=0.25" -o trace.parquet >/dev/null
policies=$("$forebay" policies --json | python3 -c '
import json, sys
print(*[p["name"] for p in json.load(sys.stdin)["policies"] if "dram" in p["tiers"]])')
for _ in $(seq "$rounds"); do
    for policy in $policies; do
        for dram in 86MiB 860MiB; do
            printf '[cache]\ndram = "%s"\n[replacement]\npolicy = "%s"\n' "$dram" "$policy" >forebay.toml
            "$forebay" -q simulate trace.parquet --config forebay.toml --untimed --json |
                python3 -c '
import json, sys
answer = json.load(sys.stdin)
print(*sys.argv[1:], answer["trace"]["requests"] / answer["cpu_s"] / 1e6, sep="\t")' "$policy" "$dram" >>rates
        done
    done
done
python3 - <<'PYTHON'
import collections, statistics

rates = collections.defaultdict(list)
for line in open("rates"):
    policy, dram, rate = line.split("\t")
    rates[policy, dram].append(float(rate))
print("| policy | 1 % of the blocks | 10 % |")
print("| --- | --- | --- |")
for policy in dict.fromkeys(policy for policy, _ in rates):
    cells = [statistics.median(rates[policy, dram]) for dram in ("86MiB", "860MiB")]
    print(f"| `{policy}` | {cells[0]:.2f} | {cells[1]:.2f} |")
PYTHON
