#!/bin/bash
# What the measuring commands cost on a trace of 20 million requests: elapsed seconds, CPU seconds and peak
# memory, as a Markdown table. With another binary in BEFORE, the two take turns.
#
#   cargo build --release -p forebay && [BEFORE=PATH] bench/measuring.sh
#
# BENCH_ROUNDS (3) rounds, BENCH_REQUESTS (20000000) requests; about 1.5 GB of files under TMPDIR.
set -euo pipefail
cd "$(dirname "$0")/.."
forebay=$(realpath "${FOREBAY:-${CARGO_TARGET_DIR:-$PWD/target}/release/forebay}")
work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT
requests=${BENCH_REQUESTS:-20000000}
half=$((requests / 2))

synth() { "$forebay" -q trace synth "zipf:$1" -o "$work/$2.parquet" >&2; }
synth "blocks=2.2M,theta=1,requests=$requests,seed=1" one
synth "blocks=1.1M,theta=1,requests=$half,seed=1,rate=1000" a
synth "blocks=1.1M,theta=1,requests=$half,seed=2,rate=1000" b
synth "blocks=1M,theta=0,requests=$half,seed=3,rate=1000" c
synth "blocks=1M,theta=0,requests=$half,seed=4,rate=1000" d
"$forebay" -q trace convert "$work/one.parquet" -o "$work/one.oracleGeneral.bin" >&2

python3 - "$work" "${BENCH_ROUNDS:-3}" "$forebay" ${BEFORE:+"$(realpath "$BEFORE")"} <<'PYTHON'
import os
import subprocess
import sys
import time

work, rounds, *binaries = sys.argv[1:]
COMMANDS = [
    "consolidate one.parquet --size 1GiB",
    "consolidate a.parquet b.parquet --size 1GiB",
    "consolidate c.parquet d.parquet --size 1GiB",
    "mrc one.parquet",
    "trace info one.parquet",
    "mrc one.parquet --sample 0.01",
    "mrc one.oracleGeneral.bin",
    "trace info one.oracleGeneral.bin",
    "mrc one.oracleGeneral.bin --sample 0.01",
]


def run(binary, command):
    """What it prints, seconds elapsed, seconds of CPU, MiB."""
    began = time.monotonic()
    with open(f"{work}/out", "w+") as out:
        words = [binary, "-q", *command.split(), "--json"]
        process = subprocess.Popen(words, cwd=work, stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"{' '.join(words)} failed: status {status}")
        out.seek(0)
        elapsed = time.monotonic() - began
        return out.read(), elapsed, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


print("| command | binary | elapsed s | CPU s | MiB |")
print("| --- | --- | --- | --- | --- |")
for command in COMMANDS:
    runs = {binary: [] for binary in binaries}
    for _ in range(int(rounds)):
        for binary, measured in runs.items():
            measured.append(run(binary, command))
    if len({answer for measured in runs.values() for answer, *_ in measured}) != 1:
        sys.exit(f"{command}: the answers differ")
    for binary, measured in runs.items():
        columns = zip(*(figures for _, *figures in measured), strict=True)
        cells = [f"{min(c):.2f} to {max(c):.2f}" for c in columns]
        name = "now" if binary == binaries[0] else "before"
        print(f"| `{command}` | {name} | {' | '.join(cells)} |", flush=True)
PYTHON
