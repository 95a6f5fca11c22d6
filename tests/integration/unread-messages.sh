# Standard error is a full pipe that nobody reads: clients, operators and the stop do not wait for
# it.
. "$(dirname "$0")/lib.sh"
need qemu-io python3
config flash
mkfifo messages
exec 9<>messages
fill messages
"$FOREBAY" serve --config forebay.toml >ready 2>messages &
SERVER=$!
for _ in $(seq 600); do [ -s ready ] && break; sleep 0.05; done
[ -s ready ] || fail "it does not start"
io 'write -P 7 0 4M' flush
# More messages than the server keeps.
for _ in $(seq 20); do kill -HUP "$SERVER"; sleep 0.02; done
status >/dev/null || fail "operators get no answer"
kill -TERM "$SERVER"
for _ in $(seq 600); do kill -0 "$SERVER" 2>/dev/null || break; sleep 0.05; done
! kill -0 "$SERVER" 2>/dev/null || fail "the stop waits for a reader"
wait "$SERVER" || fail "the stop failed"
SERVER=
"$FOREBAY" backing info disk.img | grep -q 'dirty *no' || fail "not destaged"
