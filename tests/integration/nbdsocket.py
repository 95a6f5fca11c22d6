"""An NBD client in a few lines, for tests that misuse the protocol."""

import socket
import struct

BLOCK = 4096
REQUEST = 0x25609513


def take(s, n):
    """Exactly so many bytes."""
    got = bytearray(n)
    view = memoryview(got)
    while view:
        part = s.recv_into(view)
        assert part, "the server hung up"
        view = view[part:]
    return got


def dial(path):
    """A connection on which nothing was said."""
    s = socket.socket(socket.AF_UNIX)
    # If either side waits for the other, this ends it.
    s.settimeout(60)
    s.connect(path)
    return s


def connect(path):
    """A connection to the export vm1, ready for requests."""
    s = dial(path)
    take(s, 18)
    s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 3) + b"vm1")
    take(s, 10)
    return s


def request(command, offset, length, cookie=7):
    """The head of a request."""
    return struct.pack(">IHHQQI", REQUEST, 0, command, cookie, offset, length)
