#!/bin/bash
# Compares `forebay mrc` with libCacheSim's mrcProfiler on the same trace, exact and sampled at the same rates.
# The two take turns. Prints a Markdown table: the processor time and peak memory of each, and how far their
# curves are from the exact one.
#
#   cargo build --release -p forebay && bench/curves-peer.sh PATH_TO_mrcProfiler [TRACE]
#
# TRACE is an oracleGeneral file of objects of 4 KiB; without one, 20 million requests to 2 million
# blocks are generated. BENCH_ROUNDS (5) rounds; exact curves, which take a minute or more, only in the first.
set -euo pipefail
peer=$(realpath "${1:?the path of mrcProfiler, of libCacheSim}")
trace=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."
forebay=$(realpath "${FOREBAY:-${CARGO_TARGET_DIR:-$PWD/target}/release/forebay}")
work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT

if [ -z "$trace" ]; then
    trace=$work/zipf.oracleGeneral.bin
    "$forebay" -q trace synth 'zipf:blocks=3400k,theta=1,requests=20M,seed=1,write=0.3' \
        -o "$work/zipf.parquet"
    "$forebay" -q trace convert "$work/zipf.parquet" -o "$trace"
    rm "$work/zipf.parquet"
fi

python3 - "$forebay" "$peer" "$trace" "$work" "${BENCH_ROUNDS:-5}" <<'PYTHON'
import json
import os
import re
import statistics
import subprocess
import sys

forebay, peer, trace, work, rounds = sys.argv[1:]
MODES = {
    "exact": ("FIX_RATE,1,42", []),
    "rate 0.1": ("FIX_RATE,0.1,42", ["--sample", "0.1"]),
    "rate 0.01": ("FIX_RATE,0.01,42", ["--sample", "0.01"]),
    "8,192 blocks": ("FIX_SIZE,8192,42", ["--max-blocks", "8192"]),
}


def run(command):
    """What a command prints, its CPU seconds (user and system) and its peak memory in MiB."""
    with open(f"{work}/out", "w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"{' '.join(command)} failed: status {status}")
        out.seek(0)
        return out.read(), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def run_peer(mode):
    """Its curve by cache size in bytes, CPU seconds, MiB."""
    text, cpu, memory = run([peer, trace, "oracleGeneral", "--algo=LRU", "--profiler=SHARDS",
                             f"--profiler-params={MODES[mode][0]}", "--size=0.01,1,100"])
    rows = re.findall(r"^[\d.]+\t(\d+)B\t([\d.]+)\t", text, re.MULTILINE)
    return {int(size): float(ratio) for size, ratio in rows}, cpu, memory


def run_forebay(mode, sizes):
    """The same at these sizes, of which the blocks that fit count."""
    at = ",".join(str(size) for size in sizes)
    text, cpu, memory = run([forebay, "-q", "mrc", trace, "--json", "--at", at, *MODES[mode][1]])
    points = {p["size_blocks"]: p["miss_ratio"] for p in json.loads(text)["points"]}
    return {size: points[size // 4096] for size in sizes}, cpu, memory


def apart(one, other):
    """The mean difference of two curves at the sizes of the second."""
    return statistics.mean(abs(one[size] - ratio) for size, ratio in other.items())


measured = {mode: [] for mode in MODES}
for number in range(int(rounds)):
    for mode in MODES:
        if mode == "exact" and number > 0:
            continue
        # They take turns in being first; the peer begins, since it says the sizes.
        of_peer = run_peer(mode) if number % 2 == 0 else None
        if mode == "exact":
            sizes = list(of_peer[0])
        of_forebay = run_forebay(mode, sizes)
        of_peer = of_peer or run_peer(mode)
        if len(sizes) < 50 or list(of_peer[0]) != sizes:
            sys.exit(f"{mode}: not the sizes expected of the peer: {list(of_peer[0])}")
        measured[mode].append((of_forebay, of_peer))

print("| curve | forebay, CPU s | peer, CPU s | peer to forebay | lowest, highest | forebay, MiB "
      "| peer, MiB | forebay, error | peer, error |")
print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
exact = measured["exact"][0][1][0]
for mode, runs in measured.items():
    cpu = [statistics.median(run[who][1] for run in runs) for who in (0, 1)]
    memory = [statistics.median(run[who][2] for run in runs) for who in (0, 1)]
    error = [apart(runs[0][who][0], exact) for who in (0, 1)]
    ratios = [run[1][1] / run[0][1] for run in runs]
    print(f"| {mode} | {cpu[0]:.2f} | {cpu[1]:.2f} | {cpu[1] / cpu[0]:.1f} "
          f"| {min(ratios):.1f}, {max(ratios):.1f} | {memory[0]:.0f} | {memory[1]:.0f} "
          f"| {error[0]:.6f} | {error[1]:.6f} |")
print("\nErrors are means of absolute differences from the peer's exact miss ratios, at its sizes.")
PYTHON
