"""Writes to a server, and compares what it promised with what was requested of its files.

Usage: syncs.py client DIRECTORY FOREBAY   writes, forces and flushes; records the times in ops.json
       syncs.py check DIRECTORY            compares ops.json with the logs of the files

The files are served by `nbdkit --filter=log`, which records when each write and flush arrived from
the kernel and when it ended. A write is durable once a flush of its file that began after the end
of the write has ended.
"""

import json
import re
import subprocess
import sys
import time
from collections import namedtuple
from datetime import datetime
from pathlib import Path

from kill9 import FLUSH, FUA, WRITE, Client

BLOCK = 4096
HEADER_AREA = 1 << 20
# Bytes of the two copies of the superblock of the flash tier.
SUPERBLOCKS = 2 * 16 * 4096
ROUNDS = 12

Op = namedtuple("Op", "kind offset count begin end")


def client(directory, forebay):
    """Sends one request after another, and records each as [what, offset, begin, end]."""
    ops = []
    nbd = Client(str(directory / "nbd.sock"))

    def request(what, command, block=0, flags=0):
        payload = bytes([block + 1]) * BLOCK if command == WRITE else b""
        begin = time.time()
        nbd.send(command, 1, block * BLOCK, len(payload), payload, flags)
        nbd.reply()
        ops.append([what, block * BLOCK, begin, time.time()])

    def work(policy):
        ops.append([policy, 0, time.time(), time.time()])
        for n in range(ROUNDS):
            request("write", WRITE, 3 * n)
            request("flush", FLUSH)
            request("forced", WRITE, 3 * n + 1, FUA)

    work("write-through")
    begin = time.time()
    control = f"unix:{directory}/control.sock"
    command = [forebay, "ctl", "set", "--write-policy", "write-back"]
    subprocess.run(
        [*command, "--control", control], check=True, stdout=subprocess.DEVNULL
    )
    ops.append(["switch", 0, begin, time.time()])
    info = [forebay, "backing", "info", directory / "store.raw"]
    found = subprocess.run(info, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert re.search(r"dirty *yes", found), f"not dirty after the switch: {found}"
    work("write-back")
    (directory / "ops.json").write_text(json.dumps(ops))


def read_log(path):
    """Returns the writes and flushes that reached a file, in the order of arrival."""
    pattern = re.compile(
        r"(\S+ \S+) connection=(\d+) (\.\.\.)?(Write|Zero|Trim|Flush) id=(\d+)"
        r"(?: offset=0x([0-9a-f]+) count=0x([0-9a-f]+))?.*?(?:return=(-?\d+))?"
    )
    ops, under_way = [], {}
    for line in path.read_text().splitlines():
        match = pattern.match(line)
        if not match:
            continue
        at, connection, ends, kind, number, offset, count, _ = match.groups()
        at = datetime.fromisoformat(at).timestamp()
        if ends:
            begun = under_way.pop((connection, number))
            ops.append(begun._replace(end=at))
        else:
            place = (int(offset or "0", 16), int(count or "0", 16))
            under_way[connection, number] = Op(kind, *place, at, None)
    assert not under_way, f"{path}: did not end: {under_way}"
    return sorted(ops, key=lambda op: op.begin)


class File:
    def __init__(self, directory, name):
        self.name = name
        ops = read_log(directory / f"{name}.log")
        self.flushes = [op for op in ops if op.kind == "Flush"]
        self.writes = [op for op in ops if op.kind != "Flush"]
        assert self.flushes, f"{name} was never flushed"

    def within(self, begin, end):
        return [
            write for write in self.writes if begin <= write.begin and write.end <= end
        ]

    def flushed(self, write, until):
        """Whether a flush that began after the write ended had itself ended by `until`."""
        return any(f.begin >= write.end and f.end <= until for f in self.flushes)


def check(directory):
    ops = json.loads((directory / "ops.json").read_text())
    store, flash = File(directory, "store"), File(directory, "flash")
    headers = [op for op in store.writes if op.offset < HEADER_AREA]
    data = [op for op in store.writes if op.offset >= HEADER_AREA]
    policy, last, checked = None, None, 0
    for what, offset, begin, end in ops:
        if what.startswith("write-"):
            policy = what
            continue
        if what == "switch":
            dirty = [op for op in headers if begin <= op.begin <= end]
            assert dirty, "the switch wrote no header"
            assert store.flushed(dirty[-1], end), "the switch did not sync the header"
            continue
        # The file to which the client's writes go first.
        through = policy == "write-through"
        file = store if through else flash
        if what != "flush":
            place = HEADER_AREA + offset
            last = [
                w for w in file.within(begin, end) if not through or w.offset == place
            ]
            assert last, (
                f"a {policy} {what} of {offset} was acknowledged without a write"
            )
            last = last[0]
        if what != "write":
            assert file.flushed(last, end), (
                f"{what} at {offset} under {policy}: {file.name} was not synced after the write"
            )
            checked += 1
    assert checked == 4 * ROUNDS, checked

    # Headers: each is synced before the next is written, and the first ones before the first
    # client.
    first, forever = ops[0][2], float("inf")
    for header, until in zip(headers, [h.begin for h in headers[1:]] + [forever]):
        assert store.flushed(header, until), f"a header was not synced: {header}"
    opened = [header for header in headers if header.begin < first]
    assert opened and store.flushed(opened[-1], first), (
        "no header before the first client"
    )
    places = [header.offset for header in headers]
    assert all(a != b for a, b in zip(places, places[1:])), (
        f"the header copies do not alternate: {places}"
    )
    # The clean mark comes after everything else has been synced. Only the superblock of the flash
    # tier, which records how the store was left, is written later.
    clean = headers[-1]
    note = [w for w in flash.writes if w.offset < SUPERBLOCKS and w.begin > clean.begin]
    assert len(note) == 2, f"the note is not in both copies: {note}"
    assert all(flash.flushed(write, forever) for write in note), "it was not synced"
    logged = [write for write in flash.writes if write not in note]
    for file, writes in [(store, data), (flash, logged)]:
        assert all(write.end <= clean.begin for write in writes), (
            f"{file.name}: written after the clean mark"
        )
        assert all(file.flushed(write, clean.begin) for write in writes), (
            f"{file.name}: not synced"
        )
    assert store.flushed(clean, note[0].begin), "the note came before the clean mark"


if __name__ == "__main__":
    directory = Path(sys.argv[2])
    client(directory, sys.argv[3]) if sys.argv[1] == "client" else check(directory)
