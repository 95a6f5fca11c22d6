# A recording whose file accepts no data delays neither clients nor the stop: dirty data is destaged
# first, and the stop reports that the recording is incomplete.
. "$(dirname "$0")/lib.sh"
need qemu-io python3
config
mkfifo trace
exec 9<>trace
start --record trace
fill trace
io 'write -P 7 0 4M' 'read -P 7 0 4M'
pid=$SERVER
began=$SECONDS
kill -TERM "$pid"
destaged() { cmp -s -n 4194304 -i 1048576:0 disk.img <(head -c 4M /dev/zero | tr '\0' '\7'); }
for _ in $(seq 100); do
    ! destaged || break
    sleep 0.1
done
destaged || fail "the stop does not destage while the recording waits"
for _ in $(seq 300); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
done
! kill -0 "$pid" 2>/dev/null || fail "the stop waits for the recording: $((SECONDS - began)) s"
SERVER=
wait "$pid" || fail "the stop failed with the recording"
grep -q 'the recording is incomplete: the last requests could not be written to trace within' server.log \
    || fail "nothing was reported"
"$FOREBAY" backing info disk.img | grep -q 'dirty *no' || fail "the store is dirty"
