# TCP on the loopback; a stale socket is replaced, a live one is not.
. "$(dirname "$0")/lib.sh"
need nbdinfo
config
start
refused 1 'live process' "$FOREBAY" serve --config forebay.toml
crash
[ -S nbd.sock ] || fail "a killed server leaves its socket"
start
stop
[ ! -e nbd.sock ] || fail "a stopped server leaves its socket"
sed -i 's|^nbd = .*|nbd = "tcp:127.0.0.1:0"|' forebay.toml
start
port=$(sed -E 's/.*"tcp:127.0.0.1:([0-9]+)".*/\1/' ready)
nbdinfo --size "nbd://127.0.0.1:$port/vm1" | grep -qx 268435456
stop
sed -i 's|^nbd = .*|nbd = "tcp:0.0.0.0:0"|' forebay.toml
refused 2 'tls' "$FOREBAY" serve --config forebay.toml
