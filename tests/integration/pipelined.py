"""Sends thousands of requests before it reads a reply: neither side may wait for the other.

Usage: pipelined.py SOCKET
"""

import struct
import sys

from nbdsocket import BLOCK, connect, request, take

COUNT = 4000


def reply(s):
    magic, error, cookie = struct.unpack(">IIQ", take(s, 16))
    assert magic == 0x67446698 and error == 0
    return cookie


def content(block):
    return struct.pack(">QQ", block, ~block & (1 << 64) - 1) * (BLOCK // 16)


s = connect(sys.argv[1])
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
