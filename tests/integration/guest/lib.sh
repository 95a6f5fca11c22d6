# Common to the tests with a virtual machine: QEMU with a Debian kernel and an initramfs of Debian
# programs, which are downloaded once and kept; nothing is installed. Sourced by each test.
#
# FOREBAY_GUEST_ACCEL=kvm is faster if KVM can boot a guest here; emulation works everywhere.
# FOREBAY_SABOTAGE breaks what is tested, to show that the tests can fail:
#   older     after each kill the server finds its devices as they were some time earlier
#   reconnect the client does not connect to the restarted server

. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

GUEST_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${FOREBAY_GUEST_CACHE:-${CARGO_TARGET_DIR:-$ROOT/target}/guest}
case $CACHE in /*) ;; *) CACHE=$ROOT/$CACHE ;; esac
SABOTAGE=${FOREBAY_SABOTAGE:-}
GUEST= # the process of QEMU

# Downloads the packages of the guest and unpacks them into $CACHE/root.
unpack_packages() {
    [ ! -e "$CACHE/root" ] || return 0
    need apt-get apt-cache dpkg dpkg-deb
    [ "$(dpkg --print-architecture)" = amd64 ] || skip "the guest is made for amd64 only"
    local kernel names
    kernel=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
    [ -n "$kernel" ] || skip "apt knows no kernel linux-image-cloud-amd64 (not Debian, or no apt-get update)"
    names=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances nbd-client e2fsprogs python3 |
        grep -E '^(lib|python3|nbd-client$|e2fsprogs$)' | grep -v perl | sort -u)
    rm -rf "$CACHE/new" "$CACHE/packages"
    mkdir -p "$CACHE/new" "$CACHE/packages"
    # shellcheck disable=SC2086
    (cd "$CACHE/packages" && timeout 300 apt-get download -qq "$kernel" busybox-static $names) \
        >"$CACHE/download.log" 2>&1 ||
        skip "Debian packages cannot be downloaded: $(grep '^E:' "$CACHE/download.log" | head -1)"
    local package
    for package in "$CACHE"/packages/*.deb; do dpkg-deb -x "$package" "$CACHE/new"; done
    rm -r "$CACHE/packages"
    mv "$CACHE/new" "$CACHE/root"
}

# one PATH...: prints the one of these paths that exists in the packages; Debian moves files to
# /usr.
one() {
    local pattern path
    for pattern; do
        for path in "$CACHE/root"/$pattern "$CACHE/root/usr"/$pattern; do
            [ ! -e "$path" ] || { echo "$path"; return; }
        done
    done
    fail "the packages have no $1"
}

# Makes the initramfs: busybox, kernel modules, programs with their libraries, and the workload.
make_initramfs() {
    [ ! -e "$CACHE/initramfs" ] || [ -n "$(find "$GUEST_DIR" "$HERE/kill9.py" -newer "$CACHE/initramfs")" ] || return 0
    local tree=$CACHE/tree busybox version modules libraries ld name needed file python
    rm -rf "$tree"
    mkdir -p "$tree"/{bin,dev,lib64,mnt,proc,sys,test,tmp,lib/x86_64-linux-gnu,usr/lib}
    busybox=$(one bin/busybox)
    for file in $("$busybox" --list); do ln -sf busybox "$tree/bin/$file"; done
    cp --remove-destination "$busybox" "$tree/bin/"
    modules=$(one lib/modules/*)
    version=$(basename "$modules")
    [ -e "$modules/modules.dep" ] || "$busybox" depmod -b "${modules%/lib/modules/*}" "$version"
    for name in virtio_pci virtio_blk virtio_net virtio_console nbd; do
        needed=$(grep -E "/$name\.ko[.a-z]*:" "$modules/modules.dep")
        for file in ${needed/:/}; do
            mkdir -p "$(dirname "$tree/lib/modules/$version/$file")"
            cp "$modules/$file" "$tree/lib/modules/$version/$file"
        done
    done
    cp "$modules/modules.dep" "$tree/lib/modules/$version/"
    python=$(basename "$(one 'bin/python3.[0-9]*')")
    cp "$(one sbin/nbd-client)" "$(one "bin/$python")" "$tree/bin/"
    ln -s "$python" "$tree/bin/python3"
    # mke2fs and e2fsck get names that busybox uses for its own versions.
    rm -f "$tree"/bin/{mke2fs,mkfs.ext4,fsck.ext4}
    cp "$(one sbin/mke2fs)" "$tree/bin/mkfs.ext4"
    cp "$(one sbin/e2fsck)" "$tree/bin/fsck.ext4"
    cp -r "$CACHE/root/usr/lib/$python" "$tree/usr/lib/"
    # Keeps only those of Python's own libraries that need no further packages.
    rm -rf "$tree/usr/lib/$python"/{test,idlelib,tkinter,lib2to3,ensurepip,pydoc_data,distutils,config-*}
    find "$tree/usr/lib/$python/lib-dynload" -name '*.so' \
        ! -name 'mmap.*' -delete
    ld=$(one lib64/ld-linux-x86-64.so.2)
    libraries=$CACHE/root/lib/x86_64-linux-gnu:$CACHE/root/usr/lib/x86_64-linux-gnu
    cp -L "$ld" "$tree/lib64/"
    for file in "$tree"/bin/{nbd-client,mkfs.ext4,fsck.ext4,"$python"}; do
        "$ld" --inhibit-cache --library-path "$libraries" --list "$file"
    done | awk '$2 == "=>" {print $3}' | sort -u | while read -r file; do
        [ "$file" != not ] || fail "the packages lack a library"
        cp -L "$file" "$tree/lib/x86_64-linux-gnu/"
    done
    cp "$GUEST_DIR/init" "$tree/init"
    chmod 755 "$tree/init"
    cp "$GUEST_DIR/workload.py" "$HERE/kill9.py" "$tree/test/"
    (cd "$tree" && find . | "$busybox" cpio -o -H newc) >"$CACHE/initramfs.new" 2>/dev/null
    mv "$CACHE/initramfs.new" "$CACHE/initramfs"
}

mkdir -p "$CACHE"
command -v qemu-system-x86_64 >/dev/null || skip "no qemu-system-x86_64 here (Debian package qemu-system-x86)"
need python3 mkfifo debugfs fsck.ext4
exec {lock}>"$CACHE/lock"
flock "$lock"
unpack_packages
make_initramfs
exec {lock}>&-

# until_true SECONDS WHAT COMMAND...: repeats the command until it succeeds, for at most that time.
until_true() {
    local until=$((SECONDS + $1)) what=$2
    shift 2
    while ! "$@"; do
        [ "$SECONDS" -lt "$until" ] || fail "not within the time limit: $what"
        sleep 0.2
    done
}

# boot [QEMU ARGUMENT...]: starts a guest that executes commands. Its kernel writes to console.log,
# its shell to `answers`, and its workloads write to `promises` what must survive.
boot() {
    local kernel boots
    kernel=$(one 'boot/vmlinuz-*')
    touch answers console.log
    boots=$(grep -c '^READY$' answers || true)
    rm -f commands
    mkfifo commands
    exec {TO_GUEST}<>commands
    qemu-system-x86_64 -accel "${FOREBAY_GUEST_ACCEL:-tcg}" -cpu max -smp 4 -m 512 \
        -no-user-config -nodefaults -display none \
        -kernel "$kernel" -initrd "$CACHE/initramfs" \
        -append "console=ttyS0 loglevel=6" \
        -chardev "file,id=console,path=$WORK/console.log,append=on" -serial chardev:console \
        -device virtio-serial-pci \
        -chardev stdio,id=shell,signal=off -device virtserialport,nr=1,chardev=shell \
        -chardev "file,id=promises,path=$WORK/promises,append=on" -device virtserialport,nr=2,chardev=promises \
        "$@" <commands >>answers 2>>qemu.log &
    GUEST=$!
    booted "$boots"
}

# booted BOOTS: waits until the guest has booted more often than that.
booted() { until_true 120 "the guest is up" up "$1"; }
up() {
    kill -0 "$GUEST" 2>/dev/null || fail "QEMU ended: $(tail -3 qemu.log)"
    [ "$(grep -c '^READY$' answers || true)" -gt "$1" ]
}

# guest SECONDS COMMAND: runs a command in the guest, prints its output and returns its exit status.
guest() {
    local from answer asked
    asked=$(grep -c '^ANSWER ' answers || true)
    from=$(stat -c %s answers)
    printf '{ %s\n} 2>&1\nstatus=$?; echo; echo ANSWER %s $status\n' "$2" "$asked" >&"$TO_GUEST"
    until_true "$1" "in the guest: $2" grep -q "^ANSWER $asked [0-9]*$" answers
    answer=$(tail -c "+$((from + 1))" answers)
    printf '%s\n' "${answer%%ANSWER "$asked" *}" | sed '/^$/d'
    return "${answer##*ANSWER "$asked" }"
}

# reboot_guest: reboots as an administrator would; file systems must be unmounted before.
reboot_guest() {
    local boots
    boots=$(grep -c '^READY$' answers)
    echo 'reboot -f' >&"$TO_GUEST"
    booted "$boots"
}

power_off() {
    echo 'poweroff -f' >&"$TO_GUEST"
    until_true 60 "the guest is off" eval "! kill -0 $GUEST 2>/dev/null"
    wait "$GUEST" || true
    GUEST=
}

# A power cut of the guest.
crash_guest() {
    local pid=$GUEST
    GUEST=
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
}

# Saves, between two kills, the devices that an "older" server will find.
remember() {
    [ "$SABOTAGE" != older ] || { cp --sparse=always disk.img disk.old && cp --sparse=always flash.img flash.old; }
}

# restart: kills the server, waits for some time, and starts it again.
restart() {
    crash
    [ "$SABOTAGE" != older ] || { mv disk.old disk.img && mv flash.old flash.img; }
    sleep "$((RANDOM % 2)).$((RANDOM % 10))"
    start || fail "the server does not start again"
}

# Checks for messages that no guest with a good disk prints.
no_complaints() {
    ! grep -aE 'I/O error|EXT4-fs (error|warning)|Remounting|blocked for more|BUG:|Oops:|panic|^Traceback' console.log ||
        fail "the guest complained"
}

more_cleanup() {
    [ -z "$GUEST" ] || kill -KILL "$GUEST" 2>/dev/null || true
    if [ "$code" != 0 ] && [ "$code" != 77 ] && [ -s console.log ]; then
        echo "--- the guest's kernel said:" >&2
        tail -n 12 console.log >&2
    fi
}
