"""Kills a server repeatedly, and checks after each restart which data survived.

Usage: kill9.py FOREBAY CONFIG KILLS acknowledged|flushed [BACKING_SOCKET COMMAND...]

With a COMMAND, which serves the backing store on BACKING_SOCKET, that server is killed while
clients write, and the cache some time later. Requests may then fail, but acknowledged data must be
there when both are running again. If COMMAND contains cache=writeback, it loses what it was not
told to flush.

Every 512-byte sector contains the number of the write that wrote it. After a restart each sector
must hold a write between the last one that had to survive (acknowledged, or acknowledged before a
flush or with FUA) and the last one issued, and two reads must return the same data; what they
return counts as durable from then on.
"""

import json
import os
import random
import socket
import struct
import subprocess
import sys
import time

SECTOR = 512
REGION = 24 << 20  # bytes of the disk that are written to
WRITE, FLUSH, READ, TRIM = 1, 3, 0, 4
FUA = 1


class Gone(Exception):
    """The server is dead."""


class Refused(Exception):
    """A request failed."""


class Client:
    """A minimal NBD client: simple replies, several requests at a time."""

    def __init__(self, path):
        self.failures_are_expected = False
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.receive(18)
        self.socket.sendall(struct.pack(">I", 3))
        self.socket.sendall(b"IHAVEOPT" + struct.pack(">II", 1, 3) + b"vm1")
        self.receive(10)

    def receive(self, count):
        parts = b""
        while len(parts) < count:
            try:
                part = self.socket.recv(count - len(parts))
            except OSError as error:
                raise Gone from error
            if not part:
                raise Gone
            parts += part
        return parts

    def send(self, command, cookie, offset, length, payload=b"", flags=0):
        head = struct.pack(
            ">IHHQQI", 0x25609513, flags, command, cookie, offset, length
        )
        try:
            self.socket.sendall(head + payload)
        except OSError as error:
            raise Gone from error

    def reply(self):
        magic, error, cookie = struct.unpack(">IIQ", self.receive(16))
        assert magic == 0x67446698, hex(magic)
        if error and self.failures_are_expected:
            raise Refused(cookie)
        assert error == 0, f"request {cookie} failed with error {error}"
        return cookie

    def read(self, offset, length):
        self.send(READ, 0, offset, length)
        self.reply()
        return self.receive(length)


