"""Sends thousands of requests before it reads a reply: neither side may wait for the other.

Usage: pipelined.py SOCKET
"""

import socket
import struct
import sys

BLOCK = 4096
COUNT = 4000


def take(s, n):
    got = bytearray(n)
    view = memoryview(got)
    while view:
        part = s.recv_into(view)
        assert part, "the server hung up"
        view = view[part:]
    return got


def request(command, offset, length, cookie):
    return struct.pack(">IHHQQI", 0x25609513, 0, command, cookie, offset, length)


def reply(s):
    magic, error, cookie = struct.unpack(">IIQ", take(s, 16))
    assert magic == 0x67446698 and error == 0
    return cookie


def content(block):
    return struct.pack(">QQ", block, ~block & (1 << 64) - 1) * (BLOCK // 16)


s = socket.socket(socket.AF_UNIX)
# If either waits for the other, this ends it.
s.settimeout(60)
s.connect(sys.argv[1])
take(s, 18)
s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 3) + b"vm1")
take(s, 10)
for block in range(COUNT):
    s.sendall(request(1, block * BLOCK, BLOCK, block) + content(block))
assert sorted(reply(s) for _ in range(COUNT)) == list(range(COUNT))
for block in range(COUNT):
    s.sendall(request(0, block * BLOCK, BLOCK, block))
seen = set()
for _ in range(COUNT):
    block = reply(s)
    assert take(s, BLOCK) == content(block), f"block {block}"
    seen.add(block)
assert len(seen) == COUNT
# Bad requests, too.
for n in range(COUNT):
    s.sendall(request(99, 0, 512, n))
errors = [struct.unpack(">IIQ", take(s, 16)) for _ in range(COUNT)]
assert all(error == 22 for _, error, _ in errors)
assert sorted(cookie for _, _, cookie in errors) == list(range(COUNT))
