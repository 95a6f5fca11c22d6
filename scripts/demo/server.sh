# Starts and stops a cache on files; sourced by scripts/demo.sh and scripts/record-traces.sh.
# shellcheck disable=SC2154 # the script that sources this sets $scratch

SERVER=

# configure FILE DRAM [FLASH] [KEY=VALUE ...]: writes a configuration that uses the files in
# $scratch. Sizes are in bytes; an empty FLASH means a single tier. Keys: shape, flash_shape, size,
# name, policy.
configure() {
    local file=$1 dram=$2 flash=${3:-} shape= flash_shape= size=$VOLUME_SIZE name=demo policy=write-back
    shift $(($# < 3 ? $# : 3))
    [ $# = 0 ] || local "$@"
    {
        say '[cache]'
        say "dram = $dram"
        say "write_policy = \"$policy\""
        if [ -n "$flash" ]; then
            say '[flash]'
            say "path = \"$scratch/flash.img\""
            say "size = $flash"
            [ -z "$flash_shape" ] || say "shape = \"$flash_shape\""
        fi
        say '[[volume]]'
        say "name = \"$name\""
        say "backing = \"$scratch/disk.img\""
        say "size = $size"
        [ -z "$shape" ] || say "shape = \"$shape\""
        say '[serve]'
        say "nbd = \"unix:$scratch/nbd.sock\""
        say "control = \"unix:$scratch/control.sock\""
    } >"$file"
}

# serve CONFIG [ARGUMENT ...]: starts the server, and returns when it accepts clients.
serve() {
    local config=$1
    shift
    : >"$scratch/ready"
    # In a session of its own: Ctrl-C reaches only this script, which then stops the server in
    # order.
    setsid "$FOREBAY" serve --config "$config" "$@" >"$scratch/ready" 2>"$scratch/server.log" &
    SERVER=$!
    for _ in $(seq 600); do
        [ ! -s "$scratch/ready" ] || return 0
        kill -0 "$SERVER" 2>/dev/null || break
        sleep 0.05
    done
    SERVER=
    cat "$scratch/server.log" >&2
    fail "the server did not start"
}

# Stops the server in order: dirty data is written to the backing file.
stop_server() {
    local pid=$SERVER
    SERVER=
    kill -TERM "$pid"
    wait "$pid" || { cat "$scratch/server.log" >&2; fail "the server did not stop cleanly"; }
}

server_status() { "$FOREBAY" ctl status --control "unix:$scratch/control.sock"; }
