# A start that takes long: operators are answered from the first moment, clients once the cache is
# ready; the service manager gets progress messages; and a start that is cancelled changes no data.
. "$(dirname "$0")/lib.sh"
need qemu-io python3

# A service manager, as far as a service sees it: prints a line for each message.
python3 -u -c '
import socket
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind("notify.sock")
while True:
    print(manager.recv(4096).decode().strip().replace("\n", " "))
' >told &
manager=$!
more_cleanup() { kill "$manager" 2>/dev/null || true; }
for _ in $(seq 100); do [ -S notify.sock ] && break; sleep 0.05; done
export NOTIFY_SOCKET=$WORK/notify.sock

# A crash with several full regions on flash, and one that is not full.
config flash
sed -i 's|^size = "64MiB"|size = "64MiB"\nregion_size = "4MiB"|' forebay.toml
start
grep -q '^READY=1 STATUS=serving vm1$' told || fail "told: $(cat told)"
io 'write -P 7 0 26M' flush
[ "$(status | python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])')" = serving ] \
    || fail "$(status)"
crash

# A slow flash device.
sed -i 's|^size = "64MiB"|size = "64MiB"\nshape = "crawl"|' forebay.toml
printf '[shape.crawl]\nread_latency = "150ms"\nparallelism = 1\n' >>forebay.toml
begin() {
    rm -f control.sock
    : >ready
    "$FOREBAY" serve --config forebay.toml >ready 2>>server.log &
    SERVER=$!
    for _ in $(seq 200); do
        status >now 2>/dev/null && grep -q '"regions": [1-9]' now && return 0
        sleep 0.05
    done
    fail "the server does not say that it is recovering: $(cat now)"
}
: >told
begin
grep -q '"state": "recovering"' now || fail "$(cat now)"
[ ! -s ready ] || fail "it is recovering, but ready"
refused 1 "not ready yet: recovering: [0-9]+ of [0-9]+ regions" ctl destage
! timeout 1 qemu-io -f raw -c 'read 0 4k' "$URI" >/dev/null 2>&1 || fail "a client was served"
ctl top --count 1 --every 200ms | grep -q '^recovering: ' || fail "top says nothing"
! grep -q READY told || fail "ready before it was: $(cat told)"
grep -q '^STATUS=recovering: .* EXTEND_TIMEOUT_USEC=60000000$' told || fail "told: $(cat told)"

# A signal cancels the start, and so does an operator.
kill -TERM "$SERVER"
wait "$SERVER" || fail "a start that is ended counts as a failure"
SERVER=
grep -q 'startup was interrupted before the cache was ready' server.log || fail "nothing was reported"
grep -qE 'forebay: recovering: [0-9]+ of [0-9]+ regions, [0-9]+ records' server.log || fail "no progress was reported"
begin
ctl stop >/dev/null
wait "$SERVER" || fail "a start that an operator ends counts as a failure"
SERVER=

# An order that needs the cache waits for it, and fails if the start ends first.
for order in destage release; do
    begin
    ctl stop --$order >/dev/null 2>refused &
    waits=$!
    sleep 1
    kill -0 "$SERVER" "$waits" || fail "stop --$order ended the start"
    kill -TERM "$SERVER"
    wait "$SERVER" || fail "a start that is ended counts as a failure"
    SERVER=
    ! wait "$waits" || fail "stop --$order did nothing, but succeeded"
    grep -q 'stopped, but before the cache was ready, so it' refused || fail "said: $(cat refused)"
done

# None of this loses any data.
sed -i '/^shape/d; /^\[shape/,$d' forebay.toml
: >told
start
io 'read -P 7 0 26M'
stop
grep -q '^READY=1 STATUS=serving vm1$' told || fail "told: $(cat told)"
grep -q '^STOPPING=1$' told || fail "told: $(cat told)"
