# A read-only export whose header cannot be written: its flash tier is valid at every start, and the
# dirty data of other volumes stays accessible. If another server opens the store for writing, its
# cached data is dropped.
. "$(dirname "$0")/lib.sh"
need nbdkit qemu-io

alone() { config dram=4MiB backing="$EXPORT" size=; }
both() {
    config flash dram=4MiB flash_size=32MiB backing="$EXPORT" size=
    sed -i "s|^\[serve\]|[[volume]]\nname = \"vm2\"\nbacking = \"$WORK/vm2.img\"\nsize = \"16MiB\"\n&|" forebay.toml
}
reads() { # reads COMMAND...: runs commands on vm1, which cannot be opened for writing
    local commands=() command
    for command; do commands+=(-c "$command"); done
    qemu-io -r -f raw "${commands[@]}" "nbd+unix:///vm1?socket=$WORK/nbd.sock" >io.out 2>&1 || fail "qemu-io: $(cat io.out)"
    ! grep -qi failed io.out || fail "qemu-io: $(cat io.out)"
}
writable() { # writable COMMAND...: another server opens only the store, and runs commands on it
    kit file disk.img
    alone
    start
    io "$@"
    stop
    unkit
}

truncate -s 33M disk.img
writable 'write -P 1 0 32M' flush
kit -r file disk.img
both
for n in 1 2 3; do
    start
    reads 'read -P 1 0 32M'
    [ "$n" = 1 ] || of vm2 "read -P $((n - 1)) 0 1M"
    of vm2 "write -P $n 0 1M" flush
    if [ "$n" = 2 ]; then crash; else stop; fi
done
unkit
# A write that no sample of the contents would detect.
writable 'write -P 2 9M 4k' flush
kit -r file disk.img
both
start
said 'has been used without Forebay'
reads 'read -P 1 0 9M' 'read -P 2 9M 4k'
of vm2 'read -P 3 0 1M'
stop
# Only once.
: >server.log
start
! grep -q 'has been used without Forebay' server.log || fail "it has not been used by others since"
reads 'read -P 1 0 9M' 'read -P 2 9M 4k'
stop
unkit
