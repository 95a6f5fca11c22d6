# Clients that misbehave hurt only themselves, and a stop does not wait for them.
. "$(dirname "$0")/lib.sh"
need python3 qemu-io
config size=64MiB
start
cat >bad.py <<'PYTHON'
import os, socket, struct, sys, time

PATH = sys.argv[1]
REQUEST = 0x25609513


def connect(negotiate=True):
    s = socket.socket(socket.AF_UNIX)
    s.connect(PATH)
    if negotiate:
        take(s, 18)
        s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 3) + b"vm1")
        take(s, 10)
    return s


def take(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        assert part, "the server hung up"
        got += part
    return got


def request(command, offset, length, flags=0, cookie=7):
    return struct.pack(">IHHQQI", REQUEST, flags, command, cookie, offset, length)


def error_of(s):
    magic, error, cookie = struct.unpack(">IIQ", take(s, 16))
    assert magic == 0x67446698 and cookie == 7
    return error


def closed(s):
    s.settimeout(5)
    try:
        while s.recv(65536):
            pass
    except ConnectionResetError:
        pass


# Garbage instead of flags, options, requests: the connection ends.
for bytes_ in [os.urandom(64), b"\xff" * 4, struct.pack(">I", 3) + b"NOTANOPT" * 4]:
    s = connect(False)
    take(s, 18)
    s.sendall(bytes_)
    closed(s)
s = connect()
s.sendall(os.urandom(4096))
closed(s)

# Half a header or half a payload, then the connection is closed.
for part in [request(0, 0, 4096)[:13], request(1, 0, 1 << 20) + b"x" * 1000]:
    connect().sendall(part)

# Invalid requests are rejected one by one; the connection stays open.
s = connect()
for bad in [
    request(0, 64 << 20, 4096),
    request(0, (1 << 64) - 4096, 4096),
    request(0, 100, 512),
    request(0, 0, 0),
    request(99, 0, 512),
    request(0, 0, 512, flags=0x8000),
    request(7, 0, 512),
    request(1, 64 << 20, 512) + b"y" * 512,
    request(6, 0, 0xFFFFFE00),
]:
    s.sendall(bad)
    assert error_of(s) != 0, bad
s.sendall(request(0, 0, 512))
assert error_of(s) == 0
take(s, 512)

# A payload larger than the limit ends the connection instead of filling memory.
s = connect()
s.sendall(request(1, 0, 0xFFFFFE00))
closed(s)

# DISC with requests in flight: they are answered first.
s = connect()
s.sendall(request(1, 0, 4096) + b"z" * 4096 + request(0, 0, 4096) + request(2, 0, 0))
assert error_of(s) == 0 and error_of(s) == 0 and take(s, 4096) == b"z" * 4096
closed(s)

# Many connect and disconnect, and some ask for a lot and never read.
for _ in range(200):
    connect().close()
stuck = [connect() for _ in range(8)]
for s in stuck:
    s.setblocking(False)
    try:
        for _ in range(4096):
            s.send(request(0, 0, 1 << 20))
    except BlockingIOError:
        pass
print("ready", flush=True)
time.sleep(3600)
PYTHON
python3 bad.py nbd.sock >bad.out 2>bad.err &
bad=$!
more_cleanup() { kill -KILL $bad 2>/dev/null || true; }
for _ in $(seq 300); do
    grep -q ready bad.out && break
    kill -0 $bad 2>/dev/null || fail "$(cat bad.err)"
    sleep 0.1
done
grep -q ready bad.out || fail "the bad clients did not finish within 30 s: $(cat bad.err)"
# (`io` fails if the other clients hold it up.)
io 'write -P 3 1M 1M' 'read -P 3 1M 1M'
kib=$(awk '/VmRSS/ { print $2 }' "/proc/$SERVER/status")
[ "$kib" -lt 700000 ] || fail "8 clients that do not read cost $kib KiB"
began=$SECONDS
stop
[ $((SECONDS - began)) -lt 20 ] || fail "the stop waited for clients that do not read"
