# TCP on the loopback; a stale socket is replaced, a live one is not. If only few files may be open,
# there are fewer connections, or the server does not start.
. "$(dirname "$0")/lib.sh"
need nbdinfo python3
config
start
refused 1 'another process already serves' "$FOREBAY" serve --config forebay.toml
crash
[ -S nbd.sock ] || fail "a killed server leaves its socket"
start
stop
[ ! -e nbd.sock ] || fail "a stopped server leaves its socket"

connections() { status | python3 -c 'import json, sys; print(json.load(sys.stdin)["nbd"]["connections_max"])'; }
start
[ "$(connections)" = 1024 ] || fail "$(connections) connections"
stop
open=$(ulimit -Hn)
if [ "$open" = unlimited ] || [ "$open" -ge 256 ]; then
    : >server.log
    (
        ulimit -n 64
        refused 1 'ulimit -n' "$FOREBAY" serve --config forebay.toml
        [ ! -e nbd.sock ] || fail "a start that was refused leaves its socket"
    )
    (
        ulimit -n 256
        start
        few=$(connections)
        [ "$few" -gt 4 ] && [ "$few" -lt 128 ] || fail "$few connections with 256 files"
        said "allows only $few NBD connections"
        timeout 60 python3 - "$few" <<'END'
import socket, sys
allowed = int(sys.argv[1])
clients = []
for n in range(200):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect("nbd.sock")
    clients.append(s)
greeted = [s.recv(8) == b"NBDMAGIC" for s in clients]
assert greeted == [n < allowed for n in range(200)], f"{sum(greeted)} of {allowed} were served"
END
        # Operators are answered whatever clients do.
        [ "$(status | python3 -c 'import json, sys; print(json.load(sys.stdin)["nbd"]["refused"])')" -gt 0 ] \
            || fail "no client was refused"
        stop
    )
fi
# While the system refuses even to wait for clients, none is accepted; afterwards they are.
if command -v prlimit >/dev/null; then
    start
    before=$(prlimit --pid "$SERVER" --nofile --noheadings --output SOFT | tr -d ' ')
    prlimit --pid "$SERVER" --nofile=1:
    ! timeout 2 nbdinfo --size "$URI" >/dev/null 2>&1 || fail "the limit of one file has no effect"
    prlimit --pid "$SERVER" --nofile="$before:"
    timeout 10 nbdinfo --size "$URI" | grep -qx 268435456 || fail "no client is accepted any more"
    stop
fi
sed -i 's|^nbd = .*|nbd = "tcp:127.0.0.1:0"|' forebay.toml
start
port=$(sed -E 's/.*"tcp:127.0.0.1:([0-9]+)".*/\1/' ready)
nbdinfo --size "nbd://127.0.0.1:$port/vm1" | grep -qx 268435456
stop
sed -i 's|^nbd = .*|nbd = "tcp:0.0.0.0:0"|' forebay.toml
refused 2 'without encryption' "$FOREBAY" serve --config forebay.toml
