# Older copies of a device, from within the last run, are put back after a kill or a stop: each is
# rejected, or reported with the consequence; flushed data is never silently served in an older
# version.
. "$(dirname "$0")/lib.sh"
need qemu-io
config flash dram=8MiB flash_size=48MiB size=128MiB
printf '[flush]\nstamp_every = "200ms"\n' >>forebay.toml
# fill PATTERN: writes and flushes 40 MiB of it, more than fits in memory, and more than flash has
# regions for.
fill() { io "write -P $1 0 20M" flush "write -P $1 64M 20M" flush; }
has() { io "read -P $1 0 20M" "read -P $1 64M 20M"; }
# Waits until all changes are covered by a stamp.
stamped() { sleep 1; }
# copy FILE NAME: makes a snapshot of the device.
copy() { cp --sparse=always "$1" "$2"; }
older() { said "vm1.*older copy"; }
refuses() {
    refused 1 'vm1: .*older copy.*Restore the newer' \
        timeout 60 "$FOREBAY" serve --config forebay.toml
}

# 1. The store, as it was during a quiesce, put back after a later clean stop.
start
fill 1
ctl quiesce >/dev/null
copy disk.img quiet.img
ctl quiesce --resume >/dev/null
fill 2
stop
copy disk.img newer.img
cp quiet.img disk.img
: >server.log
start
older
has 1 # It is consistent, and is served as it is.
crash
cp newer.img disk.img # (With a store from before the last start.)
rm -f flash.img disk.img

# 2. Flash, as it was earlier in the run, put back after a kill under load.
start
fill 3
stamped
copy flash.img older.flash
fill 4
stamped
( while io "write -P 5 40M 8M" flush; do :; done ) 2>/dev/null &
load=$!
sleep 1
crash
wait "$load" 2>/dev/null || true
mv flash.img newer.flash
cp older.flash flash.img
refuses
mv newer.flash flash.img
start
has 4

# 3. The store, as it was earlier in the run, put back after a kill under load.
fill 6
stamped
copy disk.img older.img
fill 7
stamped
( while io "write -P 8 40M 8M" flush; do :; done ) 2>/dev/null &
load=$!
sleep 1
crash
wait "$load" 2>/dev/null || true
mv disk.img newer.img
cp older.img disk.img
refuses
refuses # Every time.
mv newer.img disk.img
start
has 7

# 4. The store, as it was earlier in the run, while flash still has everything that it lacks: it is
#    completed.
stop
rm -f disk.img flash.img
start
io "write -P 10 0 2M" "write -P 10 64M 2M" flush
ctl destage >/dev/null
stamped
copy disk.img older.img
io "write -P 11 0 2M" flush
ctl destage >/dev/null
io "write -P 12 4k 4k" "write -P 13 65M 1536" flush
ctl destage >/dev/null
stamped
io "write -P 14 66M 4k" flush
crash
mv disk.img newer.img
cp older.img disk.img
: >server.log
start
said 'vm1: .*older than the flash tier.*blocks to the store again'
flushed="read -P 11 0 4k;read -P 12 4k 4k;read -P 11 8k 2040k;read -P 10 64M 1M;read -P 13 65M 1536;read -P 14 66M 4k"
mapfile -t -d ';' reads < <(printf %s "$flushed")
io "${reads[@]}"
crash
: >server.log
start
! grep -q 'older' server.log || fail "it is complete: $(cat server.log)"
io "${reads[@]}"
stop
mv flash.img spent.flash # The store alone has everything.
start
io "${reads[@]}"

# 5. As before, but with a trim of uncached blocks, which is not in the log: rejected.
stop
rm -f disk.img flash.img
start
fill 1
stamped
copy disk.img older.img
io "discard 100M 1M" "write -P 2 0 64k" flush
ctl destage >/dev/null
stamped
crash
mv disk.img newer.img
cp older.img disk.img
refuses
mv newer.img disk.img
start
io "read -P 2 0 64k" "read -P 1 64k 1M" "read -P 0 100M 1M"
fill 7

# 6. Under write-through the store has all data: an older flash tier only loses its contents.
stop
sed -i 's/^write_policy.*/write_policy = "write-through"/' forebay.toml
start
has 7
stamped
copy flash.img older.flash
fill 9
has 9
stamped
crash
cp older.flash flash.img
: >server.log
start
older
has 9
stop
