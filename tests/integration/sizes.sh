# Devices that come back shorter or longer: shorter ones are rejected without a write; longer ones
# are used.
. "$(dirname "$0")/lib.sh"
need qemu-io nbdinfo
serve() { timeout 60 "$FOREBAY" serve --config forebay.toml "$@"; }
config flash size= flash_size=64MiB
truncate -s 65M disk.img
start
io 'write -P 1 0 4M' 'write -P 2 60M 4M' flush
crash
# The tier is shorter.
md5sum disk.img >sum
cp --sparse=always flash.img flash.whole
truncate -s 60M flash.img
refused 1 'flash.img' serve
md5sum --quiet -c sum || fail "the store was written to"
cmp -n $((60 << 20)) flash.img flash.whole || fail "the tier was written to"
cp --sparse=always flash.whole flash.img
# The store is shorter, with dirty data beyond its end.
cp --sparse=always disk.img disk.whole
truncate -s 60M disk.img
refused 1 'disk.img|vm1' serve
cmp flash.img flash.whole || fail "the tier was written to"
cp --sparse=always disk.whole disk.img
start
io 'read -P 1 0 4M' 'read -P 2 60M 4M'
crash
# Both are longer: the tier keeps its former size, the volume has its new one.
truncate -s 80M flash.img
truncate -s 129M disk.img
start
[ "$(nbdinfo --size "$URI")" = $((128 << 20)) ] || fail "the volume has $(nbdinfo --size "$URI") bytes"
io 'read -P 1 0 4M' 'read -P 2 60M 4M' 'read -P 0 64M 64M' 'write -P 3 120M 8M' flush
crash
start
io 'read -P 1 0 4M' 'read -P 2 60M 4M' 'read -P 3 120M 8M'
stop
cmp -n $((8 << 20)) <(tail -c 8M disk.img) <(head -c 8M /dev/zero | tr '\0' '\3') || fail "not on the store"
# A volume is enlarged whose store has more data, and whose last block extends beyond the old end:
# this is rejected while that block is dirty; afterwards the data beyond the former end appear.
rm disk.img flash.img
FORMER=$((8 * 1024 * 1024 + 1024))
of_size() {
    config flash size="$1" flash_size=16MiB
    sed -i 's/^\[cache\]/&\nblock_size = "64KiB"/' forebay.toml
}
of_size 16MiB
start --destage
io 'write -P 4 0 16M'
stop
rm flash.img
of_size "${FORMER}B"
start --destage --format
io 'write -P 5 8M 512' 'read -P 4 8389120 512' flush
crash
of_size 16MiB
refused 1 "vm1 has grown from $FORMER bytes.*then enlarge the volume" serve
of_size "${FORMER}B"
start --destage
stop
of_size 16MiB
start
said 'clean cached data was dropped'
io 'read -P 5 8M 512' 'read -P 4 8389120 8388096'
stop

# A file that was enlarged while flash had dirty data, and shortened again: its contents are the
# former ones, but its modification time is not. The advice of both errors is the way back.
for layout in tail offset; do
    rm -f disk.img flash.img
    truncate -s 64M disk.img
    config flash size= layout=$layout
    start --format || fail "$(cat server.log)"
    io 'write -P 7 0 4M' flush
    ctl stop --keep-dirty >/dev/null
    wait "$SERVER" || fail "the stop failed"
    SERVER=
    truncate -s +10M disk.img
    refused 1 'start( the server)? with --drop-clean' "$FOREBAY" serve --config forebay.toml
    truncate -s -10M disk.img
    refused 1 'only the file.s modification time has changed.*start with --drop-clean' \
        "$FOREBAY" serve --config forebay.toml
    start --drop-clean || fail "$(cat server.log)"
    ctl stop --destage >/dev/null
    wait "$SERVER" || fail "the stop failed"
    SERVER=
    "$FOREBAY" backing info --json disk.img | grep -q '"dirty": false' || fail "not destaged"
    start
    io 'read -P 7 0 4M'
    stop
done
