# A file system on the export survives kill -9 at any moment: fsck finds no errors after recovery,
# and synced files are intact. FOREBAY_KILLS is the number of kills.
. "$(dirname "$0")/lib.sh"
need nbdfuse losetup mkfs.ext4 fsck.ext4 mount
[ "$(id -u)" = 0 ] || skip "not root"
[ -e /dev/fuse ] || skip "no /dev/fuse"
config flash dram=8MiB flash_size=48MiB
fuse= loop= mounted=
more_cleanup() {
    [ -z "$mounted" ] || umount -l mnt 2>/dev/null || true
    [ -z "$loop" ] || losetup -d "$loop" 2>/dev/null || true
    [ -z "$fuse" ] || { fusermount3 -u -z disk 2>/dev/null || fusermount -u -z disk 2>/dev/null || umount -l disk 2>/dev/null || true; }
}
attach() {
    mkdir -p disk mnt
    nbdfuse disk "$URI" >>fuse.log 2>&1 &
    fuse=$!
    for _ in $(seq 100); do [ -e disk/nbd ] && break; sleep 0.05; done
    [ -e disk/nbd ] || skip "nbdfuse cannot mount here: $(tail -1 fuse.log)"
    # Without direct I/O the host's page cache would answer instead of the server.
    loop=$(losetup --find --show --direct-io=on disk/nbd) || skip "no loop device here"
}
detach() {
    [ -z "$mounted" ] || umount -l mnt || true
    mounted=
    losetup -d "$loop" || true
    loop=
    fusermount3 -u -z disk 2>/dev/null || fusermount -u -z disk 2>/dev/null || umount -l disk || true
    wait "$fuse" 2>/dev/null || true
    fuse=
}
touch sums
start
attach
mkfs.ext4 -q "$loop"
mount "$loop" mnt || skip "cannot mount here"
mounted=1
for round in $(seq "${FOREBAY_KILLS:-50}"); do
    # Eight files, so that old ones are overwritten and others must survive many kills.
    file=file$((round % 8))
    head -c 2M /dev/urandom >mnt/$file
    sed -i "/ $file\$/d" sums
    (cd mnt && md5sum $file) >>sums
    sync -f mnt
    (for n in $(seq 200); do head -c 20k /dev/urandom >mnt/junk$n; done) 2>/dev/null &
    junk=$!
    sleep 0.$((RANDOM % 900 + 100))
    crash
    wait $junk 2>/dev/null || true
    detach
    start
    attach
    fsck.ext4 -y "$loop" >fsck.out 2>&1 || [ $? -le 1 ] || fail "$(cat fsck.out)"
    fsck.ext4 -fn "$loop" >fsck.out 2>&1 || fail "$(cat fsck.out)"
    mount "$loop" mnt
    mounted=1
    (cd mnt && md5sum --quiet -c ../sums) || fail "a synced file is damaged"
done
detach
stop
