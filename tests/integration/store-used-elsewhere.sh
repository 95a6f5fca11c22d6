# A store is mounted without Forebay between two runs: clients then see what was written there,
# after a plain stop, after `backing release`, and for a copy made during a quiesce. If there is
# dirty data for the store, the start is rejected, with the options that remain.
. "$(dirname "$0")/lib.sh"
need losetup mkfs.ext4 fsck.ext4 mount qemu-io nbdcopy
[ "$(id -u)" = 0 ] || skip "not root"
loop= mounted=
more_cleanup() {
    [ -z "$mounted" ] || umount -l mnt 2>/dev/null || true
    [ -z "$loop" ] || losetup -d "$loop" 2>/dev/null || true
}
# mounted_store COMMAND...: runs the command in the file system of the store, after its header.
mounted_store() {
    mkdir -p mnt
    loop=$(losetup --find --show --offset 1048576 disk.img) || skip "no loop device here"
    mount "$loop" mnt || skip "cannot mount here"
    mounted=1
    (cd mnt && "$@")
    umount mnt
    mounted=
    losetup -d "$loop"
    loop=
}
same() { cmp <(tail -c +1048577 disk.img) image || fail "$1: what is served is not what the store holds"; }
served() { rm -f image && nbdcopy "$URI" image; }
use() {
    for n in $(seq 100); do head -c 30k /dev/urandom >file$n; done
    sync -f .
    for n in $(seq 1 2 100); do rm file$n; done
}
config flash size=128MiB flash_size=256MiB
truncate -s 128M image
mkfs.ext4 -q image
start
nbdcopy image "$URI"
served
for policy in write-back write-through; do
    stop
    sed -i "s/^write_policy.*/write_policy = \"$policy\"/" forebay.toml
    mounted_store use
    start
    said "used without Forebay"
    served
    same "after a stop, $policy"
    fsck.ext4 -fn image >fsck.out 2>&1 || fail "$policy: $(cat fsck.out)"
done
stop
"$FOREBAY" backing info disk.img | grep -q 'unchanged since Forebay last used the store' || fail "$("$FOREBAY" backing info disk.img)"
"$FOREBAY" backing release disk.img >/dev/null
# A write that no fingerprint detects: it bypasses the file system, at a place where it does no
# harm.
printf 'by somebody else' | dd of=disk.img bs=1 seek=$((1048576 + 77777777)) conv=notrunc status=none
start
served
same "after a release"

# A copy made during a quiesce is consistent, and can be served alone.
ctl quiesce >/dev/null
cp disk.img copy.img
ctl quiesce --resume >/dev/null
io 'write -P 3 60M 1M'
sed 's/disk.img/copy.img/; /^\[flash\]/,/^size/d; s/nbd.sock/copy.sock/; s/control.sock/copy-control.sock/' \
    forebay.toml >copy.toml
"$FOREBAY" serve --config copy.toml >copy.ready 2>copy.log &
copy=$!
for _ in $(seq 100); do [ -s copy.ready ] && break; sleep 0.05; done
nbdcopy "nbd+unix:///?socket=$WORK/copy.sock" copied || fail "the copy is not served: $(cat copy.log)"
cmp copied image || fail "the copy is not what was served when it was made"
kill -TERM "$copy"
wait "$copy" || fail "the copy's server: $(cat copy.log)"

# Dirty data for a store that others have used.
sed -i 's/^write_policy.*/write_policy = "write-back"/' forebay.toml
stop
start
io 'write -P 9 40M 1M'
ctl stop --keep-dirty >/dev/null
wait "$SERVER" || fail "the stop failed"
SERVER=
refused 1 'newer data|not stopped cleanly' "$FOREBAY" backing release disk.img
mounted_store use
refused 1 'used without Forebay.*--drop-clean' "$FOREBAY" serve --config forebay.toml
start --drop-clean
io 'read -P 9 40M 1M'
served
stop
same "after --drop-clean"

# Changes by another program are taken over while clients wait.
start
ctl quiesce >/dev/null
printf 'by somebody else' | dd of=disk.img bs=1 seek=$((1048576 + 88888888)) conv=notrunc status=none
ctl invalidate vm1 >/dev/null
ctl quiesce --resume >/dev/null
served
same "after ctl invalidate"
ctl stop --release >/dev/null
wait "$SERVER" || fail "the stop failed"
SERVER=
"$FOREBAY" backing info disk.img | grep -q released || fail "stop --release did not say so"
# With a configuration, what flash holds is dropped as well, and the header says so.
start
stop
"$FOREBAY" backing info disk.img | grep -q released && fail "the store is still released after a run"
"$FOREBAY" backing release disk.img --config forebay.toml --json | grep -q '"released": true' ||
    fail "a release with --config does not report it"
"$FOREBAY" backing info disk.img | grep -q released || fail "the header does not note the release"
