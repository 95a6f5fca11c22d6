# Patterns of all kinds read back: unaligned, zeroed, discarded, forced, before and after restarts.
. "$(dirname "$0")/lib.sh"
need qemu-io
config flash
checks=(
    -c 'read -P 0x11 0 64k' -c 'read -P 0x22 64k 512' -c 'read -P 0 66048 3584'
    -c 'read -P 0x33 1049088 1536' -c 'read -P 0 2M 512k' -c 'read -P 0x44 2621440 512k'
    -c 'read -P 0x55 4M 1M' -c 'read -P 0 5M 64k' -c 'read -P 0x66 7M 8M'
)
check() { qemu-io -f raw "${checks[@]}" "$URI" >out || fail "$1: $(cat out)"; ! grep -q failed out || fail "$1: $(cat out)"; }
start
qemu-io -f raw \
    -c 'write -P 0x11 0 64k' -c 'write -P 0x22 64k 512' -c 'write -P 0x33 1049088 1536' \
    -c 'write -P 0x44 2M 1M' -c 'write -z 2M 512k' -c 'write -f -P 0x55 4M 1M' \
    -c 'write -P 0x77 5M 64k' -c 'write -z -u 5M 64k' -c 'write -P 0x66 7M 8M' -c flush \
    "$URI" >out
! grep -q failed out || fail "$(cat out)"
check "at once"
crash
start
check "after a kill"
stop
start
check "after a stop"
stop
