"""Workloads that run in the guest, and checks that run on the host on the data they left.

workload.py files DIRECTORY NAME [FIRST]
    Writes files until /tmp/stop exists, syncs each and keeps the last few. Prints "SYNCED path md5"
    when a file must survive from now on, and "REMOVING path" when it need not any more.
workload.py blocks DEVICE FIRST LAST CPU,CPU,... [noflush]
    Rounds of writes that bypass the page cache, by one process on each of these processors. Each
    round is followed by a flush from processor 0 and the line "FLUSHED round".
workload.py check DEVICE LOW HIGH [OFFSET]
    Checks that every sector holds what the rounds up to LOW wrote, or the data of a later round up
    to HIGH.
workload.py reconnect HOST PORT EXPORT SOCKETS SECONDS
    Replaces dead connections of /dev/nbd0 by new ones, and sets to SECONDS how long it waits for
    the next ones: nbd-client 3.24 can do neither over netlink.
"""

import hashlib
import mmap
import os
import random
import socket
import struct
import sys

from kill9 import SECTOR, sector, version_of

BLOCK = 4096
WRITERS = 8  # areas of the device; one processor may write several
AREA = 4 << 20
FILES = 12


def say(words):
    """Prints one line, which has reached the host when this returns."""
    os.write(1, words.encode() + b"\n")


def sync_directory(path):
    directory = os.open(path, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def files(directory, name, first=0):
    choose = random.Random()
    number = int(first)
    kept = []
    while not os.path.exists("/tmp/stop"):
        data = os.urandom(choose.choice([300, 5000, 70_000, 400_000, 1_500_000]))
        path = f"{directory}/{name}-{number}"
        with open(path + ".new", "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view[: choose.choice([1000, 4096, 100_000])]) :]
            os.fsync(file.fileno())
        os.rename(path + ".new", path)
        sync_directory(directory)
        say(f"SYNCED {os.path.basename(path)} {hashlib.md5(data).hexdigest()}")
        kept.append(path)
        if len(kept) > FILES:
            path = kept.pop(choose.randrange(len(kept)))
            say(f"REMOVING {os.path.basename(path)}")
            os.unlink(path)
        number += 1


def writes(writer, round):
    """Yields where this writer writes in this round, as pairs of first sector and number of
    sectors.
    """
    choose = random.Random(writer * 1_000_003 + round)
    for _ in range(8):
        count = choose.choice([1, 1, 2, 4, 8, 16]) * BLOCK // SECTOR
        first = choose.randrange(0, (AREA // SECTOR - count), BLOCK // SECTOR)
        yield writer * AREA // SECTOR + first, count


def write(fd, buffer, writer, round):
    for first, count in writes(writer, round):
        buffer[: count * SECTOR] = b"".join(
            sector(number, round) for number in range(first, first + count)
        )
        part = memoryview(buffer)[: count * SECTOR]
        done = os.pwrite(fd, part, first * SECTOR)
        assert done == count * SECTOR, "a short write"


def blocks(device, first, last, processors, flush="flush"):
    processors = [int(processor) for processor in processors.split(",")]
    workers = []
    for index in range(len(processors)):
        begin, end = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(begin[1])
            os.sched_setaffinity(0, {processors[index]})
            fd = os.open(device, os.O_WRONLY | os.O_DIRECT)
            buffer = mmap.mmap(-1, 1 << 20)
            while order := os.read(begin[0], 8):
                for writer in range(index, WRITERS, len(processors)):
                    write(fd, buffer, writer, struct.unpack("<Q", order)[0])
                os.write(end[1], b"x")
            os._exit(0)
        os.close(begin[0])
        os.close(end[1])
        workers.append((begin[1], end[0]))
    os.sched_setaffinity(0, {0})
    fd = os.open(device, os.O_WRONLY)
    for round in range(int(first), int(last) + 1):
        for order, _ in workers:
            os.write(order, struct.pack("<Q", round))
        for _, answer in workers:
            assert os.read(answer, 1), "a writer failed"
        if flush == "flush":
            os.fsync(fd)
            say(f"FLUSHED {round}")
        if os.path.exists("/tmp/stop"):
            break


def check(device, low, high, offset=0):
    low, high, offset = int(low), int(high), int(offset)
    allowed = [[0] for _ in range(WRITERS * AREA // SECTOR)]
    for round in range(1, high + 1):
        for writer in range(WRITERS):
            for first, count in writes(writer, round):
                for number in range(first, first + count):
                    if round <= low:
                        allowed[number] = [round]
                    elif allowed[number][-1] != round:
                        allowed[number].append(round)
    direct = os.O_DIRECT if device.startswith("/dev/") else 0
    fd = os.open(device, os.O_RDONLY | direct)
    buffer = mmap.mmap(-1, 1 << 20)
    wrong = written = 0
    for number in range(len(allowed)):
        at = number * SECTOR % len(buffer)
        if at == 0:
            done = os.preadv(fd, [buffer], offset + number * SECTOR)
            assert done == len(buffer), "a short read"
        found = version_of(number, buffer[at : at + SECTOR])
        written += found > 0
        if found not in allowed[number]:
            wrong += 1
            if wrong <= 5:
                print(
                    f"sector {number} holds {found}, but only {allowed[number]} are allowed"
                )
    assert not wrong, (
        f"{wrong} of {len(allowed)} sectors hold data that they must not hold"
    )
    print(f"{written} sectors hold what they must")


def attribute(kind, data):
    size = 4 + len(data)
    return struct.pack("<HH", size, kind) + data + bytes(-size % 4)


def ask(netlink, family, command, version, attributes):
    """Sends a generic netlink request and returns its first answer, without the header."""
    netlink.send(
        struct.pack(
            "<IHHIIBBH", 20 + len(attributes), family, 5, 1, 0, command, version, 0
        )
        + attributes
    )
    answer = netlink.recv(65536)
    kind = struct.unpack_from("<H", answer, 4)[0]
    if kind == 2:
        error = -struct.unpack_from("<i", answer, 16)[0]
        if error:
            raise OSError(error, os.strerror(error))
    return answer[20:]


def reconnect(host, port, export, sockets, seconds):
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
    netlink.bind((0, 0))
    answer = ask(netlink, 16, 3, 1, attribute(2, b"nbd\0"))
    netlink.recv(65536)
    # The number of the family is in an attribute of kind 1 with two bytes of data.
    at = 0
    while struct.unpack_from("<HH", answer, at) != (6, 1):
        at += (struct.unpack_from("<H", answer, at)[0] + 3) // 4 * 4
    family = struct.unpack_from("<H", answer, at + 4)[0]
    settings = attribute(1, struct.pack("<I", 0)) + attribute(
        8, struct.pack("<Q", int(seconds))
    )
    ask(netlink, family, 3, 1, settings)
    for _ in range(int(sockets)):
        connection = socket.create_connection((host, int(port)), 10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = connection.recv(18, socket.MSG_WAITALL)
        assert greeting[:16] == b"NBDMAGICIHAVEOPT", greeting
        name = export.encode()
        connection.sendall(
            struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, len(name)) + name
        )
        assert len(connection.recv(10, socket.MSG_WAITALL)) == 10, (
            "the export is refused"
        )
        connection.setblocking(True)
        item = attribute(1, attribute(1, struct.pack("<I", connection.fileno())))
        ask(netlink, family, 3, 1, settings + attribute(7, item))
        connection.detach()


if __name__ == "__main__":
    words = {"files": files, "blocks": blocks, "check": check, "reconnect": reconnect}
    words[sys.argv[1]](*sys.argv[2:])
