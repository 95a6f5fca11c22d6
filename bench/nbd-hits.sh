#!/bin/bash
# Hits over NBD on a unix socket: forebay compared with a plain memory server (bench/ramserver) and
# nbdkit's memory plugin, all in one run, with ratios to both. Prints a Markdown table.
#
#   cargo build --release -p forebay -p forebay-ramserver && bench/nbd-hits.sh
#
# "CPU µs" is what the server's process spends on a request, which other load on the machine
# disturbs less than it does IOPS.
#
# With BEFORE=PATH, another forebay (an older one) takes part as "before".
#
# The servers take turns. BENCH_SECONDS (3) per cell; BENCH_ROUNDS (5) rounds, of which
# the table shows medians. BENCH_LOADS lists the loads, separated by commas: fio's mode, the
# size of a request, the queue depth and the number of connections ("randread 4k 16 4").
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${BENCH_SECONDS:-3} rounds=${BENCH_ROUNDS:-5}
usual="randread 4k 1 1,randread 4k 16 1,randread 4k 16 4,randread 4k 64 4,randread 64k 16 1"
usual+=",randwrite 4k 16 1,randwrite 4k 16 4"
IFS=, read -ra loads <<<"${BENCH_LOADS:-$usual}"
forebay=${FOREBAY:-${CARGO_TARGET_DIR:-$PWD/target}/release/forebay}
ramserver=${RAMSERVER:-${CARGO_TARGET_DIR:-$PWD/target}/release/ramserver}
work=$(mktemp -d "${TMPDIR:-/tmp}/forebay-bench-XXXXXX")
cd "$work"
pids=()
declare -A pid_of
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT

servers=()
# serve NAME FOREBAY: a server of its own on NAME.sock.
serve() {
    mkdir "$1"
    cat >"$1.toml" <<TOML
[cache]
dram = "128MiB"
write_policy = "write-back"
[[volume]]
name = "ram"
backing = "$work/$1/disk.img"
size = "64MiB"
[serve]
nbd = "unix:$work/$1.sock"
control = "unix:$work/$1/control.sock"
TOML
    "$2" -q serve --config "$1.toml" >"$1/ready" &
    pids+=($!) pid_of[$1]=$!
    servers+=("$1")
}
serve forebay "$forebay"
[ -z "${BEFORE:-}" ] || serve before "$BEFORE"
if [ -x "$ramserver" ]; then
    "$ramserver" "$work/ramserver.sock" $((64 << 20)) &
    pids+=($!) pid_of[ramserver]=$!
    servers+=(ramserver)
fi
if command -v nbdkit >/dev/null; then
    nbdkit -f -U "$work/nbdkit.sock" memory 64M &
    pids+=($!) pid_of[nbdkit]=$!
    servers+=(nbdkit)
fi
for server in "${servers[@]}"; do
    for _ in $(seq 100); do [ -S "$server.sock" ] && break; sleep 0.05; done
    # Fills the memory, and the cache.
    fio --name=fill --ioengine=nbd --uri="nbd+unix:///?socket=$work/$server.sock" --rw=write \
        --bs=1M --iodepth=4 --size=64M >/dev/null
done

# ticks SERVER: CPU time of its process so far, in clock ticks.
ticks() { awk '{ sub(/^.*\) /, ""); print $12 + $13 }' "/proc/${pid_of[$1]}/stat"; }

# cell SERVER READS BLOCK DEPTH JOBS: IOPS, p50, p99, server's CPU for a request; all in µs.
cell() {
    local before
    before=$(ticks "$1")
    fio --name=x --ioengine=nbd --uri="nbd+unix:///?socket=$work/$1.sock" --rw="$2" --bs="$3" \
        --iodepth="$4" --numjobs="$5" --size=64M --time_based --runtime="$seconds" \
        --norandommap --randrepeat=0 --group_reporting --output-format=json \
        >fio.json 2>/dev/null
    python3 - "$(($(ticks "$1") - before))" "$(getconf CLK_TCK)" <<'PYTHON'
import json, sys
text = open("fio.json").read()
job = json.loads(text[text.index("{"):])["jobs"][0]
side = job["read"] if job["read"]["total_ios"] else job["write"]
p = side["clat_ns"]["percentile"]
cpu_us = int(sys.argv[1]) / int(sys.argv[2]) * 1e6 / max(1, side["total_ios"])
latency = [round(p[key] / 1e3, 1) for key in ("50.000000", "99.000000")]
print(round(side["iops"]), *latency, round(cpu_us, 1))
PYTHON
}

for _ in $(seq "$rounds"); do
    for load in "${loads[@]}"; do
        for server in "${servers[@]}"; do
            # shellcheck disable=SC2086
            echo "$load $server $(cell "$server" $load)" >>cells
        done
    done
done
python3 - <<'PYTHON'
import collections
import statistics

cells = collections.defaultdict(lambda: collections.defaultdict(list))
for line in open("cells"):
    mode, block, depth, jobs, server, *numbers = line.split()
    cells[f"{mode} {block} QD{depth} x {jobs}"][server].append([float(n) for n in numbers])
print("| workload | server | IOPS | p50 µs | p99 µs | CPU µs | IOPS / nbdkit | p99 / nbdkit "
      "| IOPS / ramserver |")
print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
for load, servers in cells.items():
    median = {s: [statistics.median(c) for c in zip(*rows)] for s, rows in servers.items()}
    for server, (iops, p50, p99, cpu) in median.items():
        def ratio(other, at):
            mine = median[server][at]
            return f"{mine / median[other][at]:.2f}" if other in median else "-"
        print(f"| {load} | {server} | {iops:.0f} | {p50:.1f} | {p99:.1f} | {cpu:.1f} "
              f"| {ratio('nbdkit', 0)} | {ratio('nbdkit', 2)} | {ratio('ramserver', 0)} |")
PYTHON
