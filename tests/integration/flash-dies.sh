# A flash device dies under load: all its operations fail until it is back, with the contents it had
# when it died. If a volume has nothing dirty there, none of its clients sees an error, its store
# has all data, and the next start takes nothing from flash. If a volume is dirty there, the dirty
# data waits for the device.
. "$(dirname "$0")/lib.sh"
need nbdkit nbdfuse qemu-io python3
[ "$(id -u)" = 0 ] || skip "not root"
[ -e /dev/fuse ] || skip "no /dev/fuse"
nbdkit --filter=error null --dump-plugin >/dev/null 2>&1 || skip "nbdkit here has no filter for errors"
release() {
    [ ! -d tier ] || fusermount3 -u -z tier 2>/dev/null || umount -l tier 2>/dev/null || true
    [ ! -s tier.pid ] || kill -KILL "$(cat tier.pid)" 2>/dev/null || true
    rm -f tier.pid tier.sock
}
more_cleanup() { release; }
# mount_tier: serves the file tier/nbd, which fails while the file `dead` exists.
mount_tier() {
    mkdir -p tier
    nbdkit -U "$WORK/tier.sock" -P "$WORK/tier.pid" --filter=error file tier.raw \
        error=EIO error-rate=100% error-file="$WORK/dead"
    nbdfuse tier "nbd+unix:///?socket=$WORK/tier.sock" >>fuse.log 2>&1 &
    for _ in $(seq 100); do [ -e tier/nbd ] && return 0; sleep 0.05; done
    skip "nbdfuse cannot mount here: $(tail -1 fuse.log)"
}

for layout in log slots; do
    for policy in write-through write-back; do
        for end in kill stop replaced; do
            how="$layout, $policy, $end"
            rm -f dead disk.img
            truncate -s 32M tier.raw
            mount_tier
            config flash dram=2MiB size=16MiB flash_size=32MiB policy="$policy" flash_layout="$layout"
            sed -i -e "s|^path = .*|path = \"$WORK/tier/nbd\"|" \
                forebay.toml
            start
            io 'write -P 0x11 0 8M' flush 'read -P 0x11 0 8M'
            ctl destage
            touch dead
            # Blocks that are on flash, and others.
            io 'write -P 0x22 0 4M' flush 'read -P 0x22 0 4M' 'read -P 0x11 4M 4M' \
                'write -P 0x33 10M 2M' 'write -z 1M 256k' flush 'read -P 0 1M 256k' 'read -P 0x33 10M 2M'
            [ "$(which pass_through)" = vm1 ] || fail "$how: $(status)"
            [ -z "$(which dirty_blocks)" ] || fail "$how: something is dirty: $(status)"
            case $end in
                kill | replaced) crash ;;
                stop) stop || true ;;
            esac
            rm dead
            # (Without the flash device in the configuration, the store is served as it is, without
            # any flag.)
            [ "$end" != replaced ] || config dram=2MiB size=16MiB policy="$policy"
            start
            io 'read -P 0x22 0 1M' 'read -P 0 1M 256k' 'read -P 0x22 1280k 2816k' 'read -P 0x11 4M 4M' \
                'read -P 0x33 10M 2M' 'write -P 0x44 0 8M' flush 'read -P 0x44 0 8M'
            [ -z "$(which pass_through)" ] || fail "$how: flash is not in use again"
            stop
            release
            rm -f tier.raw
        done
    done
done
