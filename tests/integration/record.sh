# What clients do is recorded as a trace, with latencies and hashes; nothing is missing.
. "$(dirname "$0")/lib.sh"
need qemu-io
config
start --record x.parquet --hash
qemu-io -f raw -c 'write -P 1 0 64k' -c 'write -P 1 64k 64k' -c 'read 0 64k' -c 'read 128k 4k' \
    -c 'discard 1M 64k' -c flush "$URI" >/dev/null
stop
"$FOREBAY" trace info --json x.parquet >info
grep -qE '"reads": 2\b' info || fail "$(cat info)"
grep -qE '"writes": 2\b' info || fail "$(cat info)"
# Of a sample it says how many requests there were.
start --record s.parquet --sample 0.5:0
qemu-io -f raw -c 'write 0 64k' -c 'read 0 128k' "$URI" >/dev/null
stop
"$FOREBAY" trace info --json s.parquet >info
grep -qE '"rate": 0.5\b' info || fail "$(cat info)"
of=$(sed -nE 's/.*"of_requests": ([0-9]+).*/\1/p' info)
[ "$of" -ge 2 ] || fail "$(cat info)"
# Started again with the same command, it leaves the first recording alone.
before=$(md5sum <x.parquet)
start --record x.parquet
qemu-io -f raw -c 'read 0 4k' "$URI" >/dev/null
stop
[ "$(md5sum <x.parquet)" = "$before" ] || fail "the first recording was overwritten"
"$FOREBAY" trace info --json x-2.parquet | grep -qE '"reads": 1\b' || fail "no second recording"
