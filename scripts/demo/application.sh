# A real application on the cache: SQLite on ext4, through nbdfuse and a loop device, or fio over
# NBD where that is not possible. Sourced by scripts/demo.sh.
# shellcheck disable=SC2154 # the script that sources this sets $scratch and $out

LOOP=
NBDFUSE=
MOUNTED=

TRANSACTIONS=4000
FIO_SECONDS=40

# Prints why SQLite on ext4 is not possible here; prints nothing if it is.
why_no_ext4() {
    local lacking
    lacking="$(missing nbdfuse fusermount3 losetup mkfs.ext4 python3)"
    if [ "$(id -u)" != 0 ]; then
        say "mounting needs root"
    elif [ -n "$lacking" ]; then
        say "$lacking is missing"
    elif [ ! -e /dev/fuse ]; then
        say "/dev/fuse is missing"
    elif ! losetup --find >/dev/null 2>&1; then
        say "no loop device is free"
    fi
}

# Attaches the export to a loop device, $LOOP. Without direct I/O the page cache of this machine
# would answer instead of Forebay.
attach_disk() {
    mkdir -p "$scratch/fuse" "$scratch/mnt"
    setsid nbdfuse "$scratch/fuse/disk" --unix "$scratch/nbd.sock" >"$scratch/nbdfuse.log" 2>&1 &
    NBDFUSE=$!
    for _ in $(seq 200); do
        [ ! -e "$scratch/fuse/disk" ] || break
        sleep 0.05
    done
    LOOP="$(losetup --find --show --direct-io=on "$scratch/fuse/disk")"
}

mount_disk() {
    mount -o noatime "$1" "$scratch/mnt"
    MOUNTED=1
}

# Removes everything that attach_disk and mount_disk set up. Failures at the end do not matter.
detach_disk() {
    if [ -n "$MOUNTED" ]; then umount "$scratch/mnt" && MOUNTED=; fi
    if [ -n "$LOOP" ]; then losetup -d "$LOOP" && LOOP=; fi
    if [ -n "$NBDFUSE" ]; then
        fusermount3 -u "$scratch/fuse"
        wait "$NBDFUSE"
        NBDFUSE=
    fi
}

# Fills a new ext4 with the shop's items, at the full speed of this machine.
prepare_sqlite() {
    configure "$scratch/prepare.toml" $((16 << 20)) $((64 << 20))
    serve "$scratch/prepare.toml"
    attach_disk
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$LOOP"
    mount_disk "$LOOP"
    python3 scripts/demo/shop.py load "$scratch/mnt/shop.db"
    detach_disk
    stop_server
}

# Runs the shop on the slow disk and records its requests.
record_sqlite() {
    configure "$scratch/serve.toml" $((16 << 20)) $((64 << 20)) shape="$BACKING"
    serve "$scratch/serve.toml" --record "$1"
    attach_disk
    mount_disk "$LOOP"
    say "    $(python3 scripts/demo/shop.py run "$scratch/mnt/shop.db" "$TRANSACTIONS")"
    server_status >"$out/live.json"
    detach_disk
    stop_server
}

# Checks that the data written back by the cache form a sound file system: it starts 1 MiB into the
# backing file, after the header.
check_sqlite() {
    LOOP="$(losetup --find --show --read-only --offset $((1 << 20)) "$scratch/disk.img")"
    e2fsck -fn "$LOOP" >"$scratch/fsck.log" 2>&1 || { cat "$scratch/fsck.log" >&2; fail "fsck found errors"; }
    MOUNTED=1
    mount -o ro,noload "$LOOP" "$scratch/mnt"
    say "    the backing file alone: fsck finds no errors, $(python3 scripts/demo/shop.py check \
        "$scratch/mnt/shop.db" "$TRANSACTIONS")"
    detach_disk
}

# Where SQLite cannot run: a mix of skewed reads and writes by fio.
record_fio() {
    configure "$scratch/serve.toml" $((16 << 20)) $((64 << 20)) shape="$BACKING" size=$((256 << 20))
    serve "$scratch/serve.toml" --record "$1"
    fio --name=mix --ioengine=nbd --uri="nbd+unix:///?socket=$scratch/nbd.sock" --rw=randrw \
        --rwmixread=80 --bsrange=4k-16k --random_distribution=zipf:1.1 --iodepth=4 --size=256m \
        --time_based --runtime="$FIO_SECONDS" --fsync=32 --randseed=20261 >"$scratch/fio.log" 2>&1 \
        || { tail -n 5 "$scratch/fio.log" >&2; fail "fio failed"; }
    say "    $(grep -E '^ *(read|write):' "$scratch/fio.log" | tr -s ' ' | tr '\n' ';')"
    server_status >"$out/live.json"
    stop_server
}
