#!/usr/bin/env bash
# Records traces of real applications on ext4 on a Forebay volume, with hashes of all data.
#
#   scripts/record-traces.sh [LOAD ...]      database, mail, machines or build; all by default
#
# Traces are written to the directory TRACES, traces/ by default, as LOAD.parquet. Needs root, loop
# devices and FUSE; missing packages are installed on Debian. FOREBAY=path uses that binary instead
# of building one. SEED (1) seeds all random choices, and SHAPE=NAME gives the volumes the latencies
# of a device in the catalogue; the sizes of each load are at the head of its file in
# scripts/traces. For details see docs/recorded-traces.md.
set -euo pipefail
invoked_from="$PWD"
. "$(dirname "$0")/common.sh"

LOADS=(database mail machines build)
SEED=${SEED:-1}
SHAPE=${SHAPE:-}
CACHE_MEMORY=${CACHE_MEMORY:-64MiB}

fail() {
    say "record-traces: $*" >&2
    exit 1
}

case "${TRACES:=traces}" in /*) ;; *) TRACES="$invoked_from/$TRACES" ;; esac
[ $# = 0 ] || LOADS=("$@")
for load in "${LOADS[@]}"; do
    [ -e "scripts/traces/$load.sh" ] && [ "$load" != disks ] || fail "there is no load '$load'"
done

scratch="$(mktemp -d "${TMPDIR:-/tmp}/forebay-traces.XXXXXX")"
chmod 711 "$scratch"
. scripts/demo/server.sh
. scripts/traces/disks.sh
# shellcheck source=/dev/null
for load in "${LOADS[@]}"; do . "scripts/traces/$load.sh"; done

# On any exit: nothing stays running or mounted, and no files but the traces are left.
cleanup() {
    local status=$?
    trap - EXIT INT TERM
    set +e
    end_limited
    detach_disks 2>/dev/null
    if [ -n "$SERVER" ]; then
        kill -TERM "$SERVER" 2>/dev/null
        wait "$SERVER" 2>/dev/null
    fi
    [ $status = 0 ] || rm -f "${recording:-}"
    rm -rf --one-file-system "$scratch"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Installs the programs that the loads need, or fails with the first one missing.
set_up() {
    [ "$(id -u)" = 0 ] || fail "mounting file systems needs root"
    local load pair program packages="nbdfuse:libnbd-bin fusermount3:fuse3 losetup:mount mkfs.ext4:e2fsprogs"
    for load in "${LOADS[@]}"; do packages+=" $("${load}_packages")"; done
    local wanted=()
    for pair in $packages; do
        has "${pair%%:*}" || wanted+=("${pair##*:}")
    done
    if [ ${#wanted[@]} != 0 ] && [ -e /etc/debian_version ]; then
        say "installing: ${wanted[*]}"
        export DEBIAN_FRONTEND=noninteractive
        { apt-get -qq update && apt-get -qq -y install --no-install-recommends "${wanted[@]}"; } \
            >"$scratch/install.log" 2>&1 || say "installing failed: $(tail -n 1 "$scratch/install.log")"
    fi
    for pair in $packages; do
        program="${pair%%:*}"
        has "$program" || fail "$program is missing; on Debian it is in the package ${pair##*:}"
    done
    [ -e /dev/fuse ] || fail "/dev/fuse is missing"
    losetup --find >/dev/null 2>&1 || fail "no loop device is free"
    [ -n "$(cgroup_parent)" ] || fail "this system has no memory control groups to limit the page cache with"
    if [ -n "${FOREBAY:-}" ]; then
        case "$FOREBAY" in /*) ;; *) FOREBAY="$invoked_from/$FOREBAY" ;; esac
        [ -x "$FOREBAY" ] || fail "$FOREBAY is not a program"
    else
        cargo build --release --quiet -p forebay
        FOREBAY="${CARGO_TARGET_DIR:-$PWD/target}/release/forebay"
    fi
}

# volume NAME SIZE: adds a volume to the configuration; for LOAD_configure.
volume() {
    VOLUMES+=("$1")
    {
        say '[[volume]]'
        say "name = \"$1\""
        say "backing = \"$scratch/$1.img\""
        say "size = \"$2\""
        [ -z "$SHAPE" ] || say "shape = \"$SHAPE\""
    } >>"$scratch/serve.toml"
}

# Fills the volumes, then records the requests of the load.
record() {
    local load=$1 started=$SECONDS
    recording="$TRACES/$load.parquet"
    say "$load: $("${load}_about")"
    if type -t "${load}_fetch" >/dev/null; then "${load}_fetch"; fi
    VOLUMES=()
    {
        say '[cache]'
        say "dram = \"$CACHE_MEMORY\""
        say 'write_policy = "write-back"'
        say '[serve]'
        say "nbd = \"unix:$scratch/nbd.sock\""
        say "control = \"unix:$scratch/control.sock\""
    } >"$scratch/serve.toml"
    "${load}_configure"
    serve "$scratch/serve.toml" -q
    attach_file_systems new
    "${load}_prepare"
    detach_disks
    stop_server
    say "    filled in $((SECONDS - started)) s"
    started=$SECONDS
    # The server does not overwrite a recording, complete or not: it would record to another file.
    rm -f "$recording" "$recording.partial" "$recording.partial.index"
    drop_page_cache
    serve "$scratch/serve.toml" -q --record "$recording" --hash
    attach_file_systems
    "${load}_run"
    detach_disks
    stop_server
    rm -f "$scratch"/*.img
    say "    recorded in $((SECONDS - started)) s: $recording, $(du -h "$recording" | cut -f 1)"
    recording=
    "$FOREBAY" -q trace info "$TRACES/$load.parquet" | sed -n '2,7s/^/    /p'
}

set_up
mkdir -p "$TRACES"
for load in "${LOADS[@]}"; do record "$load"; done
