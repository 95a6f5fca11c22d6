#!/usr/bin/env python3
"""Latency of hits over NBD, alone and during writes that make a full flash tier evict, as a
Markdown table.

    cargo build --release -p forebay && bench/nbd-hits-under-load.py [--seconds S] [--rounds N] [--layouts slots,log]

One fio reads blocks that are in memory, one at a time, at 2,000 per second: without other load
(`idle`), while another fio writes 6,000 blocks per second at random over four times the size of a
full flash tier of 256 MiB (`loaded`), and while it writes them to another server (`apart`), where
the reads compete only for processors. The phases take turns for N rounds; the table shows medians
over the rounds.

BEFORE=PATH of another (older) forebay alternates it with this one. FOREBAY=path of the
binary (target/release/forebay). Needs fio with its nbd engine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
CONFIGURATION = """[cache]
dram = "64MiB"
write_policy = "write-back"
[flash]
path = "{place}/flash.img"
size = "256MiB"
layout = "{layout}"
[[volume]]
name = "vm1"
backing = "{place}/disk.img"
size = "1GiB"
[serve]
nbd = "unix:{place}/nbd.sock"
control = "unix:{place}/control.sock"
"""
# Size of the blocks to read; the writes begin after them.
HOT = "4m"
PERCENTILES = ["50.000000", "90.000000", "99.000000", "99.900000"]


class Server:
    """A server with its own files."""

    def __init__(self, binary, place, layout):
        place.mkdir()
        self.socket = place / "nbd.sock"
        config = place / "forebay.toml"
        config.write_text(CONFIGURATION.format(place=place, layout=layout))
        command = [binary, "serve", "--config", config]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        if not self.process.stdout.readline():
            sys.exit(f"{binary} does not serve")

    def fio(self, *options):
        """The fio command for this server."""
        uri = f"--uri=nbd+unix:///vm1?socket={self.socket}"
        return [
            "fio",
            "--name=x",
            "--ioengine=nbd",
            uri,
            "--bs=4k",
            "--output-format=json",
            *options,
        ]

    def stop(self):
        """Kills the server, because its data is not needed."""
        self.process.kill()
        self.process.wait()


def writes(server, *options):
    """The command of an fio that writes at random, beyond the blocks to read."""
    load = [
        "--rw=randwrite",
        f"--offset={HOT}",
        "--size=1000m",
        "--norandommap",
        "--iodepth=16",
    ]
    return server.fio(*load, *options)


def reads(server, seconds):
    """Percentiles of the latency of hits, in microseconds."""
    options = [
        "--rw=randread",
        f"--size={HOT}",
        "--norandommap",
        "--iodepth=1",
        "--rate_iops=2000",
    ]
    timed = ["--time_based", f"--runtime={seconds}"]
    text = subprocess.run(
        server.fio(*options, *timed), capture_output=True, check=True, text=True
    )
    job = json.loads(text.stdout[text.stdout.index("{") :])["jobs"][0]
    percentiles = job["read"]["clat_ns"]["percentile"]
    return [percentiles[key] / 1000 for key in PERCENTILES]


def phase(kind, read, other, seconds):
    """Runs one phase; returns the percentiles of its reads."""
    if kind == "idle":
        return reads(read, seconds)
    written = read if kind == "loaded" else other
    load = subprocess.Popen(
        writes(written, "--rate_iops=6000", "--time_based", f"--runtime={seconds + 3}"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return reads(read, seconds)
    finally:
        load.wait()


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=5, help="of a phase (5)")
    parser.add_argument("--rounds", type=int, default=3, help="of all phases (3)")
    parser.add_argument("--layouts", default="slots,log")
    options = parser.parse_args()
    binaries = {"now": os.environ.get("FOREBAY") or TARGET / "release" / "forebay"}
    if "BEFORE" in os.environ:
        binaries = {"before": os.environ["BEFORE"], **binaries}
    print("| version | layout | writes | 50 % | 90 % | 99 % | 99.9 % |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for layout in options.layouts.split(","):
        with tempfile.TemporaryDirectory(prefix="forebay-bench-") as directory:
            place = Path(directory)
            servers, found = {}, {}
            try:
                for version, binary in binaries.items():
                    servers[version] = Server(binary, place / version, layout)
                servers["other"] = Server(binaries["now"], place / "other", layout)
                for server in servers.values():
                    # Bring the blocks to read into memory, and fill flash.
                    subprocess.run(
                        writes(server, "--io_size=700m"),
                        capture_output=True,
                        check=True,
                    )
                    reads(server, 1)
                for _ in range(options.rounds):
                    for version in binaries:
                        for kind in ["idle", "loaded", "apart"]:
                            row = phase(
                                kind,
                                servers[version],
                                servers["other"],
                                options.seconds,
                            )
                            found.setdefault((version, kind), []).append(row)
            finally:
                for server in servers.values():
                    server.stop()
            for (version, kind), rows in found.items():
                medians = [
                    f"{statistics.median(column):.1f}"
                    for column in zip(*rows, strict=True)
                ]
                print(
                    f"| {version} | {layout} | {kind} | {' | '.join(medians)} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
