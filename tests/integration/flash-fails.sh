# Flash runs out of space while it is used: no client sees an error. All dirty data is then on the
# stores, which are served without flash, and the next start takes nothing from flash. For both
# layouts of flash, and under write-back and write-through.
. "$(dirname "$0")/lib.sh"
need qemu-io python3 mount
mkdir small
mount -t tmpfs -o size=8M tmpfs small 2>/dev/null || skip "no mounts here"
more_cleanup() {
    wait || true
    umount -l "$WORK/small"
}
# fill_flash PATTERN OFFSET: writes to vm1 until both volumes run without flash.
fill_flash() {
    for _ in $(seq 50); do
        [ "$(which pass_through)" != "vm1 vm2" ] || return 0
        of vm1 "write -P $1 $2 16M" flush
        sleep 0.1
    done
    fail "not without flash: $(status)"
}

for layout in log slots; do
    for policy in write-back write-through; do
        # A sparse file: the file system has room for an eighth of it.
        truncate -s 64M small/flash.img
        config size=256MiB dram=4MiB policy="$policy" flash=
        cat >>forebay.toml <<TOML
[[volume]]
name = "vm2"
backing = "$WORK/vm2.img"
size = "256MiB"
[flash]
path = "$WORK/small/flash.img"
size = "64MiB"
layout = "$layout"
TOML
        start
        of vm1 'write -P 0x11 0 2M' flush
        of vm2 'write -P 0x12 0 1M' flush
        for round in 1 2 3 4; do
            of vm1 "write -P 0xa$round 0 16M" "read -P 0xa$round 0 16M" flush
            of vm2 "write -P 0xb$round 1M 16M" "read -P 0xb$round 1M 16M" flush
        done
        fill_flash 0xa5 0
        ctl status | grep -q 'run without flash' || fail "status does not say so: $(status)"
        of vm1 'write -P 0xa6 4k 8M' 'write -z 12M 1M' flush 'read -P 0xa6 4k 8M' 'read -P 0 12M 1M'
        of vm2 'read -P 0x12 0 1M' 'read -P 0xb4 1M 16M'
        [ -z "$(which dirty_blocks)" ] || fail "something is dirty: $(status)"
        # Orders of an operator work as before.
        ctl quiesce
        ctl resume
        ctl invalidate vm1
        of vm1 'read -P 0xa6 4k 8M' 'write -P 0xa8 20M 1M' flush 'read -P 0xa8 20M 1M'
        # The next start, after a kill and after a stop, takes no older data from flash.
        crash
        start
        of vm1 'read -P 0xa6 4k 8M' 'read -P 0 12M 1M'
        of vm2 'read -P 0x12 0 1M' 'read -P 0xb4 1M 16M' "write -P 0xc1 0 16M" flush
        fill_flash 0xa7 32M
        of vm2 "write -P 0xc2 0 16M"
        stop
        said 'run without flash'
        # The stores have all data.
        qemu-io -f raw -r -c 'read -P 0xc2 1M 16M' vm2.img >io.out 2>&1 || fail "$(cat io.out)"
        ! grep -qi 'verification failed' io.out || fail "$(cat io.out)"
        start
        of vm1 'read -P 0xa6 4k 8M'
        of vm2 'read -P 0xc2 0 16M'
        stop
        rm -f small/* ./*.img
    done
done
