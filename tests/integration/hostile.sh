# Many clients that ask for much and read nothing: memory stays within its budget, and others are
# served.
. "$(dirname "$0")/lib.sh"
need python3
clients=${FOREBAY_HOSTILE_CLIENTS:-1000}
# A client takes up to two file descriptors in each process.
ulimit -n 8192 2>/dev/null || clients=200
config flash dram=64MiB size=256MiB
printf 'request_memory = "256MiB"\nvolume_connections = 1010\n' >>forebay.toml
# Both time out well before the good client has finished, which runs among the hostile ones for
# eight seconds.
printf 'stall_timeout = "2s"\nhandshake_timeout = "3s"\n' >>forebay.toml
start
# Memory of the cache, buffers for reads, request_memory, and 64 MiB for everything else.
timeout 500 python3 "$HERE/hostile.py" nbd.sock "$SERVER" "$clients" $(((64 + 8 + 256 + 64) * 1024)) \
    || fail "$(status)"
status >status.json
grep -q '"stall_timeout": [1-9]' status.json || fail "no client was disconnected for holding memory"
grep -q '"handshake_timeout": [1-9]' status.json || fail "no client was disconnected for an incomplete handshake"
said 'closed [0-9]* NBD connections: .*stall_timeout'
stop
# As many connections as are allowed, and one more.
printf 'connections = 8\n' >>forebay.toml
sed -i 's/^volume_connections.*/volume_connections = 3/' forebay.toml
start
cat >many.py <<'PYTHON'
import socket, struct, time


def dial():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect("nbd.sock")
    return s


def go(s):
    """The type of the last reply to NBD_OPT_GO."""
    take(s, 18)
    data = struct.pack(">I", 3) + b"vm1" + b"\0\0"
    s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, len(data)) + data)
    while True:
        _, _, kind, length = struct.unpack(">QIII", take(s, 20))
        text = take(s, length)
        if kind != 3:
            return kind, text


def take(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        assert part, "the server hung up"
        got += part
    return got


all_there = [dial() for _ in range(3)]
assert [go(s)[0] for s in all_there] == [1, 1, 1]
fourth = dial()
kind, text = go(fourth)
assert kind == 0x80000002 and b"limit of client connections" in text, (kind, text)
more = [fourth] + [dial() for _ in range(4)]
for s in more[1:]:
    take(s, 18)
ninth = dial()
assert ninth.recv(18) == b"", "more connections than there may be"
# A client that disconnects makes room, also for its volume.
all_there.pop().close()
for _ in range(100):
    again = dial()
    try:
        if go(again)[0] == 1:
            break
    except AssertionError:
        pass
    again.close()
    time.sleep(0.1)
else:
    raise AssertionError("no room after one left")
PYTHON
python3 many.py || fail "see above"
stop
said 'refused .* serve.connections'
