# Every invalid input: a clear error, the right exit status, and nothing written.
. "$(dirname "$0")/lib.sh"
need qemu-io
serve() { "$FOREBAY" serve --config forebay.toml "$@"; }
untouched() { [ "$(md5sum <"$1")" = "$(cat "$1.md5")" ] || fail "$1 was written to"; }
remember() { md5sum <"$1" >"$1.md5"; }

refused 2 'forebay.toml' "$FOREBAY" serve --config forebay.toml
config; sed -i 's/dram =/darm =/' forebay.toml
refused 2 'closest name is .dram' serve
config; sed -i '/^size/d' forebay.toml
refused 1 'disk.img' serve
[ ! -e disk.img ] || fail "a file was created"

# Foreign data where the header would be.
config; head -c 300M /dev/urandom >disk.img; remember disk.img
refused 1 'Forebay did not write' serve
untouched disk.img
rm -f disk.img; truncate -s 1M disk.img
refused 1 'too small' serve
rm -f disk.img

# A store in use.
config; start
sed 's|nbd.sock|nbd2.sock|; s|control.sock|control2.sock|' forebay.toml >second.toml
refused 1 'in use' "$FOREBAY" serve --config second.toml
stop

# The flash tier: foreign data, dirty data, another store, an older copy.
rm -f disk.img; config flash; head -c 64M /dev/urandom >flash.img; remember flash.img
refused 1 'not a Forebay flash tier' serve
untouched flash.img
rm -f flash.img disk.img
start
io 'write -P 5 0 4M' flush
crash
cp flash.img dirty-flash.img; cp disk.img dirty-disk.img
remember flash.img; remember disk.img
refused 1 'dirty blocks' serve --format
untouched flash.img
mv disk.img other.img
refused 1 'dirty data' serve
untouched flash.img
mv other.img disk.img
config
refused 1 'newer data' serve
untouched disk.img
config flash
start; crash
cp flash.img newer-flash.img
cp dirty-flash.img flash.img
remember disk.img
refused 1 'older' serve
untouched disk.img
cp newer-flash.img flash.img
cp dirty-disk.img disk.img
refused 1 'older' serve
cp dirty-flash.img flash.img
start
io 'read -P 5 0 4M'
stop

# The settings with which the tier and the store were set up have changed.
cp dirty-flash.img flash.img; cp dirty-disk.img disk.img; remember flash.img; remember disk.img
sed -i 's/^dram =/block_size = "8KiB"\ndram =/' forebay.toml
refused 1 'blocks of 4 KiB' serve
refused 1 'blocks of 4 KiB' "$FOREBAY" flash recover flash.img --config forebay.toml
untouched flash.img; untouched disk.img
for layout in none tail; do
    config flash layout=$layout
    refused 1 'layout = "offset"' serve
    config layout=$layout
    refused 1 'layout = "offset"' serve
    untouched flash.img; untouched disk.img
done
config flash size=1MiB
refused 1 'previous size' serve
untouched flash.img
config flash

# Impossible sizes.
config
for size in 18446744073709551104 8EiB; do
    sed -i "s|^size = .*|size = \"$size\"|" forebay.toml
    refused 2 'size in the first .*volume.* is too large' serve
done
sed -i 's|^size = .*|size = 512|' forebay.toml
rm disk.img
start
[ "$(nbdinfo --size "$URI")" = 512 ] || fail "a volume of a sector has $(nbdinfo --size "$URI") bytes"
stop
config flash
sed -i 's|^size = "64MiB"|size = "64MiB"\nactivity_extents = 7001|' forebay.toml
refused 2 'activity_extents.*from 1 to 7000' serve
cp dirty-flash.img flash.img; cp dirty-disk.img disk.img; remember flash.img; remember disk.img

# More memory than the machine has: the error names the way out, not one that would not help.
config flash dram=15TiB
rm -f flash.img disk.img
refused 1 'cache.dram is 15 TiB, but this machine .*: reduce cache.dram' serve
[ ! -e flash.img ] && [ ! -e disk.img ] || fail "a refused start left files behind"
# A start that gets no memory leaves no files behind, and does not change existing ones.
config flash dram=2GiB
rm -f flash.img disk.img
(ulimit -v $((1 << 20)); refused 1 'memory' serve)
[ ! -e flash.img ] && [ ! -e disk.img ] || fail "a refused start left files behind"
cp dirty-flash.img flash.img; cp dirty-disk.img disk.img; remember flash.img; remember disk.img
(ulimit -v $((1 << 20)); refused 1 'memory' serve)
untouched flash.img; untouched disk.img
config flash

# Lost headers of durable batches, on a tier without dirty data.
rm -f flash.img disk.img
config flash
start
io 'write -P 5 0 24M' flush
stop
python3 - <<'END'
with open("flash.img", "r+b") as flash:
    flash.seek(5 << 20)
    flash.write(bytes(1 << 20))
END
remember flash.img
refused 1 'is damaged: .* batches lost.*--format' serve
untouched flash.img
start --format
io 'read -P 5 0 24M'
stop

# Dirty data is given up on explicit request.
cp dirty-flash.img flash.img; cp dirty-disk.img disk.img
start --format --discard-dirty-data
io 'read -P 0 0 4M'
stop
refused 1 'not a Forebay flash tier' "$FOREBAY" flash info disk.img
refused 1 'cannot open' "$FOREBAY" flash info nowhere.img
refused 1 'cannot open' "$FOREBAY" backing info nowhere.img
head -c 4M /dev/urandom >noise.img
refused 1 'noise.img has no Forebay header' "$FOREBAY" backing info noise.img
