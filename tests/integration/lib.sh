# Common to all integration tests: a server with its own files, and helper functions for its
# clients. Sourced by each test; the runner runs it in an empty directory.

set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
FOREBAY=${FOREBAY:-${CARGO_TARGET_DIR:-$ROOT/target}/debug/forebay}
case $FOREBAY in /*) ;; *) FOREBAY=$ROOT/$FOREBAY ;; esac
WORK=$PWD
URI="nbd+unix:///?socket=$WORK/nbd.sock"
SERVER=

fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "$*"; exit 77; }
need() { for tool; do command -v "$tool" >/dev/null || skip "no $tool here"; done; }

# config [flash] [KEY=VALUE ...]: writes forebay.toml. Keys: dram, policy, ack, size, flash_size,
# flash_layout, layout, backing.
config() {
    local dram=16MiB policy=write-back ack= size=256MiB flash= flash_size=64MiB flash_layout=log layout=offset
    local backing=$WORK/disk.img
    for word; do
        case $word in
            flash) flash=1 ;;
            *=*) local "$word" ;;
        esac
    done
    {
        echo '[cache]'
        echo "dram = \"$dram\""
        echo "write_policy = \"$policy\""
        [ -z "$ack" ] || echo "acknowledge = \"$ack\""
        if [ -n "$flash" ]; then
            echo '[flash]'
            echo "path = \"$WORK/flash.img\""
            # (Without spaces, because scripts edit the layout line of the volume; before the size,
            # because scripts append keys of this section there.)
            echo "layout=\"$flash_layout\""
            echo "size = \"$flash_size\""
        fi
        echo '[[volume]]'
        echo 'name = "vm1"'
        echo "backing = \"$backing\""
        [ -z "$size" ] || echo "size = \"$size\""
        echo "layout = \"$layout\""
        echo '[serve]'
        echo "nbd = \"unix:$WORK/nbd.sock\""
        echo "control = \"unix:$WORK/control.sock\""
    } >forebay.toml
}

# start [ARGUMENT ...]: serves forebay.toml, and waits until the server accepts clients.
start() {
    : >ready
    "$FOREBAY" serve --config forebay.toml "$@" >ready 2>>server.log &
    SERVER=$!
    for _ in $(seq 600); do
        [ -s ready ] && return 0
        kill -0 "$SERVER" 2>/dev/null || { SERVER=; return 1; }
        sleep 0.05
    done
    fail "the server said nothing for 30 s"
}

# stop: stops the server in order, and returns its exit status.
stop() {
    local pid=$SERVER
    SERVER=
    kill -TERM "$pid"
    wait "$pid"
}

# crash: kills the server, as a power cut of the process would.
crash() {
    local pid=$SERVER
    SERVER=
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
}

# Another NBD server, at $EXPORT. kit ARGUMENT...: starts nbdkit with these arguments; unkit: stops
# it.
STORE=$WORK/store.sock
# shellcheck disable=SC2034
EXPORT="nbd+unix:///?socket=$STORE"
KIT=
kit() {
    rm -f "$STORE" kit.pid
    # nbdkit writes this file when it accepts connections; its socket exists earlier.
    nbdkit -f -P kit.pid -U "$STORE" "$@" &
    KIT=$!
    for _ in $(seq 200); do [ -s kit.pid ] && return 0; sleep 0.05; done
    fail "nbdkit did not start"
}
unkit() { kill "$KIT"; wait "$KIT" || true; KIT=; }

# refused STATUS REGEX COMMAND...: the command must end with this status, and its error must match.
refused() {
    local status=$1 words=$2 got=0
    shift 2
    "$@" >refused.out 2>refused.err || got=$?
    [ "$got" = "$status" ] || fail "status $got instead of $status: $* ($(cat refused.err))"
    grep -qiE -- "$words" refused.err || fail "said \"$(cat refused.err)\", not \"$words\": $*"
}

# io COMMAND...: runs commands of qemu-io on the export. The test fails if a command fails, or if
# data does not match the pattern of a read.
io() {
    local commands=() command
    for command; do commands+=(-c "$command"); done
    timeout 120 qemu-io -f raw "${commands[@]}" "$URI" >io.out 2>&1 || fail "qemu-io: $(cat io.out)"
    ! grep -qi failed io.out || fail "qemu-io: $(cat io.out)"
}

# fails COMMAND: runs a command of qemu-io that the export must answer with an error, in time.
fails() {
    local got=0
    timeout 120 qemu-io -f raw -c "$1" "$URI" >io.out 2>&1 || got=$?
    [ "$got" != 124 ] || fail "hangs: $1"
    grep -qE '(read|write|discard|flush) failed: ' io.out || fail "did not fail: $1 ($(cat io.out))"
}

# of VOLUME COMMAND...: runs a helper for clients (default: io) on the export of this volume.
of() {
    local URI="nbd+unix:///$1?socket=$WORK/nbd.sock"
    shift
    case $1 in
        fails) "$@" ;;
        *) io "$@" ;;
    esac
}

# said REGEX: waits for a message of the server; a message may come a little later than its event.
said() {
    for _ in $(seq 100); do
        grep -qiE -- "$1" server.log && return 0
        sleep 0.1
    done
    fail "the server did not say \"$1\": $(cat server.log)"
}

# which KEY: prints the names of the volumes for which this key of the status is set and not zero.
which() {
    status | python3 -c '
import json, sys
print(*[v["volume"] for v in json.load(sys.stdin)["volumes"] if v[sys.argv[1]]])' "$1"
}

# fill PIPE: fills a named pipe that is open but not read, until it accepts no more data.
fill() {
    python3 -c '
import os, sys
pipe = os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)
for size in (4096, 1):
    try:
        while True:
            os.write(pipe, b"x" * size)
    except BlockingIOError:
        pass' "$1"
}

status() { "$FOREBAY" ctl status --control "unix:$WORK/control.sock"; }
ctl() { "$FOREBAY" ctl "$@" --control "unix:$WORK/control.sock"; }

cleanup() {
    local code=$?
    [ -z "$SERVER" ] || kill -KILL "$SERVER" 2>/dev/null || true
    if [ "$code" != 0 ] && [ "$code" != 77 ] && [ -s server.log ]; then
        echo "--- the server said:" >&2
        tail -20 server.log >&2
    fi
    [ -z "$KIT" ] || kill -KILL "$KIT" 2>/dev/null || true
    type -t more_cleanup >/dev/null && more_cleanup
    exit "$code"
}
trap cleanup EXIT
