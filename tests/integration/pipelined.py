"""Sends thousands of requests before it reads a reply: neither side may wait for the other.

Usage: pipelined.py SOCKET
"""

import struct
import sys
import threading
import time

from nbdsocket import BLOCK, connect, request, take

COUNT = 4000
# Replies waiting for a client without competitors may take 12 MiB; a block and its reply take 4.5
# KiB.
READS_MAX = 2700
# More than READS_MAX plus 64 KiB of requests plus the buffers of both sockets.
READS_TOO_MANY = 8000
# Seconds to wait until the server has taken back the memory of an idle connection.
REST = 1.5


def reply(s):
    magic, error, cookie = struct.unpack(">IIQ", take(s, 16))
    assert magic == 0x67446698 and error == 0
    return cookie


def content(block):
    return struct.pack(">QQ", block, ~block & (1 << 64) - 1) * (BLOCK // 16)


def send_reads(s, count):
    for n in range(count):
        s.sendall(request(0, n % COUNT * BLOCK, BLOCK, n))


def take_reads(s, count):
    seen = set()
    for _ in range(count):
        n = reply(s)
        assert take(s, BLOCK) == content(n % COUNT), f"block {n % COUNT}"
        seen.add(n)
    assert len(seen) == count


s = connect(sys.argv[1])
for block in range(COUNT):
    s.sendall(request(1, block * BLOCK, BLOCK, block) + content(block))
assert sorted(reply(s) for _ in range(COUNT)) == list(range(COUNT))
time.sleep(REST)
send_reads(s, READS_MAX)
take_reads(s, READS_MAX)
# With more requests, the server reads the rest only as replies are taken.
time.sleep(REST)
sender = threading.Thread(target=send_reads, args=(s, READS_TOO_MANY))
sender.start()
sender.join(REST)
assert sender.is_alive(), "the memory of a connection is unbounded"
take_reads(s, READS_TOO_MANY)
sender.join()
# Bad requests, too.
for n in range(COUNT):
    s.sendall(request(99, 0, 512, n))
errors = [struct.unpack(">IIQ", take(s, 16)) for _ in range(COUNT)]
assert all(error == 22 for _, error, _ in errors)
assert sorted(cookie for _, _, cookie in errors) == list(range(COUNT))
