"""Checks that a good NBD client is served among clients that ask for much and read nothing.

Usage: hostile.py SOCKET PID CLIENTS ALLOWED_KIB

Measures the rate of a good client alone and among CLIENTS hostile ones, and meanwhile the memory of
the server (process PID). Fails if the memory exceeds ALLOWED_KIB, or if the good client fails.
"""

import os
import struct
import sys
import threading
import time

from nbdsocket import BLOCK, connect, dial, request, take

READ, WRITE, FLUSH = 0, 1, 3
PATH, PID, CLIENTS, ALLOWED_KIB = (
    sys.argv[1],
    sys.argv[2],
    int(sys.argv[3]),
    int(sys.argv[4]),
)
SECONDS = 8
DEPTH = 16


def push(s, data):
    """Sends as much of `data` as the server accepts."""
    s.setblocking(False)
    try:
        while data:
            data = data[s.send(data) :]
    except OSError:
        pass


def half_handshake(n):
    s = dial(PATH)
    # The longest option that the server keeps, without its last byte.
    push(
        s,
        struct.pack(">I", 3)
        + b"IHAVEOPT"
        + struct.pack(">II", 7, 65536)
        + b"x" * 65535,
    )
    return s


def half_write(n):
    s = connect(PATH)
    push(s, request(WRITE, 0, 32 << 20) + b"x" * (n % 3 << 20))
    return s


def small_half_writes(n):
    s = connect(PATH)
    push(
        s,
        (request(WRITE, 0, BLOCK) + b"x" * BLOCK) * 20
        + request(WRITE, 0, 65536)
        + b"x" * 65535,
    )
    return s


def slow_reader(n):
    s = connect(PATH)
    push(s, request(READ, 0, (32 << 20) >> n % 8) * 4096)
    return s


def small_slow_reader(n):
    s = connect(PATH)
    push(
        s, b"".join(request(READ, (n + i) % 4096 * BLOCK, BLOCK) for i in range(20000))
    )
    return s


def deaf_talker(n):
    s = connect(PATH)
    push(s, (request(99, 0, BLOCK) + request(READ, 1 << 60, BLOCK)) * 30000)
    return s


HOSTILE = [
    half_handshake,
    half_write,
    small_half_writes,
    slow_reader,
    small_slow_reader,
    deaf_talker,
]


def good_client(seconds):
    """Reads and writes at a queue depth, checks the data read, and returns requests per second."""
    s = connect(PATH)
    base, blocks, done = 128 << 20, 1024, 0
    content = {}
    began = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        batch, expected = [], {}
        for i in range(DEPTH):
            block = (done * 7 + i * 61) % blocks
            # Skip blocks written in the same batch: the server chooses the order.
            if (
                i % 2
                and block in content
                and block not in {b for b, _ in expected.values()}
            ):
                expected[i] = (block, content[block])
                batch.append(request(READ, base + block * BLOCK, BLOCK, i))
            elif block not in {b for b, _ in expected.values()}:
                data = struct.pack(">QQ", block, done) * (BLOCK // 16)
                content[block] = data
                expected[i] = (block, None)
                batch.append(request(WRITE, base + block * BLOCK, BLOCK, i) + data)
        s.sendall(b"".join(batch))
        for _ in range(len(expected)):
            magic, error, cookie = struct.unpack(">IIQ", take(s, 16))
            assert magic == 0x67446698 and error == 0, f"error {error}"
            block, data = expected.pop(cookie)
            assert data is None or take(s, BLOCK) == data, (
                f"block {block} is not what was written"
            )
            done += 1
    s.sendall(request(FLUSH, 0, 0))
    assert struct.unpack(">IIQ", take(s, 16))[1] == 0
    return done / (now - began)


def rss_kib():
    with open(f"/proc/{PID}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def large_requests():
    """A good client that needs more than its share of memory, after the hostile ones have left."""
    s = connect(PATH)
    s.settimeout(300)
    data = os.urandom(4 << 20)
    began = time.monotonic()
    s.sendall(request(WRITE, 64 << 20, len(data)) + data)
    assert struct.unpack(">IIQ", take(s, 16))[1] == 0
    s.sendall(request(READ, 64 << 20, len(data)))
    assert struct.unpack(">IIQ", take(s, 16))[1] == 0
    assert take(s, len(data)) == data
    return time.monotonic() - began


before = rss_kib()
alone = good_client(SECONDS)
most, over = 0, threading.Event()


def watch():
    global most
    while not over.is_set():
        most = max(most, rss_kib())
        time.sleep(0.05)


watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
hostile = [HOSTILE[n % len(HOSTILE)](n) for n in range(CLIENTS)]
among = good_client(SECONDS)
for s in hostile:
    s.close()
waited = large_requests()
over.set()
watcher.join()
assert len(hostile) == CLIENTS
print(f"memory {before} KiB before, at most {most} KiB, allowed {ALLOWED_KIB} KiB")
print(
    f"good client alone {alone:.0f} requests/s, among {CLIENTS} hostile ones {among:.0f}"
)
print(f"4 MiB written and read after they left: {waited:.2f} s")
assert most <= ALLOWED_KIB, "too much memory"
# Not a measurement: only checks that the good client is served at all.
assert among > alone / 20, "the good client is hardly served"
