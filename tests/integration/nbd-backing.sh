# An export of another NBD server as the backing store: sizes, trims, read-only exports, and which
# data survives when that server is killed.
. "$(dirname "$0")/lib.sh"
need nbdkit nbdinfo nbdcopy qemu-io python3
for plugin in file --filter=cache --filter=blocksize-policy --filter=nozero; do
    nbdkit "$plugin" --dump-plugin >/dev/null 2>&1 ||
        nbdkit "$plugin" null --dump-plugin >/dev/null 2>&1 || skip "nbdkit here has no $plugin"
done

# No server at the address, and words that are not an address.
config backing="$EXPORT" size=
refused 1 "cannot connect" "$FOREBAY" serve --config forebay.toml
config backing="https://host/x" size=
refused 2 "nbd://HOST" "$FOREBAY" serve --config forebay.toml

# Written through memory only, in blocks of 4 KiB, without zeroing: data reads back as written, and
# the store after its header is what clients saw.
for how in "" "--filter=nozero" "--filter=blocksize-policy"; do
    rm -f disk.img flash.img
    truncate -s 65M disk.img
    [ "$how" != --filter=blocksize-policy ] || extra="blocksize-minimum=4096 blocksize-maximum=64K blocksize-error-policy=error"
    # shellcheck disable=SC2086
    kit $how file disk.img ${extra:-}
    config dram=4MiB backing="$EXPORT" size=
    start
    [ "$(nbdinfo --size "$URI")" = $((64 << 20)) ] || fail "the size is $(nbdinfo --size "$URI")"
    [ "$how" = --filter=nozero ] && fast=false || fast=true
    nbdinfo "$URI" | grep -q "can_fast_zero: $fast" || fail "fast zeroing is not offered as the store can ($how)"
    head -c 20000000 /dev/urandom >data
    truncate -s $((64 << 20)) data
    nbdcopy --flush data "$URI"
    qemu-io -f raw -c "write -P 7 512 1024" -c "discard 1M 2M" -c "write -z 4M 3M" -c flush "$URI" >/dev/null
    nbdcopy "$URI" seen
    stop
    unkit
    tail -c +$(((1 << 20) + 1)) disk.img | cmp - seen || fail "the store does not hold what clients saw ($how)"
    python3 - <<'END'
data, seen = bytearray(open("data", "rb").read()), open("seen", "rb").read()
data[512:1536] = bytes([7]) * 1024
data[4 << 20:7 << 20] = bytes(3 << 20)
seen = bytearray(seen)
assert seen[1 << 20:3 << 20] in (bytes(2 << 20), bytes(data[1 << 20:3 << 20])), "a discard"
seen[1 << 20:3 << 20] = data[1 << 20:3 << 20]
assert seen == data, "clients saw other data than they wrote"
END
done

# A server that accepts no writes: the volume is read-only, and needs an existing header.
kit -r file disk.img
config dram=4MiB backing="$EXPORT" size=
start
nbdinfo "$URI" | grep -q "is_read_only: true" || fail "the volume is writable"
nbdcopy "$URI" again
cmp again seen || fail "a read-only store returns different data"
stop
"$FOREBAY" backing info "$EXPORT" | grep -q "dirty *no" || fail "backing info does not read exports"
config dram=4MiB backing="$EXPORT" size= layout=tail
refused 1 "layout" "$FOREBAY" serve --config forebay.toml
unkit
# A server that cannot flush.
kit --filter=fua --filter=noextents eval get_size="echo 64M" pread="head -c \$3 /dev/zero" pwrite="cat >/dev/null" can_write="exit 0" can_flush="exit 3"
config dram=4MiB backing="$EXPORT" size= layout=none
refused 1 "does not support flush" "$FOREBAY" serve --config forebay.toml
# It can serve a read-only volume without a header, and does not make the other volumes fail.
sed -i '/^layout = /a read_only = true' forebay.toml
reads_zeroes() { # reads_zeroes VOLUME
    qemu-io -r -f raw -c 'read -P 0 0 4096' -c flush "nbd+unix:///$1?socket=$WORK/nbd.sock" >io.out 2>&1 ||
        fail "qemu-io: $(cat io.out)"
}
start
nbdinfo "$URI" | grep -q "is_read_only: true" || fail "a store that cannot flush is writable"
reads_zeroes vm1
: >server.log
stop || fail "the stop fails with a store that cannot flush: $(cat server.log)"
! grep -q "lost" server.log || fail "$(cat server.log)"
rm -f flash.img other.img
config flash dram=4MiB flash_size=24MiB size=64MiB backing="$WORK/other.img"
printf '[[volume]]\nname = "vm2"\nbacking = "%s"\nlayout = "none"\nread_only = true\n' "$EXPORT" >>forebay.toml
start
io 'write -P 1 0 64k' flush
reads_zeroes vm2
ctl destage >/dev/null || fail "a store that cannot flush fails a destage"
ctl quiesce >/dev/null || fail "a store that cannot flush fails a quiesce"
ctl quiesce --resume >/dev/null
io 'write -P 2 0 64k' flush
stop || fail "the stop fails with a store that cannot flush: $(cat server.log)"
[ "$(head -c 1048577 other.img | tail -c 1 | od -An -tu1)" -eq 2 ] || fail "the other volume was not destaged"
sed -i 's/^layout = "none"/layout = "offset"/' forebay.toml
refused 1 "does not support flush.*layout" "$FOREBAY" serve --config forebay.toml
unkit

