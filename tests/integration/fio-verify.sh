# fio writes and verifies at random offsets: mixed sizes, deep queues, several connections, on a
# cache far smaller than the disk.
. "$(dirname "$0")/lib.sh"
need fio
fio --enghelp=nbd >/dev/null 2>&1 || skip "fio has no nbd engine"
config flash dram=8MiB flash_size=48MiB
job() {
    local name=$1
    shift
    fio --name="$name" --ioengine=nbd --uri="$URI" --verify=crc32c --verify_fatal=1 \
        --verify_state_save=0 --output=fio.out "$@" || fail "$name: $(tail -20 fio.out)"
}
start
job random --rw=randwrite --bs=4k --iodepth=32 --size=128M
job mixed --rw=randrw --bsrange=512-64k --bs_unaligned=0 --blockalign=512 --iodepth=32 --size=64M
job four --rw=randwrite --bs=4k --iodepth=16 --size=32M --numjobs=4 --offset_increment=32M --group_reporting
job large --rw=write --bs=1M --iodepth=4 --size=128M --fsync=16
stop
