# Without a server: `flash recover` writes everything dirty to the store, names what cannot be read,
# and writes the rest; dirty data that remains is given up only at the user's request.
. "$(dirname "$0")/lib.sh"
need qemu-io python3
config flash size=64MiB
# store OFFSET LENGTH PATTERN: checks that the store alone has this data.
store() {
    cmp -n "$2" <(tail -c +$((1048577 + $1)) disk.img) <(head -c "$2" /dev/zero | tr '\0' "\\$3") \
        || fail "not on the store: $*"
}
dirty() { "$FOREBAY" backing info --json disk.img | grep -q "\"dirty\": $1" || fail "dirty is not $1"; }
start
io 'write -P 1 0 8M' 'write -P 2 32M 64k' flush
refused 1 'in use' "$FOREBAY" flash recover flash.img --config forebay.toml
crash
dirty true
cp --sparse=always flash.img copy.img
cp --sparse=always disk.img disk.copy
"$FOREBAY" flash info --json flash.img | grep -q '"dirty_blocks": 2064' || fail "$("$FOREBAY" flash info flash.img)"
"$FOREBAY" flash check flash.img >/dev/null || fail "something is damaged"
"$FOREBAY" flash recover flash.img --config forebay.toml >/dev/null
dirty false
store 0 8388608 001
store 33554432 65536 002
"$FOREBAY" flash info --json flash.img | grep -q '"dirty_blocks": 0' || fail "$("$FOREBAY" flash info flash.img)"
# A copy of the flash device can be used, too, if the device accepts no more writes.
mv flash.img flash.former
mv disk.img disk.former
mv disk.copy disk.img
sed 's/flash.img/copy.img/' forebay.toml >copy.toml
"$FOREBAY" flash recover copy.img --config copy.toml >/dev/null
store 0 8388608 001
mv disk.former disk.img
mv flash.former flash.img
# A server takes over both.
start
io 'read -P 1 0 8M' 'read -P 2 32M 64k' 'write -P 3 0 64k' 'write -P 4 40k 4k' 'write -P 5 1M 64k' flush
crash
python3 - <<'END'
with open("flash.img", "r+b") as flash:
    data = flash.read()
    at = data.find(bytes([4]) * 4096)
    assert at > 0 and at % 4096 == 0
    flash.seek(at + 1000)
    flash.write(b"?")
END
refused 1 'damaged|lost' "$FOREBAY" flash check flash.img
refused 1 'block 10 ' "$FOREBAY" flash recover flash.img --config forebay.toml
store 0 40960 003
store 45056 20480 003
store 1048576 65536 005
dirty true
refused 1 'dirty' "$FOREBAY" serve --config forebay.toml --format
# A policy that keeps nothing dirty is rejected, and the block is named.
start
refused 1 'block 10 ' ctl set --write-policy write-through
status | grep -q '"write_policy": "write-back"' || fail "the policy has changed"
io 'read -P 3 0 40k' 'read -P 5 1M 64k'
stop && fail "a stop that leaves a block behind must say so"
start --format --discard-dirty-data
io 'read -P 3 0 40k' 'read -P 1 40k 4k' 'read -P 3 44k 20k' 'read -P 5 1M 64k'
stop || fail "something is still not durable on the store"
dirty false
