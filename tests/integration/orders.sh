# More orders than can be carried out at a time: the excess ones are rejected, but a stop is not.
. "$(dirname "$0")/lib.sh"
need qemu-io
config flash
sed -i 's|^layout = .*|layout = "offset"\nshape = "crawl"|' forebay.toml
printf '[shape.crawl]\nwrite_latency = "100ms"\nparallelism = 1\n' >>forebay.toml
start
io 'write -P 6 0 24M' flush
orders=()
for n in $(seq 20); do
    ctl destage >order.$n 2>&1 &
    orders+=($!)
done
for _ in $(seq 100); do
    [ "$(grep -l 'too many commands' order.* | wc -l)" = 4 ] && break
    sleep 0.1
done
[ "$(grep -l 'too many commands' order.* | wc -l)" = 4 ] || fail "$(cat order.*)"
status >/dev/null || fail "no status meanwhile"
ctl stop --keep-dirty >/dev/null || fail "the stop was refused"
wait "${orders[@]}" || true
wait "$SERVER" || fail "the stop failed"
SERVER=
"$FOREBAY" backing info --json disk.img | grep -q '"dirty": true' || fail "it waited for the store"
