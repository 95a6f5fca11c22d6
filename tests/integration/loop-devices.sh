# A file behind several loop devices is one store: a process that uses it through one of them
# excludes all others, and is named to them. Different parts of a file are different stores.
. "$(dirname "$0")/lib.sh"
need losetup qemu-io qemu-img
[ "$(id -u)" = 0 ] || skip "not root"
loops=() mounted= second=
more_cleanup() {
    [ -z "$second" ] || kill -KILL "$second" 2>/dev/null || true
    [ -z "$mounted" ] || umount -l mnt 2>/dev/null || true
    for device in "${loops[@]}"; do losetup -d "$device" 2>/dev/null || true; done
}
# attach [ARGUMENT ...] FILE: makes a loop device, and sets $loop to its name.
attach() {
    loop=$(losetup --find --show "$@") || skip "no loop device here"
    loops+=("$loop")
}
# other STORE: writes a configuration for a second server.
other() {
    sed "s|^backing = .*|backing = \"$1\"|; s/nbd.sock/other.sock/; s/control.sock/other-control.sock/" \
        forebay.toml >other.toml
}
truncate -s 64M disk.img
file=$(realpath disk.img)
attach disk.img
a=$loop
attach disk.img
b=$loop
config backing="$a" size=
start
held="in use by process $SERVER \(forebay\), through its backing file $file"
other "$b"
refused 1 "$b is $held" "$FOREBAY" serve --config other.toml
other "$file"
refused 1 "$file is in use by process $SERVER \(forebay\)" "$FOREBAY" serve --config other.toml
# As a flash tier, too.
sed "s|^backing = .*|backing = \"$WORK/more.img\"\nsize = \"16MiB\"|; s/nbd.sock/other.sock/; s/control.sock/other-control.sock/" \
    forebay.toml >other.toml
printf '[flash]\npath = "%s"\n' "$b" >>other.toml
refused 1 "$b is $held" "$FOREBAY" serve --config other.toml --format
refused 1 "$b is $held" "$FOREBAY" backing release "$b"
# A partition of the other loop device.
if command -v addpart >/dev/null && addpart "$b" 1 2048 65536 2>/dev/null; then
    IFS=: read -r major minor <"/sys/class/block/${b#/dev/}p1/dev"
    mknod part b "$major" "$minor"
    other "$WORK/part"
    refused 1 "part is $held" "$FOREBAY" serve --config other.toml
    delpart "$b" 1
else
    echo "no partitions of loop devices here: not tried"
fi
# The server that uses the file keeps working.
io 'write -P 5 0 1M' 'read -P 5 0 1M'
crash
# No lock is left behind.
other "$b"
"$FOREBAY" serve --config other.toml >other.ready 2>other.log &
second=$!
for _ in $(seq 200); do [ -s other.ready ] && break; sleep 0.05; done
[ -s other.ready ] || fail "the other device is not served after a crash: $(cat other.log)"
! grep -q 'cannot be locked' other.log || fail "$(cat other.log)"
kill -TERM "$second"
wait "$second" || fail "the other server: $(cat other.log)"
second=

# A file that is already served when it gets a loop device.
losetup -d "$a"
losetup -d "$b"
loops=()
config backing="$file" size=
start
attach disk.img
other "$loop"
refused 1 "$loop is in use by process $SERVER" "$FOREBAY" serve --config other.toml
losetup -d "$loop"
loops=()
stop

# Parts of a file: they can have a server each if they are disjoint, but not if they overlap.
truncate -s 128M parts.img
attach --offset 0 --sizelimit 64MiB parts.img
a=$loop
attach --offset 64MiB parts.img
b=$loop
attach --offset 32MiB --sizelimit 64MiB parts.img
c=$loop
config backing="$a" size=
start
other "$c"
refused 1 "$c is in use by process $SERVER" "$FOREBAY" serve --config other.toml
other "$b"
: >other.ready
"$FOREBAY" serve --config other.toml >other.ready 2>other.log &
second=$!
for _ in $(seq 200); do [ -s other.ready ] && break; sleep 0.05; done
[ -s other.ready ] || fail "a device on another part of the file is refused: $(cat other.log)"
kill -TERM "$second"
wait "$second"
second=
stop

# A file system that is mounted through another loop device.
if command -v mkfs.ext4 >/dev/null; then
    truncate -s 64M fs.img
    mkfs.ext4 -q fs.img
    attach fs.img
    a=$loop
    attach fs.img
    mkdir mnt
    if mount "$loop" mnt; then
        mounted=1
        config backing="$a" size= layout=none
        refused 1 "$a is in use by the file system mounted on $WORK/mnt, through the loop device ${loop#/dev/} of the same file" \
            "$FOREBAY" serve --config forebay.toml
        umount mnt
        mounted=
        start
        stop
    else
        echo "cannot mount here: not tried"
    fi
fi

# A device with layout = "tail" that grows: its header is found at the former end.
truncate -s 64M tail.img
attach tail.img
config backing="$loop" size= layout=tail
start
io 'write -P 6 0 1M'
stop
truncate -s 80M tail.img
losetup --set-capacity "$loop"
refused 1 'was 67108864 bytes long.* 83886080 bytes long.* at byte 66060288.*--format' \
    "$FOREBAY" serve --config forebay.toml
refused 1 'enlarged.*66060288' "$FOREBAY" backing info "$loop"
start --format
[ "$(qemu-img info --output=json "$URI" | sed -nE 's/.*"virtual-size": ([0-9]+).*/\1/p')" = 82837504 ] \
    || fail "the export has not grown"
io 'read -P 6 0 1M' 'write -P 7 78M 1M'
stop
start
io 'read -P 6 0 1M' 'read -P 7 78M 1M'
stop
