# A real systemd, in namespaces of its own, runs the server with the unit of the guide: units
# ordered after it start when clients are served, a start that takes long is not ended, `systemctl
# status` shows its progress, a server that dies is restarted, `systemctl reload` reads the
# configuration again, and a stop destages.
. "$(dirname "$0")/lib.sh"
need qemu-io unshare systemctl
[ "$(id -u)" = 0 ] || skip "a service manager in a namespace needs root"
manager=/lib/systemd/systemd
[ -x "$manager" ] || skip "no systemd here"

# Flash that takes longer to read at the start than the time limit of the unit.
config flash
sed -i 's|^size = "64MiB"|size = "64MiB"\nregion_size = "4MiB"|' forebay.toml
start
io 'write -P 7 0 26M' flush
crash
cp forebay.toml quick.toml
sed -i 's|^size = "64MiB"|size = "64MiB"\nshape = "crawl"|' forebay.toml
printf '[shape.crawl]\nread_latency = "150ms"\nparallelism = 1\n' >>forebay.toml

mkdir units
# The unit of the guide, with the paths of this test.
guide=$(sed -n '/^    \[Service\]$/,/^$/p' "$ROOT/docs/user-guide.md" | sed 's/^    //')
grep -q '^Type=notify$' <<<"$guide" || fail "the guide has no unit: $guide"
reload=$(grep '^ExecReload=' "$ROOT/packaging/forebay.service") || fail "the unit of the package cannot reload"
grep -qxF "$reload" <<<"$guide" || fail "the guide and the package reload in different ways: $guide"
{
    printf '[Unit]\nDefaultDependencies=no\n'
    sed "s|^ExecStart=.*|ExecStart=$FOREBAY serve --config $WORK/forebay.toml|" <<<"$guide"
    printf 'TimeoutStartSec=2\nTimeoutStopSec=2\nStandardError=append:%s/server.log\n' "$WORK"
} >units/forebay.service
cat >units/after.service <<END
[Unit]
DefaultDependencies=no
After=forebay.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'cd $WORK && $FOREBAY ctl status --control unix:$WORK/control.sock >after'
END
cat >units/probe.service <<END
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/bash $WORK/probe.sh
END
printf '[Unit]\nDefaultDependencies=no\nWants=forebay.service after.service probe.service\n' >units/default.target
cat >probe.sh <<END
cd $WORK
touch alive
property() { systemctl show -p "\$1" --value forebay; }
until_is() { for _ in \$(seq 600); do [ "\$(property "\$1")" = "\$2" ] && return; sleep 0.1; done; }
for _ in \$(seq 600); do property StatusText | grep recovering >status-starting && break; sleep 0.05; done
until_is ActiveState active
property StatusText >status-serving
echo token >/run/forebay/kept
property NRestarts >restarts-first
cp quick.toml forebay.toml
kill -KILL "\$(property MainPID)"
until_is NRestarts 1
until_is ActiveState active
property ActiveState >state-restarted
sed -i 's/^write_policy.*/write_policy = "write-through"/' forebay.toml
systemctl reload forebay 2>reloaded && echo reloaded >reloaded
for _ in \$(seq 100); do grep -q 'write_policy is now' server.log && break; sleep 0.1; done
systemctl stop forebay
property Result >result-stopped
cp /run/forebay/kept kept-stopped
touch done
END
cat >inside.sh <<END
mount -t tmpfs tmpfs /run
mkdir /run/systemd
export SYSTEMD_UNIT_PATH=$WORK/units container=forebay-test
exec $manager --system --unit=default.target --log-target=null
END
unshare --mount --pid --fork --cgroup --mount-proc --kill-child=KILL sh inside.sh >systemd.log 2>&1 &
running=$!
more_cleanup() { kill -KILL "$running" 2>/dev/null || true; }
for _ in $(seq 600); do [ -e alive ] && break; kill -0 "$running" 2>/dev/null || break; sleep 0.1; done
[ -e alive ] || skip "systemd does not run in namespaces here: $(tail -1 systemd.log)"
for _ in $(seq 1200); do [ -e 'done' ] && break; sleep 0.1; done
[ -e 'done' ] || fail "it does not end: $(tail -3 server.log)"

grep -q '^recovering: ' status-starting || fail "while it started: $(cat status-starting)"
[ "$(cat status-serving)" = 'serving vm1' ] || fail "when it served: $(cat status-serving)"
# (One line per second.)
[ "$(grep -c 'recovering: ' server.log)" -ge 3 ] || fail "the start is too quick to report progress: $(cat server.log)"
[ "$(cat restarts-first)" = 0 ] || fail "the start was ended by its time limit"
grep -q '"state": "serving"' after || fail "a unit ordered after it started too early: $(cat after)"
[ "$(cat state-restarted)" = active ] || fail "it did not come back: $(cat state-restarted)"
[ "$(cat reloaded)" = reloaded ] || fail "the reload: $(cat reloaded)"
grep -q 'cache.write_policy is now write-through' server.log || fail "the reload changed nothing: $(tail -3 server.log)"
[ -s kept-stopped ] || fail "the stop removed what was in /run/forebay, such as the control token"
[ "$(cat result-stopped)" = success ] || fail "the stop: $(cat result-stopped)"
"$FOREBAY" backing info disk.img | grep -q 'dirty *no' || fail "the stop did not destage"
