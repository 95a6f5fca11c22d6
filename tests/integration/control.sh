# The control address: status, metrics, destage, quiesce, top, and orders that need a restart.
. "$(dirname "$0")/lib.sh"
need qemu-io
config flash
start
grep -q '"control":"unix:' ready
io 'write -P 1 0 1M' 'read 0 1M'
status >status.json
for field in '"requests"' '"hits"' '"tier1"' '"latency_us"' '"p9999"' '"tier2_bytes_written"' \
    '"backing"' '"dirty_blocks_max"' '"volume": "vm1"'; do
    grep -q "$field" status.json || fail "status has no $field"
done
grep -q '"write_amplification": [1-9]' status.json || fail "status does not inspect the flash tier"
grep -q '"dirty_blocks": 256' status.json || fail "1 MiB is 256 dirty blocks"
ctl destage | grep -q '"dirty_blocks":0' || fail "something is still dirty"
cmp -n 1048576 <(tail -c +1048577 disk.img) <(head -c 1M /dev/zero | tr '\0' '\1') \
    || fail "not destaged"
ctl quiesce >/dev/null 2>quiesce.err
grep -q 'clients are paused until .*--resume`, for at most 10m' quiesce.err || fail "$(cat quiesce.err)"
status | grep -q '"since_s"' || fail "status does not show the quiesce"
qemu-io -f raw -c 'write -P 2 0 64k' "$URI" >/dev/null &
writer=$!
sleep 0.3
kill -0 $writer || fail "a write went through while quiesced"
ctl quiesce --resume | grep -q '"ended":true' || fail "the quiesce was not ended"
wait $writer || fail "the write that was held back failed"
status | grep -q '"quiesced": null' || fail "status still shows the quiesce"
# If nobody ends a quiesce, the server does.
io 'write -P 3 1M 1M'
ctl quiesce --for 1s >/dev/null
io 'write -P 2 0 64k'
said 'reached its time limit'
# The command tells a backup script that the quiesce ended too early.
refused 1 'no quiesce to end' ctl quiesce --resume
ctl resume | grep -q '"ended":false' || fail "it says that a quiesce was ended"
refused 2 'cannot be used with' "$FOREBAY" ctl quiesce --for 1s --resume --control unix:control.sock
# Percentiles cover only requests of the interval; without any there are none.
( sleep 0.5; io 'read 0 64k' 'read 0 64k' ) &
ctl top --count 1 --every 3s >top
wait $!
awk '$1 == "vm1" { shown = $(NF - 2) > 0 && $(NF - 1) >= $(NF - 2) } END { exit !shown }' top || fail "$(cat top)"
ctl top --count 1 --every 200ms >top
awk '$1 == "vm1" { shown = $(NF - 2) == "-" } END { exit !shown }' top || fail "nothing happened: $(cat top)"
# The policy and the share of memory can change while the server runs; volumes cannot.
refused 1 'start it again' ctl attach
refused 1 'start it again' ctl detach vm1
# A command that only watches the server does not say that it stops.
timeout -s INT 1 "$FOREBAY" ctl top --control unix:control.sock >/dev/null 2>top.err || true
[ ! -s top.err ] || fail "a signal to ctl top: $(cat top.err)"
status | grep -q '"write_policy": "write-back"' || fail "status does not name the policy"
ctl set --write-policy write-through | grep -q '"dirty_blocks":0' || fail "dirty after a change"
status | grep -q '"write_policy": "write-through"' || fail "status does not name the new policy"
io 'write -P 3 0 64k'
cmp -n 65536 <(tail -c +1048577 disk.img) <(head -c 64k /dev/zero | tr '\0' '\3') \
    || fail "write-through did not write through"
ctl set --write-policy write-back >/dev/null
ctl resize --dram 1MiB | grep -q '"dram_bytes":1048576' || fail "resize does not answer with the size"
status | grep -q '"dram_blocks": 256' || fail "status does not say how much memory is used"
refused 1 'to raise it, change' ctl resize --dram 1TiB
io 'write -P 4 0 4M' 'read -P 4 0 4M'
refused 2 'no write policy' "$FOREBAY" ctl set --write-policy ordered --control unix:control.sock
refused 1 'no server answers' "$FOREBAY" ctl status --control "unix:$WORK/nowhere"
if command -v curl >/dev/null; then
    # (Not through a pipe: grep would close it early, and curl would report that as an error.)
    curl -s --unix-socket control.sock http://x/metrics >metrics
    for line in 'forebay_reads_total{volume="vm1"}' 'forebay_backing_failing{volume="vm1"} 0' \
        'forebay_flash_failed 0' 'forebay_quiesced 0' 'policy="write-back"'; do
        grep -q "$line" metrics || fail "no $line: $(cat metrics)"
    done
fi
stop
# A start without write-back on a flash tier with dirty data: first writes the data to the store.
start
io 'write -P 5 0 64k' flush
crash
sed -i 's/^write_policy.*/write_policy = "write-through"/' forebay.toml
start
io 'read -P 5 0 64k' 'write -P 6 0 64k' 'read -P 6 0 64k'
stop
cmp -n 65536 <(tail -c +1048577 disk.img) <(head -c 64k /dev/zero | tr '\0' '\6') \
    || fail "the newest write is not on the store"
# Without flash, writes acknowledged from flash would be lost in a kill: the server says "dram", and
# acknowledges from memory.
rm -f disk.img flash.img
config policy=write-through
start
ctl set --write-policy write-back >set.json
grep -q '"acknowledge":"dram"' set.json || fail "without flash it says: $(cat set.json)"
status | grep -q '"acknowledge": "dram"' || fail "the status reports flash that is not there"
refused 1 'no flash tier' ctl set --write-policy write-back --acknowledge flash
refused 1 'has no effect with write_policy' ctl set --write-policy write-through --acknowledge dram
io 'write -P 7 0 64k' flush
crash
start
io 'read -P 7 0 64k'
stop
