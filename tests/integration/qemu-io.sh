# Patterns of all kinds read back: unaligned, zeroed, discarded, forced; before and after restarts.
. "$(dirname "$0")/lib.sh"
need qemu-io
config flash
checks=(
    'read -P 0x11 0 64k' 'read -P 0x22 64k 512' 'read -P 0 66048 3584'
    'read -P 0x33 1049088 1536' 'read -P 0 2M 512k' 'read -P 0x44 2621440 512k'
    'read -P 0x55 4M 1M' 'read -P 0 5M 64k' 'read -P 0x66 7M 8M'
)
start
io 'write -P 0x11 0 64k' 'write -P 0x22 64k 512' 'write -P 0x33 1049088 1536' \
    'write -P 0x44 2M 1M' 'write -z 2M 512k' 'write -f -P 0x55 4M 1M' \
    'write -P 0x77 5M 64k' 'write -z -u 5M 64k' 'write -P 0x66 7M 8M' flush
io "${checks[@]}"
# A single wrong byte among many must fail the test; otherwise the checks are worthless.
! (io 'read -P 0x22 64k 513') 2>/dev/null || fail "a wrong byte went unnoticed"
! (io 'read -P 0x11 0 64k' 'read 256M 4k') 2>/dev/null || fail "a refused read went unnoticed"
crash
start
io "${checks[@]}"
stop
start
io "${checks[@]}"
stop
