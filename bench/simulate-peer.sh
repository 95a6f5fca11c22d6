#!/bin/bash
# Compares the speed of `forebay simulate --untimed`, memory alone, with libCacheSim's cachesim: same trace,
# size and policy, in turns. Prints a Markdown table of medians: millions of requests per second of CPU
# time, and miss ratios, which show that both did the same work.
#
#   cargo build --release -p forebay && bench/simulate-peer.sh PATH_TO_cachesim [TRACE]
#
# TRACE is any trace; its requests are cut into blocks of 4 KiB. Without one, 20 million Zipf requests to 2
# million blocks are generated. The cache holds 10 % of the blocks that the trace touches.
#
# "with reading" is the CPU time of the whole process, start and end included. "loop" is the simulation alone:
# forebay's is that of the thread that simulates (`cpu_s`), which also hashes the trace; the peer's is
# the time of its process, minus that with its policy `nop`, which only reads the trace.
#
# BENCH_ROUNDS (7) rounds. BENCH_POLICIES ("lru sieve s3-fifo arc clock").
set -euo pipefail
peer=$(realpath "${1:?the path of cachesim, of libCacheSim}")
trace=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."
forebay=$(realpath "${FOREBAY:-${CARGO_TARGET_DIR:-$PWD/target}/release/forebay}")
work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT

if [ -z "$trace" ]; then
    trace=$work/zipf.parquet
    "$forebay" -q trace synth \
        "zipf:blocks=2M,theta=1,requests=${BENCH_REQUESTS:-20M},seed=1,write=0" -o "$trace" >/dev/null
fi
"$forebay" -q trace convert "$trace" -o "$work/blocks.oracleGeneral.bin" --to oracleGeneral:block=4096 >/dev/null

python3 - "$forebay" "$peer" "$work" "${BENCH_ROUNDS:-7}" \
    "${BENCH_POLICIES:-lru sieve s3-fifo arc clock}" <<'PYTHON'
import json
import os
import re
import statistics
import subprocess
import sys

forebay, peer, work, rounds, policies = sys.argv[1:]
trace = f"{work}/blocks.oracleGeneral.bin"
# The names that the peer has for policies.
PEER = {"lru": "LRU", "sieve": "Sieve", "s3-fifo": "S3-FIFO", "arc": "ARC", "clock": "Clock",
        "fifo": "FIFO", "lfu": "LFU", "2q": "TwoQ", "w-tinylfu": "WTinyLFU", "nop": "nop"}


def run(command):
    """What a command prints, and its CPU seconds (user and system)."""
    with open(f"{work}/out", "w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, cwd=work)
        _, status, used = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"{' '.join(command)} failed: status {status}")
        out.seek(0)
        return out.read(), used.ru_utime + used.ru_stime


def run_peer(policy):
    """CPU seconds, requests and miss ratio."""
    text, cpu = run([peer, trace, "oracleGeneral", PEER[policy], str(blocks * 4096),
                     "--warmup-sec=-1"])
    found = re.search(r"(\d+) req, miss ratio ([\d.]+)", text)
    return cpu, int(found[1]), float(found[2])


def run_forebay(policy):
    """The same, with the CPU seconds of the simulating thread."""
    with open(f"{work}/{policy}.toml", "w") as config:
        config.write(f'[cache]\ndram = "{blocks * 4}KiB"\n[replacement]\npolicy = "{policy}"\n')
    text, cpu = run([forebay, "-q", "simulate", trace, "--format", "oracleGeneral:unit=4096",
                     "--untimed", "--config", f"{work}/{policy}.toml", "--json"])
    answer = json.loads(text)
    accesses = answer["trace"]["requests"]
    return cpu, accesses, 1 - answer["hit_ratio"], answer["cpu_s"]


info = json.loads(run([forebay, "-q", "trace", "info", trace, "--format", "oracleGeneral:unit=4096",
                       "--json"])[0])
blocks = info["footprint_blocks"]["all"] // 10
measured = {policy: [] for policy in policies.split()}
for number in range(int(rounds)):
    for policy, runs in measured.items():
        # They take turns in being first.
        first = run_peer(policy) if number % 2 == 0 else None
        ours = run_forebay(policy)
        runs.append((ours, first or run_peer(policy), run_peer("nop")))

requests = next(iter(measured.values()))[0][0][1]
print(f"{requests} requests, {blocks} blocks in the cache\n")
print("| policy | with reading: forebay, M/s | peer, M/s | ratio | loop: forebay, M/s | peer, M/s | ratio "
      "| lowest, highest | miss ratio, forebay | peer |")
print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
for policy, runs in measured.items():
    whole = [[r[who][0] for r in runs] for who in (0, 1)]
    loops = [[r[0][3] for r in runs], [r[1][0] - r[2][0] for r in runs]]
    row = [policy]
    for ours, theirs in (whole, loops):
        pairs = [b / a for a, b in zip(ours, theirs)]
        rates = [requests / statistics.median(x) / 1e6 for x in (ours, theirs)]
        row += [f"{rates[0]:.2f}", f"{rates[1]:.2f}", f"{statistics.median(pairs):.2f}"]
    row += [f"{min(pairs):.2f}, {max(pairs):.2f}", f"{runs[0][0][2]:.4f}", f"{runs[0][1][2]:.4f}"]
    print("| " + " | ".join(row) + " |", flush=True)
PYTHON
