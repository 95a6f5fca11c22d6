# SIGHUP: the server reads the configuration again. Applicable changes are applied, others are
# named, and an invalid file changes nothing.
. "$(dirname "$0")/lib.sh"
need qemu-io

# reload: lets the server read the file again, with an empty log.
reload() { : >server.log; kill -HUP "$SERVER"; }

config flash size=64MiB
start
: >server.log
reload
said 'the configuration has not changed'
io 'write -P 1 0 1M'
sed -i 's/^write_policy.*/write_policy = "write-through"/; s/^dram.*/dram = "8MiB"/' forebay.toml
printf 'idle_timeout = "2s"\n[flush]\non_stop = "keep"\n' >>forebay.toml
sed -i 's/^size = "64MiB"/size = "128MiB"/' forebay.toml
reload
said 'cache.write_policy is now write-through'
said 'cache.dram is now 8 MiB'
said 'applied the new value of serve.idle_timeout'
said 'applied the new value of flush.on_stop'
said 'volume.0.size has changed; the change takes effect at the next start, provided that .*disk.img is enlarged first: its size is only'
said 'flash.size has changed; the change takes effect when you start with --format, provided that .*flash.img is enlarged first: its size is only 64 MiB'
status >status.json
grep -q '"write_policy": "write-through"' status.json || fail "the policy has not changed"
grep -q '"dram_blocks": 2048' status.json || fail "the memory size has not changed"
cmp -n 1048576 <(tail -c +1048577 disk.img) <(head -c 1M /dev/zero | tr '\0' '\1') || fail "not destaged"
# The file is compared with the current settings, including changes by hand, and not with its
# earlier contents.
ctl set --write-policy write-back >/dev/null
reload
said 'cache.write_policy is now write-through'
# More memory than at the start requires a restart.
sed -i 's/^dram.*/dram = "1GiB"/' forebay.toml
reload
said 'cache.dram was not changed: .*restart'
# An invalid file.
cp forebay.toml good.toml
echo 'no_such_key = 1' >>forebay.toml
sed -i 's/^write_policy.*/write_policy = "write-back"/' forebay.toml
reload
said 'the configuration is invalid: .*no_such_key.*; nothing was changed'
status | grep -q '"write_policy": "write-through"' || fail "a wrong file changed the policy"
rm forebay.toml
reload
said 'nothing was changed'
! grep -qi 'stopping' server.log || fail "it says that it is stopping, but does not stop"
mv good.toml forebay.toml
io 'read -P 1 0 1M'
# The new idle timeout applies to new clients.
if command -v python3 >/dev/null; then
    : >server.log
    python3 - <<'PYTHON' || fail "an idle client is not disconnected"
import socket, struct

s = socket.socket(socket.AF_UNIX)
s.settimeout(30)
s.connect("nbd.sock")
s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 3) + b"vm1")
while s.recv(4096):
    pass
PYTHON
    said 'closed 1 NBD connections: they were idle for serve.idle_timeout'
fi
stop
# A [flash] section that is removed or added takes effect at the next start; until then writes are
# acknowledged as before.
rm -f disk.img flash.img
config flash
start
config
: >server.log
reload
said 'flash has changed; the change takes effect at the next start'
status | grep -q '"acknowledge": "flash"' || fail "a configuration without flash made the server acknowledge from memory"
stop
rm -f disk.img flash.img
start
# Without a flash tier, nothing lasts from a format.
sed -i 's/^\[cache\]/&\nblock_size = "8KiB"/' forebay.toml
reload
said 'cache.block_size has changed; the change takes effect at the next start$'
config flash
reload
said 'flash has changed; the change takes effect at the next start'
sleep 0.5
status | grep -q '"acknowledge": "dram"' || fail "writes are acknowledged by flash that is not there"
! grep -q 'was not changed' server.log || fail "it says: $(cat server.log)"
stop
