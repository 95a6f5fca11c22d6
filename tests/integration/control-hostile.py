"""Sends the control address requests that it must reject; the server must keep running.

Usage: control-hostile.py unix:PATH | tcp:IP:PORT TOKEN_FILE
"""

import socket
import sys


def connect(address):
    kind, _, place = address.partition(":")
    if kind == "unix":
        s = socket.socket(socket.AF_UNIX)
        s.connect(place)
    else:
        host, _, port = place.rpartition(":")
        s = socket.create_connection((host, int(port)))
    s.settimeout(30)
    return s


def answer(s):
    """Returns what the server sends until it closes the connection: the status code and the
    whole text.
    """
    got = b""
    try:
        while part := s.recv(65536):
            got += part
    except ConnectionResetError:
        pass
    text = got.decode()
    return (int(text.split(" ")[1]) if text else 0), text


def ask(address, head, body=b""):
    s = connect(address)
    try:
        s.sendall("\r\n".join([*head, "", ""]).encode() + body)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return answer(s)


def expect(code, address, head, body=b""):
    got, text = ask(address, head, body)
    assert got == code, f"{got} instead of {code} for {head}: {text}"
    return text


address = sys.argv[1]
host = "Host: localhost"
if address.startswith("tcp:"):
    token = open(sys.argv[2]).read().strip()
    authorization = f"Authorization: Bearer {token}"
    get = "GET /status HTTP/1.1"
    stop = "POST /stop HTTP/1.1"
    assert "Bearer" in expect(401, address, [get, host])
    expect(401, address, [stop, host, "Authorization: Bearer " + "0" * len(token)])
    expect(421, address, [stop, "Host: evil.example", authorization])
    expect(403, address, [stop, host, "Origin: http://evil.example", authorization])
    expect(403, address, [stop, host, "Origin: null", authorization])
    host += "\r\n" + authorization
    expect(200, address, [get, host])

# Sizes: of bodies, as announced and as sent, of heads, and the number of headers.
for length in [99999999999, 2**63, 65537]:
    expect(413, address, ["POST /destage HTTP/1.1", host, f"Content-Length: {length}"])
expect(400, address, ["POST /destage HTTP/1.1", host, "Content-Length: -1"])
chunks = b"10000\r\n" + b"x" * 0x10000 + b"\r\n" + b"1\r\nx\r\n0\r\n\r\n"
expect(
    413, address, ["POST /resume HTTP/1.1", host, "Transfer-Encoding: chunked"], chunks
)
expect(
    400, address, ["POST /resume HTTP/1.1", host, "Content-Length: 65536"], b"x" * 65536
)
few = ["POST /resume HTTP/1.1", host, "Transfer-Encoding: chunked"]
expect(400, address, few, b"5\r\n[1,2]\r\n0\r\n\r\n")
expect(200, address, few, b"0\r\n\r\n")
expect(431, address, ["GET /status HTTP/1.1", host, "X: " + "x" * (1 << 20)])
expect(431, address, ["GET /status HTTP/1.1", host] + [f"X{n}: y" for n in range(1000)])
expect(405, address, ["DELETE /status HTTP/1.1", host])
assert ask(address, ["\x00\x01\x02"])[0] in (0, 400)

# 500 incomplete requests of two kinds: the server must drop the oldest to make room for complete
# ones. Otherwise a complete request would wait until all 500 have timed out after ten seconds each,
# 64 at a time: longer than the client's own timeout.
heads = [
    "GET /status HTTP/1.1\r\nHost: local",
    f"POST /destage HTTP/1.1\r\n{host}\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n1234",
]
half = [connect(address) for _ in range(500)]
for n, s in enumerate(half):
    s.sendall(heads[n % 2].encode())
for _ in range(10):
    expect(200, address, ["GET /status HTTP/1.1", host])
gone = [answer(s)[0] for s in half[:400]]
assert set(gone) <= {0, 408}, gone
