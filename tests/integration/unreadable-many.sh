# Many dirty records that flash cannot return: the device may be away only for a while. None is
# reported as lost, and when flash returns them again, the server serves them again.
. "$(dirname "$0")/lib.sh"
need qemu-io python3
config flash size=256MiB flash_size=64MiB dram=4MiB
printf '[flush]\ngive_up_after = "2s"\n' >>forebay.toml
# flip: changes a byte in each page of flash that is full of 0x99, or changes it back.
flip() {
    python3 - <<'END'
page = bytes([0x99]) * 4096
spoilt = page[:1000] + b"?" + page[1001:]
with open("flash.img", "r+b") as flash:
    data, count = flash.read(), 0
    for at in range(0, len(data), 4096):
        if data[at : at + 4096] in (page, spoilt):
            flash.seek(at + 1000)
            flash.write(b"?" if data[at + 1000] == 0x99 else b"\x99")
            count += 1
    assert count == 64, f"{count} records"
END
}
start
io 'write -P 0x11 0 4k' 'write -P 0x99 4M 256k' flush 'write -P 0x22 64M 8M' flush
flip
fails 'read 4M 4k'
# The log reaches these records: it has no room unless it gives them up, and it does not give them
# up.
timeout 120 qemu-io -f raw -c 'write -P 0x33 128M 64M' -c 'write -P 0x34 128M 64M' "$URI" >io.out 2>&1 || true
grep -qi failed io.out || fail "64 records were given up for writes: $(cat io.out)"
fails 'read 4M 4k'
stop && fail "a stop that leaves blocks behind must say so"
flip
start
io 'read -P 0x99 4M 256k' 'read -P 0x11 0 4k' 'read -P 0x22 64M 8M' 'write -P 0x44 128M 64M' flush
stop || fail "something is left on flash"
cmp -n 262144 <(tail -c +$((1048577 + (4 << 20))) disk.img) <(head -c 256k /dev/zero | tr '\0' '\231') \
    || fail "not on the store"
