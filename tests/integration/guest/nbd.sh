# The NBD client of the Linux kernel with four connections over TCP: a flush on one of them covers
# writes on the others, and a client that reconnects continues without an error. FOREBAY_KILLS is
# the number of kills of the server under load.
. "$(dirname "$0")/lib.sh"
listen_on() { sed -i "s|^nbd = .*|nbd = \"tcp:127.0.0.1:$1\"|" forebay.toml; }
port=
begin() { # begin [ARGUMENT of config...]: starts a server with empty devices on a fixed port
    rm -f disk.img flash.img
    config flash dram=8MiB flash_size=24MiB size=64MiB "$@"
    listen_on 0
    start
    port=$(sed 's/.*tcp:127.0.0.1:\([0-9]*\).*/\1/' ready)
    listen_on "$port"
}
connections() { status | python3 -c 'import json, sys; print(json.load(sys.stdin)["nbd"]["connections"])'; }
connect() {
    guest 60 "nbd-client -N vm1 10.0.2.2 $port /dev/nbd0 -C 4 -t 4 -b 4096" >client.log || fail "$(cat client.log)"
    # The kernel waits for new connections only once it has been told for how long.
    guest 30 "python3 /test/workload.py reconnect 10.0.2.2 $port vm1 0 60" || fail "no netlink"
    [ "$(connections)" = 4 ] || fail "$(connections) connections"
    # A queue, and thus a connection, for each processor.
    [ "$(guest 10 'cat /sys/block/nbd0/mq/*/cpu_list' | sort | tr -d '\n ')" = 0123 ] || fail "not one queue per processor"
}
disconnect() { guest 30 'nbd-client -d /dev/nbd0' >/dev/null || fail "disconnecting failed"; }
reconnect() {
    [ "$SABOTAGE" != reconnect ] || return 0
    local missing
    for _ in 1 2 3 4 5; do
        missing=$((4 - $(connections)))
        [ "$missing" -gt 0 ] || return 0
        guest 60 "python3 /test/workload.py reconnect 10.0.2.2 $port vm1 $missing 60" || fail "reconnecting failed"
        # The kernel drops a new connection as long as it has not noticed a dead one.
        sleep 0.5
    done
    [ "$(connections)" = 4 ] || fail "$(connections) connections after a restart"
}
blocks() { guest 180 "python3 /test/workload.py blocks /dev/nbd0 $* >&4"; }
# check LOW HIGH: checks what the device now holds.
check() { guest 180 "python3 /test/workload.py check /dev/nbd0 $1 $2"; }
flushed() { sed -n 's/^FLUSHED \([0-9]*\)$/\1/p' promises | tail -1; }
more_than() { [ "$(flushed)" -gt "$1" ]; }
# check_store LOW HIGH: checks what the backing store alone holds after a clean stop; data begin
# after the first MiB.
check_store() {
    ctl stop --destage >/dev/null
    wait "$SERVER" || fail "the stop failed"
    SERVER=
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$HERE python3 "$GUEST_DIR/workload.py" check disk.img "$1" "$2" 1048576 ||
        fail "the backing store is not what the guest wrote"
}

# Writes are acknowledged from memory, so that only the flush makes them survive. The flush uses the
# first connection, the writes use the other three.
begin ack=dram
boot -netdev user,id=net -device virtio-net-pci,netdev=net,romfile=
connect
remember
blocks 1 12 1,2,3 || fail "a write failed"
restart
reconnect
check 12 12 || fail "what was written on three connections and flushed on one is not all there"
remember
# Without a flush the writes must be lost; otherwise this test shows nothing.
blocks 13 13 1,2,3 noflush || fail "a write failed"
restart
reconnect
check 12 13 || fail "what was flushed is gone"
! check 13 13 >/dev/null || fail "writes survived without a flush: the test shows nothing"
blocks 13 14 0,1,2,3 || fail "a write failed"
disconnect
check_store 14 14
no_complaints

# Writes are acknowledged from flash, and the server is killed under load.
begin
: >promises
reboot_guest
connect
guest 10 "(python3 /test/workload.py blocks /dev/nbd0 1 1000000 0,1,2,3,0,1,2,3 >&4 2>/tmp/errors; echo ended \$? >>/tmp/errors) &"
until_true 60 "the first round" grep -q FLUSHED promises
for kill in $(seq "${FOREBAY_KILLS:-5}"); do
    remember
    before=$(flushed)
    until_true 60 "rounds before kill $kill" more_than $((before + 6))
    sleep "0.$((RANDOM % 10))"
    restart
    reconnect
    before=$(flushed)
    until_true 90 "the guest goes on after kill $kill" more_than $((before + 1))
done
guest 60 'touch /tmp/stop; wait; cat /tmp/errors' >errors
[ "$(cat errors)" = "ended 0" ] || fail "the writers: $(cat errors)"
last=$(flushed)
check "$last" "$last" || fail "what was flushed is gone"
no_complaints
# The guest is killed with the server, and does not come back.
guest 10 "rm /tmp/stop; python3 /test/workload.py blocks /dev/nbd0 $((last + 1)) 1000000 0,1,2,3,0,1,2,3 >&4 &"
remember
until_true 60 "more rounds" more_than $((last + 6))
crash_guest
restart
last=$(flushed)
check_store "$last" $((last + 1))
