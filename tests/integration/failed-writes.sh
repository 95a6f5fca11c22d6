# A failed write reads as old or new data, sector by sector, and then stays that way: after other
# blocks have replaced it in memory, after a stop, and after a kill, unless the stop reports that
# the new data is lost. The failing device is a backing store under write-through, or flash under
# write-back; none, half or all of the write has reached it.
. "$(dirname "$0")/lib.sh"
need nbdkit nbdfuse qemu-io python3
[ "$(id -u)" = 0 ] || skip "not root"
[ -e /dev/fuse ] || skip "no /dev/fuse"
nbdkit eval --dump-plugin >/dev/null 2>&1 || skip "nbdkit here has no eval"
unmount() { fusermount3 -u -z "$1" 2>/dev/null || umount -l "$1" 2>/dev/null || true; }
release() {
    [ -z "${device:-}" ] || unmount "$device"
    [ ! -s device.pid ] || kill -KILL "$(cat device.pid)" 2>/dev/null || true
    rm -f device.pid
}
more_cleanup() { release; }
# failing_device NAME SIZE SPARED: serves the file NAME/nbd. While the file `failing` exists, it
# contains a percentage: so much of each write is stored, and the write fails. Writes that begin in
# the first SPARED bytes, the header of a store, succeed.
failing_device() {
    device=$1
    rm -f device.raw device.sock
    truncate -s "$2" device.raw
    mkdir -p "$1"
    # shellcheck disable=SC2016
    nbdkit -U "$WORK/device.sock" -P "$WORK/device.pid" eval \
        open='cd '"$WORK"'; echo ok' \
        get_size='echo '"$(stat -c %s device.raw)" \
        can_write='exit 0' can_flush='exit 0' flush='exit 0' can_multi_conn='exit 0' \
        pread='dd if='"$WORK"'/device.raw bs=$3 skip=$4 count=1 iflag=skip_bytes status=none' \
        pwrite='raw='"$WORK"'/device.raw spared='"$3"'
            percent=100
            [ $4 -lt $spared ] || read -r percent <'"$WORK"'/failing 2>/dev/null || percent=100
            dd of=$raw bs=64k conv=notrunc seek=$4 count=$(($3 * percent / 100)) \
                iflag=count_bytes,fullblock oflag=seek_bytes status=none
            [ $4 -lt $spared ] || [ ! -e '"$WORK"'/failing ] || { echo "EIO as told" >&2; exit 1; }'
    nbdfuse "$1" "nbd+unix:///?socket=$WORK/device.sock" >>fuse.log 2>&1 &
    for _ in $(seq 100); do [ -e "$1/nbd" ] && return 0; sleep 0.05; done
    skip "nbdfuse cannot mount here: $(tail -1 fuse.log)"
}
# look FILE: writes the version of each sector of the first 64 KiB to FILE; each must be old or new
# as a whole.
look() {
    python3 -B - "$HERE" "$1" <<'END' || fail "see above"
import sys
sys.path.insert(0, sys.argv[1])
from nbdsocket import connect, request, take
s = connect("nbd.sock")
s.sendall(request(0, 0, 65536))
assert bytes(take(s, 16))[4:8] == bytes(4), "the read failed"
data = take(s, 65536)
sectors = [data[at : at + 512] for at in range(0, 65536, 512)]
for n, sector in enumerate(sectors):
    assert set(sector) in ({1}, {2}), f"sector {n} is a mixture, or neither old nor new"
open(sys.argv[2], "w").write("".join(str(sector[0]) for sector in sectors))
END
}
same() { look now && cmp -s now first || fail "$how: reads differently $1: $(cat first) $(cat now)"; }

for case in store/log store/slots flash/log flash/slots; do
    for percent in 0 50 100; do
        for then in read kill; do
            how="$case, $percent % landed, then a $then"
            rm -f disk.img flash.img failing
            release
            case $case in
                store/*)
                    failing_device store 4M 1048576
                    config flash dram=1MiB flash_size=16MiB size= policy=write-through backing="$WORK/store/nbd"
                    ;;
                flash/*)
                    failing_device tier 16M 0
                    # (With a header, the store would be served without flash, and the write would
                    # not fail.)
                    config flash dram=1MiB flash_size=16MiB size=3MiB layout=none
                    sed -i "s|^path = .*|path = \"$WORK/tier/nbd\"|" forebay.toml
                    ;;
            esac
            sed -i "s|^layout=.*|layout=\"${case#*/}\"|" forebay.toml
            start
            # The old data, in memory and, if there is no room for it and the rest, on flash.
            io 'write -P 1 0 64k' flush 'read -P 1 0 64k' 'read 1M 1M' 'read -P 1 0 64k'
            : >server.log
            echo $percent >failing
            fails 'write -P 2 0 64k'
            rm failing
            case $then in
                read)
                    look first
                    same "the second time"
                    io 'read 1M 2M'
                    same "when it has left memory"
                    : >server.log
                    if stop; then
                        start
                        same "after a stop"
                    else
                        # Data that flash did not accept was only in memory, and the client was told
                        # of the failure.
                        grep -q 'unacknowledged writes to 16 blocks are lost' server.log \
                            || fail "$how: the stop failed: $(cat server.log)"
                        start
                        look first
                    fi
                    ;;
                kill)
                    crash
                    start
                    look first
                    ;;
            esac
            io 'read 1M 2M'
            same "when it has left memory again"
            crash
            start
            same "after a kill"
            io 'write -P 3 0 64k' flush 'read -P 3 0 64k'
            stop
            echo "$how: $(fold -w 16 first | sort | uniq -c | tr -s '\n ' ' ')"
        done
    done
done