def sector(number, version):
    return (
        struct.pack("<QQ", number, version) * (SECTOR // 16)
        if version
        else bytes(SECTOR)
    )


def version_of(number, data):
    if data == bytes(SECTOR):
        return 0
    said, version = struct.unpack_from("<QQ", data)
    assert said == number, f"sector {number} holds sector {said}'s data"
    assert data == sector(number, version), f"sector {number} is torn within"
    return version


class Disk:
    """The state of every sector as far as the client knows it."""

    def __init__(self, acknowledged_survives):
        count = REGION // SECTOR
        self.durable = [0] * count
        self.acknowledged = [0] * count
        self.issued = [0] * count
        self.trims = {}  # sector -> versions that were trims
        self.acknowledged_survives = acknowledged_survives
        # Trims of blocks that are not cached go straight to the backing store. If that store loses
        # what was not flushed, an acknowledged trim must be flushed, too, as with any disk.
        self.trims_need_a_flush = False
        self.answered = [0] * count
        self.version = 0

    def must_survive(self, number):
        held = self.acknowledged if self.acknowledged_survives else self.durable
        return held[number]

    def work(self, client, until, choose):
        """Writes and flushes until `until` or until the server is killed."""
        while time.monotonic() < until:
            batch, taken = {}, set()
            for cookie in range(choose.randint(1, 16)):
                first = choose.randrange(REGION // SECTOR)
                if choose.random() < 0.6:
                    first -= first % 8
                count = min(
                    choose.choice([1, 3, 8, 8, 8, 8, 16, 64]), REGION // SECTOR - first
                )
                sectors = range(first, first + count)
                if taken.intersection(sectors):
                    continue
                taken.update(sectors)
                self.version += 1
                flags = FUA if choose.random() < 0.05 else 0
                trim = choose.random() < 0.03
                for number in sectors:
                    self.issued[number] = self.version
                batch[cookie] = (sectors, self.version, flags, trim)
                if trim:
                    for number in sectors:
                        self.trims.setdefault(number, []).append(self.version)
                    client.send(
                        TRIM, cookie, first * SECTOR, count * SECTOR, b"", flags
                    )
                else:
                    data = b"".join(sector(number, self.version) for number in sectors)
                    client.send(WRITE, cookie, first * SECTOR, len(data), data, flags)
            for _ in range(len(batch)):
                try:
                    sectors, version, flags, trim = batch[client.reply()]
                except Refused:
                    continue
                for number in sectors:
                    self.answered[number] = version
                    if flags & FUA or not (trim and self.trims_need_a_flush):
                        self.acknowledged[number] = version
                    if flags & FUA:
                        self.durable[number] = version
            if choose.random() < 0.1:
                before = list(self.answered)
                client.send(FLUSH, 99, 0, 0)
                try:
                    client.reply()
                    self.durable, self.acknowledged = before, list(before)
                except Refused:
                    pass

    def check(self, client):
        """Checks every sector; the version found counts as durable from then on."""
        step = 1 << 20
        for offset in range(0, REGION, step):
            data = client.read(offset, step)
            again = client.read(offset, step)
            assert data == again, f"the MiB at {offset} changes between two reads"
            for n in range(step // SECTOR):
                number = offset // SECTOR + n
                found = version_of(number, data[n * SECTOR : (n + 1) * SECTOR])
                self.judge(number, found)

    def judge(self, number, found):
        low, high = self.must_survive(number), self.issued[number]
        if found == 0:
            # Zeroes are the initial contents, or those of a trim that may have survived.
            trims = [v for v in self.trims.get(number, []) if low <= v <= high]
            found = max(trims, default=0)
        if not low <= found <= high:
            raise AssertionError(
                f"sector {number} holds version {found}, but {low} had to survive "
                f"({high} was issued last, {self.durable[number]} flushed; trims were "
                f"{self.trims.get(number, [])})"
            )
        self.durable[number] = self.acknowledged[number] = found
        self.answered[number] = self.issued[number] = found


def start(binary, config, log):
    server = subprocess.Popen(
        [binary, "serve", "--config", config], stdout=subprocess.PIPE, stderr=log
    )
    line = server.stdout.readline()
    assert line, "the server did not start"
    return server, json.loads(line)["nbd"].removeprefix("unix:")


def start_backing(path, command):
    if os.path.exists(path):
        os.unlink(path)
    server = subprocess.Popen(command)
    while not os.path.exists(path):
        assert server.poll() is None, "the backing server did not start"
        time.sleep(0.01)
    return server


def kill_backing(binary, config, kills, disk, choose, path, command):
    """Kills the server of the backing store while the cache runs, then the cache; the last round
    only stops the cache.
    """
    failed = 0
    with open("server.log", "ab") as log:
        for kill in range(kills + 1):
            backing = start_backing(path, command)
            server, socket_path = start(binary, config, log)
            try:
                client = Client(socket_path)
                disk.check(client)
                if kill == kills:
                    server.terminate()
                    assert server.wait() == 0, "the last stop failed"
                    assert failed > 0, "the cache never noticed"
                    return
                disk.work(client, time.monotonic() + choose.uniform(0.05, 0.6), choose)
                moment = choose.uniform(0, 0.3)
                killer = subprocess.Popen(
                    ["sh", "-c", f"sleep {moment:.3f}; kill -KILL {backing.pid}"]
                )
                client.failures_are_expected = True
                # A write for which there is no room waits for a store that does not come back.
                client.socket.settimeout(2)
                try:
                    disk.work(client, time.monotonic() + moment + 0.5, choose)
                except Gone:
                    assert server.poll() is None, (
                        "the cache ended when its backing store did"
                    )
                killer.wait()
                answer = subprocess.run(
                    [binary, "ctl", "status", "--config", config],
                    stdout=subprocess.PIPE,
                    check=True,
                )
                volume = json.loads(answer.stdout)["volumes"][0]
                failed += volume["backing_failure"] is not None
                assert volume["backing_failure"], "the failure is not shown"
            finally:
                server.kill()
                server.wait()
                backing.kill()
                backing.wait()
            print(f"kill {kill + 1}: {disk.version} writes so far", flush=True)


def main():
    binary, config, kills, promise = sys.argv[1:5]
    seed = int(os.environ.get("FOREBAY_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    choose = random.Random(seed)
    disk = Disk(promise == "acknowledged")
    if len(sys.argv) > 5:
        path, command = sys.argv[5], sys.argv[6:]
        disk.trims_need_a_flush = "cache=writeback" in command
        return kill_backing(binary, config, int(kills), disk, choose, path, command)
    with open("server.log", "ab") as log:
        for kill in range(int(kills)):
            server, path = start(binary, config, log)
            try:
                client = Client(path)
                disk.check(client)
                moment = time.monotonic() + choose.uniform(0.05, 1.2)
                killer = subprocess.Popen(
                    [
                        "sh",
                        "-c",
                        f"sleep {max(0, moment - time.monotonic()):.3f}; kill -KILL {server.pid}",
                    ]
                )
                try:
                    disk.work(client, moment + 30, choose)
                    raise AssertionError("the server survived the kill")
                except Gone:
                    pass
                killer.wait()
            finally:
                server.kill()
                server.wait()
            print(f"kill {kill + 1}: {disk.version} writes so far", flush=True)
        server, path = start(binary, config, log)
        try:
            disk.check(Client(path))
            server.terminate()
            assert server.wait() == 0, "the last stop failed"
        finally:
            server.kill()


if __name__ == "__main__":
    main()
