# A store without room: the other volume is not affected; this one waits, then fails, and works
# again when there is room, without a restart. For both layouts of flash.
. "$(dirname "$0")/lib.sh"
need qemu-io python3 mount
mkdir small
mount -t tmpfs -o size=24M tmpfs small 2>/dev/null || skip "no mounts here"
more_cleanup() {
    wait || true
    umount -l "$WORK/small"
}


for layout in log slots; do
    config size=256MiB dram=4MiB backing="$WORK/small/disk.img"
    cat >>forebay.toml <<EOF
[[volume]]
name = "vm2"
backing = "$WORK/vm2.img"
size = "256MiB"
[flash]
path = "$WORK/flash.img"
size = "32MiB"
layout = "$layout"
[flush]
give_up_after = "3s"
EOF
    start
    # The header of the store exists; there is room for nothing else.
    head -c 64M /dev/zero >small/filler 2>/dev/null || true
    of vm1 'write -P 0x11 0 8M' flush
    # Ten times the size of the flash device.
    for round in 1 2 3 4 5 6 7 8 9 a; do
        of vm2 "write -P 0xb$round 0 32M" flush
    done
    of vm2 'read -P 0xba 0 32M'
    of vm1 'read -P 0x11 0 8M'
    [ -z "$(which suspended)" ] || fail "no client waited for the store"
    # Its share of flash is full: its writes wait, then fail, and a failed write does not count as
    # written.
    of vm1 fails 'write -P 0x22 64M 32M'
    [ "$(which suspended)" = vm1 ] || fail "$(status)"
    of vm1 fails 'write -P 0x33 128M 4k'
    of vm1 'read -P 0x11 0 8M'
    of vm2 'write -P 0xcc 0 32M' flush 'read -P 0xcc 0 32M'
    refused 1 'volume vm1' ctl destage
    [ "$(which dirty_blocks)" = vm1 ] || fail "the data of vm2 could be destaged: $(status)"
    # All of this survives a kill.
    crash
    start
    of vm1 'read -P 0x11 0 8M'
    of vm2 'read -P 0xcc 0 32M' 'write -P 0xdd 0 32M' flush
    # There is room again.
    rm small/filler
    mount -o remount,size=256M small
    ctl resume
    of vm1 'write -P 0x44 64M 32M' flush 'read -P 0x44 64M 32M' 'read -P 0x11 0 8M'
    [ -z "$(which suspended)" ] || fail "still suspended: $(status)"
    ctl destage
    [ -z "$(which dirty_blocks)" ] || fail "something is dirty: $(status)"
    stop
    said 'volume vm1'
    rm -f flash.img vm2.img small/*
    mount -o remount,size=24M small
done
