# A client that sends thousands of requests before it reads a reply gets all its replies.
. "$(dirname "$0")/lib.sh"
need python3
for flash in "" flash; do
    # shellcheck disable=SC2086
    config $flash size=64MiB
    start
    timeout 200 python3 "$HERE/pipelined.py" nbd.sock || fail "the client ended with $?"
    stop
    rm -f disk.img flash.img
done
