# Backing stores behind NBD with large blocks: accesses to the header and the fingerprint respect
# them.
. "$(dirname "$0")/lib.sh"
need nbdkit nbdinfo qemu-io python3
nbdkit --filter=blocksize-policy null --dump-plugin >/dev/null 2>&1 || skip "nbdkit here has no blocksize-policy"
in_blocks() { # in_blocks MINIMUM: serves disk.img in blocks of this size, and rejects all else
    kit --filter=blocksize-policy file disk.img \
        blocksize-minimum="$1" blocksize-preferred=64K blocksize-error-policy=error
}
# change_piece START SIZE: changes, as another program would, the data covered by one piece of the
# fingerprint (crates/engine/src/fingerprint.rs) that begins within a block, for a volume of SIZE
# bytes at START.
change_piece() {
    python3 - "$1" "$2" <<'END'
import sys
start, size = map(int, sys.argv[1:])
whole = (1 << 64) - 1
stride = (size - (2 << 20)) // 256 // 512 * 512
for n in range(256):
    mix = (size ^ n * 0x9E3779B97F4A7C15 & whole) * 0xBF58476D1CE4E5B9 & whole
    at = (1 << 20) + n * stride + (mix >> 16) % (stride - 4095) // 512 * 512
    if at >= 9 << 20 and at % 4096:
        break
with open("disk.img", "r+b") as disk:
    disk.seek(start + at)
    disk.write(b"\x77" * 4096)
print(at)
END
}

for minimum in 4K 64K; do
    for layout in offset tail none; do
        rm -f disk.img flash.img
        truncate -s 65M disk.img
        : >server.log
        in_blocks $minimum
        config flash dram=4MiB flash_size=32MiB backing="$EXPORT" size= layout=$layout
        start || fail "no start with blocks of $minimum and layout $layout: $(cat server.log)"
        io 'write -P 1 8M 16M' 'write -P 2 1000k 512' flush 'read -P 1 8M 16M'
        stop
        # Unchanged since Forebay used it: the contents of flash are valid.
        start || fail "no second start with blocks of $minimum and layout $layout: $(cat server.log)"
        ! grep -q "used without Forebay" server.log || fail "its own store looks changed: $(cat server.log)"
        io 'read -P 1 8M 16M' 'read -P 2 1000k 512'
        stop
        [ $layout = none ] || "$FOREBAY" backing info "$EXPORT" | grep -q "unchanged since Forebay last used" ||
            fail "backing info: $("$FOREBAY" backing info "$EXPORT")"
        # Another program changes the store, and thus the fingerprints of both records.
        size=$(nbdinfo --size "$EXPORT")
        case $layout in
            offset) changed=$(change_piece $((1 << 20)) $((size - (1 << 20)))) ;;
            tail) changed=$(change_piece 0 $((size - (1 << 20)))) ;;
            none) changed=$(change_piece 0 "$size") ;;
        esac
        start
        said "used without Forebay"
        io "read -P 0x77 $changed 4096"
        stop
        # The header of one layout is given up for another layout.
        case $layout in offset) other="tail" ;; tail) other=none ;; none) other=offset ;; esac
        rm -f flash.img
        sed -i "s/^layout = .*/layout = \"$other\"/" forebay.toml
        start --format || fail "no start after the layout changed from $layout: $(cat server.log)"
        stop
        start
        stop
        unkit
    done
done

# The header at the former end of an enlarged store is found, and given up, although it is within a
# block.
rm -f disk.img
truncate -s $((65 * 1024 + 4))K disk.img
in_blocks 4K
config dram=4MiB backing="$EXPORT" size= layout=tail
start
io 'write -P 5 65527k 8k' flush
stop
unkit
truncate -s 66M disk.img
in_blocks 64K
refused 1 "at the old end" "$FOREBAY" serve --config forebay.toml
start --format
io 'read -P 5 65527k 8k'
stop
"$FOREBAY" backing info "$EXPORT" | grep -q "dirty *no" || fail "no header at the new end"
unkit
