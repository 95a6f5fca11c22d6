"""A minimal NBD client for tests that misuse the protocol."""

import socket
import struct

BLOCK = 4096
REQUEST = 0x25609513


def take(s, n):
    """Receives exactly `n` bytes."""
    got = bytearray(n)
    view = memoryview(got)
    while view:
        part = s.recv_into(view)
        assert part, "the server hung up"
        view = view[part:]
    return got


def dial(path):
    """Opens a connection, without a handshake."""
    s = socket.socket(socket.AF_UNIX)
    # Ends the test if both sides wait for each other.
    s.settimeout(60)
    s.connect(path)
    return s


def connect(path):
    """Opens a connection to the export vm1, ready for requests."""
    s = dial(path)
    take(s, 18)
    s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 3) + b"vm1")
    take(s, 10)
    return s


def request(command, offset, length, cookie=7):
    """Returns the header of a request."""
    return struct.pack(">IHHQQI", REQUEST, 0, command, cookie, offset, length)
