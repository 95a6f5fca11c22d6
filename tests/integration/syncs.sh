# Syncs that the kernel receives, through io_uring and through threads: no reply to FUA or FLUSH
# before a sync of the right file that began after the end of the write; headers synced before the
# first client and before the reply to a change of policy; the clean mark written after the sync of
# the last data.
. "$(dirname "$0")/lib.sh"
need nbdkit nbdfuse python3
[ "$(id -u)" = 0 ] || skip "not root"
[ -e /dev/fuse ] || skip "no /dev/fuse"
for filter in log delay; do
    nbdkit --filter=$filter null --dump-plugin >/dev/null 2>&1 || skip "nbdkit here has no $filter"
done
# Files whose server records when each write and flush arrives and ends. Writes are delayed, so that
# a sync that does not wait for them comes too early.
unmount() { fusermount3 -u -z "$1" 2>/dev/null || umount -l "$1" 2>/dev/null || true; }
more_cleanup() {
    for name in store flash; do
        unmount $name
        [ ! -s $name.pid ] || kill -KILL "$(cat $name.pid)" 2>/dev/null || true
    done
}
serve_file() { # serve_file NAME SIZE
    rm -f "$1".{raw,log,sock,pid}
    truncate -s "$2" "$1.raw"
    mkdir -p "$1"
    nbdkit -U "$WORK/$1.sock" -P "$WORK/$1.pid" --filter=log --filter=delay file "$WORK/$1.raw" \
        logfile="$WORK/$1.log" wdelay=3ms
    nbdfuse "$1" "nbd+unix:///?socket=$WORK/$1.sock" >>fuse.log 2>&1 &
    for _ in $(seq 100); do [ -e "$1/nbd" ] && return 0; sleep 0.05; done
    skip "nbdfuse cannot mount here: $(tail -1 fuse.log)"
}
ran=0
for io in io_uring threads; do
    serve_file store 9M
    serve_file flash 16M
    config flash policy=write-through size=8MiB flash_size=16MiB backing="$WORK/store/nbd"
    sed -i "s|^path = .*|path = \"$WORK/flash/nbd\"|" forebay.toml
    if ! FOREBAY_IO=$io start; then
        [ $io = io_uring ] && grep -qi "set up I/O" server.log || fail "no start with $io"
        echo "no io_uring here"
        more_cleanup
        continue
    fi
    python3 -B "$HERE/syncs.py" client "$WORK" "$FOREBAY"
    stop
    "$FOREBAY" backing info store.raw | grep -q "dirty *no" || fail "not clean after the stop"
    more_cleanup
    python3 -B "$HERE/syncs.py" check "$WORK" || fail "with $io"
    ran=$((ran + 1))
done
[ $ran -gt 0 ] || skip "the devices cannot be reached from here"
