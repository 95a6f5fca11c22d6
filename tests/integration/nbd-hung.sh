# The NBD server of a backing store hangs. After a first signal the server waits for it; after a
# second signal it leaves dirty data on flash and ends, even while a client waits for a reply.
. "$(dirname "$0")/lib.sh"
need nbdkit nbdcopy qemu-io
hang() { kill -STOP "$KIT"; }
rekit() { # starts another server in place of the one that hangs
    kill -KILL "$KIT"
    wait "$KIT" 2>/dev/null || true
    kit file disk.img
}
running() { kill -0 "$SERVER" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$SERVER/status" 2>/dev/null; }
# ends: sends a second signal, after which the server must end in time; returns its exit status.
ends() {
    local pid=$SERVER
    kill -TERM "$pid"
    for _ in $(seq 300); do
        running || { SERVER=; wait "$pid"; return; }
        sleep 0.1
    done
    fail "the server does not end 30 s after a second signal: $(cat server.log)"
}
begin() {
    rm -f disk.img flash.img
    truncate -s 65M disk.img
    : >server.log
    kit file disk.img
    config flash dram=4MiB flash_size=48MiB size=64MiB backing="$EXPORT" "$@"
    start
    io 'write -P 1 0 8M' flush
}

# A quiesce that waits for the store can be ended, and clients continue.
begin
io 'write -P 2 0 8M' flush
hang
"$FOREBAY" ctl quiesce --config forebay.toml >quiesce.out 2>&1 &
quiesce=$!
sleep 2
kill -0 "$quiesce" || fail "a quiesce does not wait for the store: $(cat quiesce.out)"
timeout 20 "$FOREBAY" ctl quiesce --resume --config forebay.toml >/dev/null || fail "a quiesce that waits cannot be ended"
! wait "$quiesce" || fail "a quiesce that was ended succeeds"
grep -q "the quiesce ended before" quiesce.out || fail "it does not say why: $(cat quiesce.out)"
io 'read -P 2 0 64k'
kill -CONT "$KIT"
# The next one takes what the store lacks.
"$FOREBAY" ctl quiesce --config forebay.toml >/dev/null || fail "no quiesce after one that was ended"
"$FOREBAY" ctl quiesce --resume --config forebay.toml >/dev/null
io 'read -P 2 0 64k'
stop || fail "$(cat server.log)"
unkit

for ack in flash dram; do
    # Dirty data is on flash. A first signal waits for the store.
    begin ack=$ack
    hang
    kill -TERM "$SERVER"
    sleep 8
    running || fail "a first signal does not wait for the store ($ack)"
    ends || fail "the stop failed ($ack): $(cat server.log)"
    rekit
    start
    io 'read -P 1 0 8M'
    # A store that responds again during the stop gets all data.
    io 'write -P 2 0 8M' flush
    hang
    kill -TERM "$SERVER"
    sleep 2
    kill -CONT "$KIT"
    pid=$SERVER SERVER=
    wait "$pid" || fail "the stop failed, though the store came back ($ack): $(cat server.log)"
    "$FOREBAY" backing info "$EXPORT" | grep -q "dirty *no" || fail "the data was not destaged ($ack)"
    rekit
done

# A client waits for a reply that depends on the store.
for ack in flash dram; do
    sed -i "s/^acknowledge.*/acknowledge = \"$ack\"/" forebay.toml
    start
    io 'write -P 3 0 8M' flush 'write -P 4 0 64k'
    hang
    timeout 60 qemu-io -r -f raw -c 'read 40M 64k' "$URI" >client.out 2>&1 &
    client=$!
    sleep 1
    kill -TERM "$SERVER"
    sleep 2
    running || fail "a first signal does not wait for the reply ($ack)"
    ends || fail "the stop failed ($ack): $(cat server.log)"
    wait "$client" || true
    grep -q "failed" client.out || fail "the client was not told ($ack): $(cat client.out)"
    rekit
    start
    io 'read -P 4 0 64k' 'read -P 3 64k 4M'
    stop
done

# Without a flash tier, a second signal ends a stop only if nothing is dirty.
begin_without_flash() {
    rm -f disk.img flash.img
    truncate -s 65M disk.img
    : >server.log
    kit file disk.img
    config dram=16MiB size=64MiB backing="$EXPORT" "$@"
    start
}
begin_without_flash policy=write-through
io 'write -P 5 0 64k' flush
hang
timeout 60 qemu-io -r -f raw -c 'read 40M 64k' "$URI" >client.out 2>&1 &
client=$!
sleep 1
kill -TERM "$SERVER"
sleep 2
running || fail "a first signal does not wait for the reply"
ends || fail "the stop failed without flash: $(cat server.log)"
wait "$client" || true
grep -q "failed" client.out || fail "the client was not told: $(cat client.out)"
rekit
start
io 'read -P 5 0 64k'
stop
unkit
begin_without_flash policy=write-back
# (qemu-io would flush at its end.)
head -c 64K /dev/zero | tr '\0' '\6' >six
nbdcopy six "$URI"
status | grep -q '"dirty_blocks": [1-9]' || fail "nothing is dirty: $(status)"
hang
kill -TERM "$SERVER"
sleep 1
kill -TERM "$SERVER"
sleep 8
running || fail "a second signal loses dirty data that only memory has"
kill -CONT "$KIT"
pid=$SERVER SERVER=
wait "$pid" || fail "the stop failed, though the store came back: $(cat server.log)"
start
io 'read -P 6 0 64k'
stop
