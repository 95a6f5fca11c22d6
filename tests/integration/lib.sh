# Common to all integration tests: a server with its own files, and words for its clients.
# Sourced by each test; the runner gives it an empty directory to run in.

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

# config [flash] [KEY=VALUE ...]: writes forebay.toml. Keys: dram, policy, ack, size, flash_size, flash_layout,
# layout, backing.
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
            # (Without spaces: scripts edit the line of the volume; and before the size, with which scripts end the section.)
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

# start [ARGUMENT ...]: serves forebay.toml, and waits until clients are welcome.
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

# stop: ends the server in order; its exit status is ours.
stop() {
    local pid=$SERVER
    SERVER=
    kill -TERM "$pid"
    wait "$pid"
}

# crash: ends the server as a power cut of the process would.
crash() {
    local pid=$SERVER
    SERVER=
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
}

# Another NBD server, at $EXPORT. kit ARGUMENT...: starts nbdkit with these; unkit: ends it.
STORE=$WORK/store.sock
# shellcheck disable=SC2034
EXPORT="nbd+unix:///?socket=$STORE"
KIT=
kit() {
    rm -f "$STORE" kit.pid
    # It writes the file when it accepts connections; its socket is there before.
    nbdkit -f -P kit.pid -U "$STORE" "$@" &
    KIT=$!
    for _ in $(seq 200); do [ -s kit.pid ] && return 0; sleep 0.05; done
    fail "nbdkit did not start"
}
unkit() { kill "$KIT"; wait "$KIT" || true; KIT=; }

# refused STATUS WORDS COMMAND...: the command must end with that status and say these words.
refused() {
    local status=$1 words=$2 got=0
    shift 2
    "$@" >refused.out 2>refused.err || got=$?
    [ "$got" = "$status" ] || fail "status $got instead of $status: $* ($(cat refused.err))"
    grep -qiE -- "$words" refused.err || fail "said \"$(cat refused.err)\", not \"$words\": $*"
}

# io COMMAND...: commands of qemu-io on the export. A command that fails ends the test, and so does
# data that does not match the pattern it was read with.
io() {
    local commands=() command
    for command; do commands+=(-c "$command"); done
    timeout 120 qemu-io -f raw "${commands[@]}" "$URI" >io.out 2>&1 || fail "qemu-io: $(cat io.out)"
    ! grep -qi failed io.out || fail "qemu-io: $(cat io.out)"
}

# fails COMMAND: a command of qemu-io that the export must answer with an error, in time.
fails() {
    local got=0
    timeout 120 qemu-io -f raw -c "$1" "$URI" >io.out 2>&1 || got=$?
    [ "$got" != 124 ] || fail "hangs: $1"
    grep -qE '(read|write|discard|flush) failed: ' io.out || fail "did not fail: $1 ($(cat io.out))"
}

# of VOLUME COMMAND...: a word for clients (default: io), on the export of that name.
of() {
    local URI="nbd+unix:///$1?socket=$WORK/nbd.sock"
    shift
    case $1 in
        fails) "$@" ;;
        *) io "$@" ;;
    esac
}

# said WORDS: waits until the server has said that; messages may come a little later than what they are about.
said() {
    for _ in $(seq 100); do
        grep -qiE -- "$1" server.log && return 0
        sleep 0.1
    done
    fail "the server did not say \"$1\": $(cat server.log)"
}

# which KEY: the names of the volumes of which the status says that.
which() {
    status | python3 -c '
import json, sys
print(*[v["volume"] for v in json.load(sys.stdin)["volumes"] if v[sys.argv[1]]])' "$1"
}

# fill PIPE: fills a named pipe, which somebody has open and nobody reads. It takes no more data.
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
