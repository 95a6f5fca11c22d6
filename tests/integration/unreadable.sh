# One dirty block that flash cannot return: it is named, and everything else keeps working. Writes
# succeed after the log has wrapped several times, the rest is destaged, a restart remembers the
# block, and a write heals it.
. "$(dirname "$0")/lib.sh"
need qemu-io python3
config flash size=256MiB flash_size=64MiB dram=4MiB
start
# spoil PATTERN: changes a byte of the only page of the flash device that is full of this pattern.
spoil() {
    python3 - "$1" <<'EOF'
import sys
pattern = bytes([int(sys.argv[1], 0)]) * 4096
with open("flash.img", "r+b") as flash:
    data = flash.read()
    at = data.find(pattern)
    assert at > 0 and at % 4096 == 0, "the record is not on flash"
    assert data.find(pattern, at + 4096) < 0, "more than one record"
    flash.seek(at + 1000)
    flash.write(b"?")
EOF
}
io 'write -P 0x11 0 4k' 'write -P 0x99 40k 4k' flush
# Replaces the block in memory.
io 'write -P 0x22 64M 8M' flush
spoil 0x99
fails 'read -P 0x99 40k 4k'
# Three times the size of the flash device: the region of the block is reused.
for round in 1 2 3; do
    io "write -P 0x3$round 128M 64M" flush
done
io 'read -P 0x33 128M 64M' 'read -P 0x11 0 4k' 'read -P 0x22 64M 8M'
fails 'read -P 0x99 40k 4k'
refused 1 'block 10 ' ctl destage
[ "$(status | python3 -c '
import json, sys
print(sum(v["dirty_blocks"] for v in json.load(sys.stdin)["volumes"]))')" = 1 ] || fail "more than that is dirty: $(status)"
# A restart remembers the block, whether or not there was time for a stop.
crash
start
fails 'read -P 0 40k 4k'
io 'read -P 0x33 128M 64M'
refused 1 'stopped, but .*block 10 ' ctl stop
! wait "$SERVER" || fail "a stop that leaves a block behind must say so"
SERVER=
said 'block 10 '
start
fails 'read -P 0 40k 4k'
io 'write -P 0x44 40k 4k' flush 'read -P 0x44 40k 4k'
ctl destage
stop
