# After a clean stop that keeps dirty data, a start finds the data; a stop that destages leaves
# nothing dirty.
. "$(dirname "$0")/lib.sh"
need qemu-io
config flash
start
io 'write -P 9 0 8M' flush
ctl stop --keep-dirty >/dev/null
wait "$SERVER" || fail "the stop failed"
SERVER=
"$FOREBAY" backing info --json disk.img | grep -q '"dirty": true' || fail "not reported as dirty"
"$FOREBAY" flash info --json flash.img >info
grep -q '"dirty_blocks": 2048' info || fail "$(cat info)"
start
io 'read -P 9 0 8M'
stop
"$FOREBAY" backing info --json disk.img | grep -q '"dirty": false' || fail "still reported as dirty"
cmp -n 8388608 <(tail -c +1048577 disk.img) <(head -c 8M /dev/zero | tr '\0' '\11') \
    || fail "not on the backing store"

# A second signal while destaging leaves the remaining data on flash; nothing is lost.
rm -f disk.img flash.img
config flash
# A slow store, so that the destage takes many seconds.
sed -i 's|^layout = .*|layout = "offset"\nshape = "crawl"|' forebay.toml
printf '[shape.crawl]\nwrite_latency = "100ms"\nparallelism = 1\n' >>forebay.toml
start
io 'write -P 6 0 24M'
kill -TERM "$SERVER"
sleep 0.5
kill -TERM "$SERVER"
began=$SECONDS
wait "$SERVER" || fail "the second signal made the stop fail"
SERVER=
[ $((SECONDS - began)) -lt 5 ] || fail "the second signal did not speed it up"
"$FOREBAY" backing info --json disk.img | grep -q '"dirty": true' || fail "not reported as dirty"
sed -i '/^shape/d' forebay.toml
start
io 'read -P 6 0 24M'
stop

# A stop during a quiesce, while clients are held back, does not wait for the end of the quiesce.
rm -f disk.img flash.img
config flash
start
io 'write -P 7 0 1M'
ctl quiesce >/dev/null
timeout 60 qemu-io -f raw -c 'write -P 8 0 64k' "$URI" >/dev/null 2>&1 &
client=$!
sleep 0.5
kill -TERM "$SERVER"
for _ in $(seq 100); do kill -0 "$SERVER" 2>/dev/null || break; sleep 0.1; done
! kill -0 "$SERVER" 2>/dev/null || fail "the stop waits for the end of the quiesce"
wait "$SERVER" || fail "the stop failed"
SERVER=
wait "$client" || true
"$FOREBAY" backing info --json disk.img | grep -q '"dirty": false' || fail "still reported as dirty"

# A signal that arrives before the configuration has been read counts, too.
mkfifo slow.toml
"$FOREBAY" serve --config slow.toml >ready 2>>server.log &
SERVER=$!
sleep 0.5
kill -TERM "$SERVER"
sleep 0.5
cat forebay.toml >slow.toml
for _ in $(seq 100); do kill -0 "$SERVER" 2>/dev/null || break; sleep 0.1; done
! kill -0 "$SERVER" 2>/dev/null || fail "an early signal was forgotten"
wait "$SERVER" || fail "a start that is ended counts as a failure"
SERVER=

# The configuration decides what happens to dirty data by default.
rm -f disk.img flash.img
config flash
printf '[flush]\non_stop = "keep"\n' >>forebay.toml
dirty() { "$FOREBAY" backing info --json disk.img | grep -q "\"dirty\": $1"; }
start
io 'write -P 5 0 1M'
stop
dirty true || fail "a signal destaged despite on_stop"
start
ctl stop >/dev/null
# (The server has stopped: its devices are free, and their contents can be read.)
dirty true || fail "ctl stop destaged despite on_stop"
"$FOREBAY" flash info flash.img >/dev/null || fail "ctl stop does not wait for the devices"
wait "$SERVER" || fail "the stop failed"
cp forebay.toml quick.toml
sed -i 's|^layout = .*|layout = "offset"\nshape = "crawl"|' forebay.toml
printf '[shape.crawl]\nwrite_latency = "100ms"\nparallelism = 1\n' >>forebay.toml
start
[ "$(ctl stop --destage --no-wait)" = '{"stopping":true}' ] || fail "the wrong answer to a stop with --no-wait"
status | grep -q '"state": "stopping"' || fail "while it stops: $(status)"
refused 1 'is stopping' ctl destage
[ "$(ctl stop --keep-dirty 2>stop.err)" = '{"dirty_blocks":0,"stopped":true}' ] || fail "the wrong answer to a stop"
grep -q 'already stopping with --destage' stop.err || fail "it seems to have kept dirty data: $(cat stop.err)"
dirty false || fail "ctl stop --destage did not destage, or did not wait"
wait "$SERVER" || fail "the stop failed"
SERVER=
mv quick.toml forebay.toml
start --destage
io 'write -P 4 0 1M'
stop
dirty false || fail "serve --destage did not destage"
