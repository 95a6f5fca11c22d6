# ext4 in a virtual machine whose disk is an export: it keeps working when the server is killed with
# kill -9, and everything that was synced survives, even a power cut of machine and server at once.
# FOREBAY_KILLS is the number of kills of the server.
. "$(dirname "$0")/lib.sh"
config flash dram=8MiB flash_size=48MiB
delay=60
[ "$SABOTAGE" != reconnect ] || delay=0
boot_on_disk() {
    boot -device virtio-blk-pci,drive=disk,romfile= \
        -drive "if=none,id=disk,driver=nbd,server.type=unix,server.path=$WORK/nbd.sock,export=vm1,reconnect-delay=$delay,discard=unmap"
}
# Prints all files that were promised to survive, in the format of md5sum.
promised() {
    awk 'NF == 3 && /^SYNCED/ && length($3) == 32 { sum[$2] = $3 }
        /^REMOVING/ { delete sum[$2] }
        END { for (name in sum) print sum[name] "  " name }' promises | sort
}
count() { grep -c '^SYNCED' promises || true; }
more_than() { [ "$(count)" -gt "$1" ]; }
check_files() {
    promised >wanted
    guest 120 'echo 3 >/proc/sys/vm/drop_caches; cd /mnt && md5sum *; cd /' | sort >found
    comm -23 wanted found >lost
    [ ! -s lost ] || fail "$1: $(wc -l <lost) of $(wc -l <wanted) synced files are lost or damaged: $(head -3 lost)"
    echo "$1: $(wc -l <wanted) synced files are whole"
}
writers=0
write_files() {
    local name
    guest 10 'rm -f /tmp/stop' >/dev/null
    for name in a b; do
        writers=$((writers + 1))
        guest 10 "python3 /test/workload.py files /mnt $name$writers >&4 2>/dev/console &" >/dev/null
    done
}
stop_writing() { guest 60 'touch /tmp/stop; wait' >/dev/null; }
fsck() { guest 120 'fsck.ext4 -fn /dev/vda' >fsck.out || fail "$1: $(cat fsck.out)"; }

start
boot_on_disk
guest 60 'mkfs.ext4 -q /dev/vda' || fail "mkfs failed"
guest 20 'mount -t ext4 -o discard /dev/vda /mnt' || fail "mount failed"
write_files
until_true 120 "20 files" more_than 20
stop_writing
guest 60 'umount /mnt' || fail "umount failed"
reboot_guest
fsck "after a reboot"
guest 20 'mount -t ext4 -o discard /dev/vda /mnt' || fail "mount failed"
check_files "after a reboot"

write_files
for kill in $(seq "${FOREBAY_KILLS:-6}"); do
    remember
    before=$(count)
    until_true 120 "files before kill $kill" more_than $((before + 8))
    sleep "0.$((RANDOM % 10))"
    restart
    before=$(count)
    until_true 90 "the guest goes on after kill $kill" more_than $((before + 2))
done
stop_writing
no_complaints
check_files "after ${FOREBAY_KILLS:-6} kills of the server"
guest 60 'umount /mnt' || fail "umount failed"
fsck "after the kills"
guest 20 'mount -t ext4 -o discard /dev/vda /mnt' || fail "mount failed"

# Both at once: the journal of the file system is replayed from what the server kept.
for cut in 1 2; do
    remember
    write_files
    before=$(count)
    until_true 120 "files before cut $cut" more_than $((before + 12))
    crash_guest
    restart
    boot_on_disk
    guest 60 'mount -t ext4 -o discard /dev/vda /mnt' || fail "mount failed"
    check_files "after power cut $cut"
    guest 60 'umount /mnt' || fail "umount failed"
    fsck "after power cut $cut"
    guest 60 'mount -t ext4 -o discard /dev/vda /mnt' || fail "mount failed"
done
guest 60 'umount /mnt' || fail "umount failed"
no_complaints
power_off
ctl stop --destage >/dev/null
wait "$SERVER" || fail "the stop failed"
SERVER=
# Layout "offset": the file system begins after the first MiB of the backing store.
fsck.ext4 -fn "disk.img?offset=1048576" >fsck.out 2>&1 || fail "the backing store: $(cat fsck.out)"
mkdir files
debugfs -R 'rdump / files' "disk.img?offset=1048576" 2>/dev/null
promised >wanted
[ -s wanted ] || fail "nothing was promised"
(cd files && md5sum --quiet -c ../wanted) || fail "the backing store holds files that differ from those that the guest wrote"
echo "on the backing store: $(wc -l <wanted) synced files are whole"
