#!/usr/bin/env python3
"""Curves of one long synthetic trace in Forebay's format: elapsed time, memory, and time per
request.

    bench/long-trace.py [REQUESTS [BLOCKS [KIND...]]]

The trace (10^9 zipf requests to 50 million blocks of 4 KiB, three in ten of them writes) is created
once, in BENCH_DIR (the working directory); it takes 4.7 bytes per request. Then the curve is
computed with sampling and exactly, for the first 5 %, the first 20 % and all of the requests; KIND
(sample, max-blocks, exact) selects some of these. CPU is user and system time of all threads; the
load is that of the machine, and shows whether other work lengthened the elapsed time. FOREBAY=path
of the binary (target/release/forebay).
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from common import FOREBAY, MIB, row

KINDS = {
    "sample": ("--sample", "0.001"),
    "max-blocks": ("--max-blocks", "65536"),
    "exact": (),
}
SHARES = (0.05, 0.2, 1)


def measure(*words):
    """Runs a command; returns its elapsed time, processor time, and peak memory in MiB."""
    begin = time.monotonic()
    child = subprocess.Popen([FOREBAY, "-q", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(
            f"forebay {' '.join(words)}: status {os.waitstatus_to_exitcode(status)}"
        )
    elapsed = time.monotonic() - begin
    return elapsed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / MIB


def main(requests="1000000000", blocks="50000000", *kinds):
    trace = Path(os.environ.get("BENCH_DIR", "."), f"{requests}-{blocks}.parquet")
    if not trace.exists():
        text = f"zipf:blocks={blocks},theta=0.9,write=0.3,requests={requests},seed=1"
        measure("trace", "synth", text, "-o", str(trace))
    row(
        "curve", "M requests", "elapsed s", "CPU s", "CPU ns per request", "MiB", "load"
    )
    row("---", *["---:"] * 6)
    for kind in kinds or KINDS:
        words = KINDS[kind]
        name = f"`{' '.join(words)}`" if words else kind
        for share in SHARES:
            count = round(int(requests) * share)
            limit = ("--limit", str(count)) if share < 1 else ()
            elapsed, cpu, mib = measure("mrc", str(trace), *words, *limit, "--json")
            each = f"{1e9 * cpu / count:.0f}"
            load = f"{os.getloadavg()[0]:.1f}"
            times = f"{elapsed:.1f}", f"{cpu:.1f}"
            row(name, f"{count / 1e6:.0f}", *times, each, f"{mib:.0f}", load)


if __name__ == "__main__":
    main(*sys.argv[1:])
