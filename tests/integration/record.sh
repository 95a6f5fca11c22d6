# Requests of clients are recorded as a trace, with latencies and hashes; nothing is missing.
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
# A sampled trace contains the number of all requests.
start --record s.parquet --sample 0.5:0
qemu-io -f raw -c 'write 0 64k' -c 'read 0 128k' "$URI" >/dev/null
stop
"$FOREBAY" trace info --json s.parquet >info
grep -qE '"rate": 0.5\b' info || fail "$(cat info)"
of=$(sed -nE 's/.*"of_requests": ([0-9]+).*/\1/p' info)
[ "$of" -ge 2 ] || fail "$(cat info)"
grep -qE "$of requests arrived; .*s.parquet contains the [0-9]+ requests and parts of requests that access the sampled regions \(50.0 % of all 4 KiB regions\)" server.log \
    || fail "the message does not say what was kept"
# Started again with the same command, the server does not touch the first recording.
before=$(md5sum <x.parquet)
start --record x.parquet
qemu-io -f raw -c 'read 0 4k' "$URI" >/dev/null
stop
[ "$(md5sum <x.parquet)" = "$before" ] || fail "the first recording was overwritten"
"$FOREBAY" trace info --json x-2.parquet | grep -qE '"reads": 1\b' || fail "no second recording"
# A recording interrupted by a kill is left alone, and is named to the user.
start --record killed.parquet
io 'write -P 3 0 64k'
crash
[ -f killed.parquet.partial ] || fail "nothing remains of the recording"
start --record killed.parquet
stop
grep -q 'killed.parquet.partial is left over from an interrupted recording and is empty' server.log \
    || fail "the recording that was cut off was not named"
[ -f killed.parquet.partial ] && [ -f killed-2.parquet ] || fail "the interrupted recording was changed"
# After a save (there is one per minute), the command that the server recommends recovers everything
# up to that save, and takes nothing away from the interrupted recording.
start --record saved.parquet
io 'write -P 3 0 64k' 'read 0 64k'
for _ in $(seq 900); do [ -s saved.parquet.partial.index ] && break; sleep 0.1; done
[ -s saved.parquet.partial.index ] || fail "nothing was saved"
! "$FOREBAY" trace convert saved.parquet.partial -o saved.parquet 2>refused || fail "it is still being recorded"
grep -q 'recording in progress' refused || fail "$(cat refused)"
crash
: >server.log
start --record saved.parquet
stop
advised=$(sed -n 's/.*`forebay \(trace convert [^`]*\)`.*/\1/p' server.log)
[ "$advised" = 'trace convert saved.parquet.partial -o saved.parquet' ] || fail "$(cat server.log)"
# shellcheck disable=SC2086
"$FOREBAY" $advised
for file in saved.parquet saved.parquet.partial; do
    "$FOREBAY" trace info --json "$file" >info
    grep -qE '"writes": 1\b' info || fail "$file: $(cat info)"
done
# A recording that fails reports it at once, and affects neither clients, nor stores, nor the stop.
start --record /dev/full
"$FOREBAY" load zipf:blocks=1Ki,write=0.1 --target "$URI" --write --requests 300000 >/dev/null
for _ in $(seq 100); do
    grep -q 'the recording has failed' server.log && break
    sleep 0.1
done
grep -q '/dev/full.*No space left.*Clients are still being served' server.log || fail "the failure was not reported"
status | grep -q '"failure": ".*No space left' || fail "status does not show the failure"
if command -v curl >/dev/null; then
    curl -s --unix-socket control.sock http://x/metrics >metrics
    grep -q '^forebay_recording_failed 1' metrics || fail "no metric: $(grep record metrics)"
    grep -q '^forebay_recording 0' metrics || fail "it is not under way: $(grep record metrics)"
fi
io 'write -P 7 0 64k' 'read -P 7 0 64k'
stop || fail "the stop failed with the recording"
cmp -n 65536 <(tail -c +1048577 disk.img) <(head -c 64k /dev/zero | tr '\0' '\7') \
    || fail "not destaged"
# A recording that fails at the very end behaves the same way.
: >server.log
start --record /dev/full
io 'write -P 8 0 64k'
! grep -q 'the recording has failed' server.log || fail "it has not failed yet"
stop || fail "the stop failed with the recording"
grep -q 'the recording has failed' server.log || fail "the stop did not report it"
# A limit on file sizes acts like a full disk, and does not end the server. (The header of the store
# lies below it.)
: >ready
(ulimit -f 600; exec "$FOREBAY" serve --config forebay.toml --record limit.parquet) >>ready 2>server.log &
SERVER=$!
for _ in $(seq 600); do [ -s ready ] && break; sleep 0.05; done
"$FOREBAY" load zipf:blocks=1Ki,write=0 --target "$URI" --requests 300000 >/dev/null
stop || fail "the stop failed with the recording"
grep -q 'the recording has failed: .*too large' server.log || fail "it has not failed"
[ ! -e limit.parquet ] || fail "an incomplete recording has its final name"