ends_in() { # ends_in SECONDS: whether the server ends within this time; if not, it is killed.
    local guard ended=0
    (sleep "$1" && kill -KILL "$SERVER") 2>/dev/null &
    guard=$!
    wait "$SERVER" || ended=$?
    SERVER=
    kill "$guard" 2>/dev/null || true
    [ "$ended" != 137 ]
}

# The other server dies while the cache runs: the log, the status and a failed order report it.
rm -f disk.img flash.img
truncate -s 65M disk.img
kit file disk.img
config flash dram=4MiB flash_size=24MiB size=64MiB backing="$EXPORT"
start
io 'write -P 1 0 64k' flush
: >server.log
kill -KILL "$KIT"
wait "$KIT" || true
KIT=
fails 'read 32M 64k'
gone='store.sock: the NBD server closed the connection'
refused 1 "vm1: .*$gone" "$FOREBAY" ctl destage --config forebay.toml
"$FOREBAY" ctl status --config forebay.toml | grep -q "\"backing_failure\": .*$gone" ||
    fail "the status does not say that the other server is gone"
said "volume vm1 failed because .*$gone"
crash

# It dies during a quiesce, or hangs. At the end of the quiesce, only the clients of its volume stay
# paused. What Forebay itself meanwhile writes to the headers of the other stores does not count as a
# change by other programs.
rm -f disk.img flash.img
truncate -s 65M disk.img
kit file disk.img
config flash dram=4MiB flash_size=24MiB size=64MiB backing="$WORK/first.img"
{
    echo '[[volume]]'
    echo 'name = "vm2"'
    echo "backing = \"$EXPORT\""
} >>forebay.toml
start
io 'write -P 1 0 64k' flush
"$FOREBAY" ctl quiesce --for 1s --config forebay.toml >/dev/null
kill -KILL "$KIT"
wait "$KIT" || true
KIT=
said "requests to volume vm2 are still held back"
said "restart the server once its NBD server is back"
io 'write -P 2 0 64k' flush 'read -P 2 0 64k'
sleep 2.5
! grep -q "other programs changed" server.log || fail "the server's own headers count as a change by others: $(cat server.log)"
[ "$(grep -c "could not be read: vm2" server.log)" = 1 ] || fail "not reported exactly once: $(cat server.log)"
[ "$(grep -c "still held back" server.log)" -le 2 ] || fail "reported every second: $(cat server.log)"
crash

rm -f disk.img flash.img first.img
truncate -s 65M disk.img
kit file disk.img
start
io 'write -P 1 0 64k' flush
: >server.log
"$FOREBAY" ctl quiesce --for 1s --config forebay.toml >/dev/null
kill -STOP "$KIT"
sleep 10
said "requests to volume vm2 are still held back"
io 'write -P 2 0 64k' flush 'read -P 2 0 64k'
kill -TERM "$SERVER"
ends_in 30 || fail "a signal does not end a server whose store hangs"
said "the state of the stores could not be recorded"
kill -CONT "$KIT"
unkit

# A store that is slow, but answers, loses nothing that is cached, however long a comparison takes.
rm -f disk.img flash.img first.img
truncate -s 65M disk.img
kit --filter=delay file disk.img rdelay=1
: >server.log
start
of vm2 'write -P 1 0 64k' flush
"$FOREBAY" ctl quiesce --config forebay.toml >/dev/null
began=$SECONDS
"$FOREBAY" ctl quiesce --resume --config forebay.toml >/dev/null || fail "a slow store is held: $(cat server.log)"
[ $((SECONDS - began)) -gt 10 ] || fail "the export is not slow"
of vm2 'write -P 2 0 64k' flush 'read -P 2 0 64k'
! grep -q "cached data was dropped" server.log || fail "a slow store counts as changed: $(cat server.log)"
stop || fail "$(cat server.log)"
unkit

# An export that came back smaller, with nothing dirty: it is used, without what was cached of it.
rm -f disk.img flash.img
truncate -s 65M disk.img
kit file disk.img
config flash dram=4MiB flash_size=24MiB size= backing="$EXPORT"
start
io 'write -P 1 0 64k' flush
stop || fail "$(cat server.log)"
unkit
truncate -s 60M disk.img
kit file disk.img
: >server.log
start || fail "a smaller export is rejected: $(cat server.log)"
said "clean cached data"
io 'read -P 1 0 64k'
stop || fail "$(cat server.log)"
unkit

# A start that compares a slow export with its note can be stopped.
rm -f disk.img flash.img
truncate -s 65M disk.img
kit file disk.img
start
stop || fail "$(cat server.log)"
unkit
kit --filter=delay file disk.img rdelay=2
"$FOREBAY" serve --config forebay.toml >ready 2>>server.log &
SERVER=$!
sleep 16
[ ! -s ready ] || fail "the export is not slow"
kill -TERM "$SERVER"
ends_in 15 || fail "a start that waits for a slow export cannot be stopped"
unkit

# The other server is killed: first one that keeps everything it acknowledged, then one that loses
# what it was not told to flush.
config flash dram=4MiB flash_size=24MiB size=64MiB backing="$EXPORT"
for how in "file disk.img" "--filter=cache file disk.img cache=writeback"; do
    rm -f disk.img flash.img
    truncate -s 65M disk.img
    # shellcheck disable=SC2086
    python3 "$HERE/kill9.py" "$FOREBAY" forebay.toml "${FOREBAY_KILLS:-8}" acknowledged \
        "$STORE" nbdkit -f -U "$STORE" $how
done
