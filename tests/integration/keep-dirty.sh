# Stops that keep dirty data, under load, with slow stores: a store is not written to once its state
# at the stop has been recorded, so that the next start succeeds.
. "$(dirname "$0")/lib.sh"
need fio
config flash size=16MiB flash_size=24MiB flash_layout=slots dram=2MiB ack=dram
cat >>forebay.toml <<END
[[volume]]
name = "vm2"
backing = "$WORK/disk2.img"
size = "16MiB"
shape = "slow"
[shape.slow]
write_latency = "3ms"
parallelism = 2
END
sed -i 's|^layout = "offset"|layout = "offset"\nshape = "slow"|' forebay.toml
load() {
    fio --name=load --ioengine=nbd --uri="nbd+unix:///$1?socket=$WORK/nbd.sock" --rw=randwrite --bs=4k --iodepth=16 \
        --size=16M --time_based --runtime=60 >/dev/null 2>&1 || true
}
for round in $(seq 6); do
    start || fail "refused after $((round - 1)) stops: $(tail -2 server.log)"
    load vm1 &
    loads=$!
    load vm2 &
    loads+=" $!"
    sleep "1.$round"
    ctl stop --keep-dirty >stopped || fail "the stop"
    wait "$SERVER" || fail "the stop failed"
    SERVER=
    # shellcheck disable=SC2086
    wait $loads
done
grep -qv '"dirty_blocks":0,' stopped || fail "nothing was dirty: $(cat stopped)"
start
stop
