# Exports as block devices with file systems, and a limit on the page cache in front of them;
# sourced by scripts/record-traces.sh.
# shellcheck disable=SC2154 # the script that sources this sets $scratch

LOOPS=()
MOUNTS=()
FUSES=()
FUSE_PIDS=()
CGROUP=

# attach_disk EXPORT: makes the export a block device, $LOOP. Uses direct I/O, because the page
# cache of this machine would otherwise cache the data a second time, below the file system.
attach_disk() {
    local fuse="$scratch/fuse-$1"
    mkdir -p "$fuse" "$scratch/$1"
    # In a session of its own: Ctrl-C reaches only the script, which detaches in order.
    setsid nbdfuse "$fuse/disk" "nbd+unix:///$1?socket=$scratch/nbd.sock" >>"$scratch/nbdfuse.log" 2>&1 &
    FUSE_PIDS+=($!)
    FUSES+=("$fuse")
    for _ in $(seq 200); do
        [ ! -e "$fuse/disk" ] || break
        sleep 0.05
    done
    LOOP="$(losetup --find --show --direct-io=on "$fuse/disk")" ||
        fail "no loop device on the export: $(tail -n 1 "$scratch/nbdfuse.log")"
    LOOPS+=("$LOOP")
}

# attach_file_systems [new]: mounts every volume at $scratch/VOLUME; with `new`, formats it first.
attach_file_systems() {
    local volume
    for volume in "${VOLUMES[@]}"; do
        attach_disk "$volume"
        [ "${1:-}" != new ] ||
            mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$LOOP"
        mount -o noatime "$LOOP" "$scratch/$volume"
        MOUNTS+=("$scratch/$volume")
    done
}

# Removes whatever exists of the above, in reverse order.
detach_disks() {
    local i
    for ((i = ${#MOUNTS[@]} - 1; i >= 0; i--)); do umount "${MOUNTS[i]}" || umount -l "${MOUNTS[i]}"; done
    for ((i = ${#LOOPS[@]} - 1; i >= 0; i--)); do losetup -d "${LOOPS[i]}"; done
    for ((i = ${#FUSES[@]} - 1; i >= 0; i--)); do
        fusermount3 -u "${FUSES[i]}" 2>/dev/null || fusermount3 -u -z "${FUSES[i]}"
    done
    for ((i = ${#FUSE_PIDS[@]} - 1; i >= 0; i--)); do wait "${FUSE_PIDS[i]}"; done
    MOUNTS=() LOOPS=() FUSES=() FUSE_PIDS=()
}

# Prints where a memory control group can be created; nothing if that is not possible.
cgroup_parent() {
    if [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
        say /sys/fs/cgroup/memory
    elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
        say /sys/fs/cgroup
    fi
}

# limit_memory BYTES: creates a control group with this limit on memory, page cache included.
limit_memory() {
    CGROUP="$(cgroup_parent)/forebay-traces.$$"
    mkdir "$CGROUP"
    if [ -e "$CGROUP/memory.max" ]; then
        say "$1" >"$CGROUP/memory.max"
    else
        say "$1" >"$CGROUP/memory.limit_in_bytes"
    fi
}

# limited COMMAND...: runs a command in that group, in the background with `wait`, so that a signal
# to the script takes effect at once; end_limited then ends the command.
limited() {
    (echo "$BASHPID" >"$CGROUP/cgroup.procs" && exec "$@") &
    wait "$!"
}

# inside VOLUME COMMAND...: runs a command in that group with the volume as its root directory. Its
# own mount namespace removes /proc and /dev again, however it ends.
inside() {
    local root="$scratch/$1"
    shift
    limited unshare --mount --pid --fork --kill-child sh -ec '
        root=$1
        shift
        mount -t proc proc "$root/proc"
        mount -t tmpfs tmpfs "$root/dev"
        for node in null zero random urandom; do
            touch "$root/dev/$node"
            mount --bind "/dev/$node" "$root/dev/$node"
        done
        exec chroot "$root" /usr/bin/env -i TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
            DEBIAN_FRONTEND=noninteractive "$@"
    ' sh "$root" "$@" >>"$scratch/inside.log" 2>&1 </dev/null ||
        fail "a command failed: $(tail -n 3 "$scratch/inside.log")"
}

# Ends every process that still runs in the group, and removes the group.
end_limited() {
    [ -n "$CGROUP" ] || return 0
    local signal
    for signal in TERM TERM KILL KILL KILL; do
        grep -q . "$CGROUP/cgroup.procs" || break
        # shellcheck disable=SC2046
        kill "-$signal" $(cat "$CGROUP/cgroup.procs") 2>/dev/null
        sleep 1
    done
    rmdir "$CGROUP" && CGROUP=
}

# Empties this machine's page cache, as a restart would.
drop_page_cache() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
}
