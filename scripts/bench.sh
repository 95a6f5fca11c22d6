#!/usr/bin/env bash
# Runs the benchmarks on this machine. The documents have our results and the commands.
#
#   scripts/bench.sh                       all of them: about an hour
#   scripts/bench.sh read-rate plan        only these
#   SKIP="hits record" scripts/bench.sh    all but these
#
# If one fails or lacks a program, the others still run; the last line is the count. Some benchmarks
# read BENCH_SECONDS, BENCH_ROUNDS and BENCH_REQUESTS, as described at the head of each.
set -uo pipefail
. "$(dirname "$0")/common.sh"

# Shell scripts that measure the binary, Criterion benchmarks of single crates, and small programs.
BENCHES="hits record simulate policies reuse curves-peer codec plan partition read-rate device model replay study"
SKIPPED=77
built="${CARGO_TARGET_DIR:-$PWD/target}/release"
export FOREBAY="${FOREBAY:-$built/forebay}" RAMSERVER="${RAMSERVER:-$built/ramserver}"

# needs PROGRAM...: skips the measurement, with the reason, if a program is missing.
needs() {
    local lacking
    lacking="$(missing "$@")"
    [ -z "$lacking" ] || { say "skipped: $lacking is missing"; exit "$SKIPPED"; }
}

release() { cargo build --release --quiet "$@"; }
example() { cargo run --release --quiet -p "$1" --example "$2"; }

# Hits over NBD, compared with other servers.
bench_hits() {
    needs fio python3
    release -p forebay -p forebay-ramserver && bench/nbd-hits.sh
}

# The cost of recording a trace for the server.
bench_record() {
    needs python3
    release -p forebay && bench/record-cost.sh
}

# Simulated requests per second.
bench_simulate() {
    needs python3
    release -p forebay && bench/simulate-rate.sh
}

# Simulated requests per second with each replacement policy.
bench_policies() {
    needs python3
    release -p forebay && bench/policies-rate.sh
}

# Reuse distances, the NBD protocol, and the search for tier sizes and for shares.
bench_reuse() { cargo bench -p forebay-locality --bench reuse; }
bench_codec() { cargo bench -p forebay-nbd --bench codec; }
bench_plan() { cargo bench -p forebay-plan --bench plan; }
bench_partition() { cargo bench -p forebay-plan --bench partition; }

# Miss-ratio curves compared with those of libCacheSim; MRC_PROFILER is the path of its mrcProfiler.
bench_curves-peer() {
    local peer="${MRC_PROFILER:-mrcProfiler}"
    needs "$peer" python3
    release -p forebay && bench/curves-peer.sh "$(command -v "$peer")"
}

# Reading traces; the executor and its devices; device models; sending and measuring requests.
bench_read-rate() { example forebay-trace read_rate; }
bench_device() { example forebay-device device_speed; }
bench_model() { example forebay-model model_speed; }
bench_replay() { example forebay-replay overhead; }

# The cost of a cell of a study beyond its command, and how studies scale.
bench_study() {
    needs python3
    release -p forebay && python3 -m venv target/python &&
        target/python/bin/pip install -q --disable-pip-version-check ./python &&
        target/python/bin/python bench/study.py overhead &&
        target/python/bin/python bench/study.py scale "${BENCH_CELLS:-2000}"
}

for name in "$@" ${SKIP:-}; do
    if [[ " $BENCHES " != *" $name "* ]]; then
        say "there is no benchmark '$name'; choose from: $BENCHES"
        exit 2
    fi
done
passed=0 failed=0 skipped=0
# shellcheck disable=SC2048 # names without spaces
for name in ${*:-$BENCHES}; do
    say ""
    say "=== $name"
    if [[ " ${SKIP:-} " == *" $name "* ]]; then
        say "skipped: as requested"
        skipped=$((skipped + 1))
        continue
    fi
    ("bench_$name")
    case $? in
        0) passed=$((passed + 1)) ;;
        "$SKIPPED") skipped=$((skipped + 1)) ;;
        *)
            say "$name failed"
            failed=$((failed + 1))
            ;;
    esac
done
say ""
say "$passed measured, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
