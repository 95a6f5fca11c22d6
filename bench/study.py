#!/usr/bin/env python3
"""Measures studies: what a cell costs beyond the command, how they scale, what a search saves.

    bench/study.py overhead [CELLS]        time that a study adds to each cell, on one worker
    bench/study.py scale [CELLS [WORKERS...]]
                                           wall-clock time, compared with the cells' processor time
    bench/study.py kills [CELLS]           kill a worker every 20 s; count the rows
    bench/study.py search TRACE...         compare Optuna with the full sweep

BENCH_TRACE=the trace of the first three (sqlite-shop). FOREBAY=path of the binary
(target/release/forebay). Run it by the Python of an environment in which the package is installed
(scripts/test-python.sh makes target/python). Other work on the machine counts as time of the study,
so the load is printed.
"""

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from common import FOREBAY, row

os.environ["FOREBAY"] = FOREBAY
from forebay.lab import spec  # noqa: E402
from forebay.lab.study import Study  # noqa: E402

ROOT = Path(__file__).parent.parent
TRACE = Path(os.environ.get("BENCH_TRACE", ROOT / "docs/traces/sqlite-shop.parquet"))

SWEEP = """
traces = ["{trace}"]
repeats = {repeats}
[base]
"options.untimed" = true
{base}
[sweep]
"cache.dram" = {sizes}
"replacement.policy" = ["lru", "arc", "sieve", "s3-fifo"]
"""

SEARCH = """
traces = [{traces}]
constraints = ["cache.dram < flash.size"]
{search}
[base]
"options.untimed" = true
[sweep]
"cache.dram" = ["2%", "4%", "8%", "16%"]
"cache.write_policy" = ["write-through", "write-back", "read-only"]
"flash.size" = ["10%", "20%", "30%", "40%"]
"flash.layout" = ["log", "slots"]
"replacement.policy" = ["lru", "arc", "s3-fifo", "2q", "sieve"]
"""


def sweep(cells, trace=TRACE, base=""):
    """Builds the text of a study with about `cells` cells."""
    sizes = [f"{n + 1}MiB" for n in range(10)]
    repeats = max(1, cells // (4 * len(sizes)))
    if cells < 4 * len(sizes):
        sizes = sizes[: max(1, cells // 4)]
    return SWEEP.format(
        trace=trace, repeats=repeats, sizes=json.dumps(sizes), base=base
    )


def run(text, directory, **options):
    """Runs a study; returns its outcome, wall-clock time and the processor time of its processes."""
    begin, used = time.monotonic(), processor()
    outcome = Study(spec.parse(text, Path(".")), Path(directory), quiet=True).run(
        **options
    )
    return outcome, time.monotonic() - begin, processor() - used


def processor():
    return sum(
        usage.ru_utime + usage.ru_stime
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        for usage in [resource.getrusage(who)]
    )


def overhead(cells="400"):
    """Times the command alone and the cells of a study on one worker, in three rounds."""
    row(
        "round", "command alone, ms", "cell, ms", "beyond, ms", "CPU beyond, ms", "load"
    )
    row("---:", "---:", "---:", "---:", "---:", "---:")
    for number in range(3):
        with tempfile.TemporaryDirectory() as scratch:
            # What starting and reporting take, which do not grow with the cells, is taken off.
            few, many = 40, int(cells)
            _, start, start_cpu = run(
                sweep(few, base='"options.limit" = 1000'), f"{scratch}/few", workers=1
            )
            outcome, wall, cpu = run(
                sweep(many, base='"options.limit" = 1000'), f"{scratch}/many", workers=1
            )
            done = outcome.cells
            own = outcome.rows["cell.cpu_s"].sum() * (done - few) / done
            per = (wall - start) / (done - few)
            beyond_cpu = (cpu - start_cpu - own) / (done - few)
            alone = command_alone(Path(scratch), 100)
        load = os.getloadavg()[0]
        row(
            number + 1,
            *(f"{1000 * t:.1f}" for t in (alone, per, per - alone, beyond_cpu)),
            f"{load:.1f}",
        )


def command_alone(scratch, times):
    config = scratch / "c.toml"
    config.write_text('cache.dram = "4MiB"\n')
    line = [FOREBAY, "-q", "simulate", str(TRACE), "--config", str(config)]
    line += ["--untimed", "--limit", "1000", "--seed", "1", "--json"]
    begin = time.monotonic()
    for _ in range(times):
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return (time.monotonic() - begin) / times


def scale(cells="2000", *workers):
    """Compares the time of a study with the processor time of its cells.

    Other work on the machine lengthens the wall-clock time. The ratio between the processor time
    of all processes of the study and that of its cells does not depend on it.
    """
    heads = ("workers", "cells", "wall s", "cells' CPU s", "wall x workers / CPU")
    row(*heads, "all CPU / cells' CPU", "CPU beyond a cell, ms", "load")
    row(*["---:"] * 8)
    for count in map(int, workers or ("1", "2")):
        with tempfile.TemporaryDirectory() as scratch:
            outcome, wall, used = run(sweep(int(cells)), scratch, workers=count)
        cpu = outcome.cpu_s
        row(
            count,
            outcome.cells,
            f"{wall:.1f}",
            f"{cpu:.1f}",
            f"{wall * count / cpu:.2f}",
            f"{used / cpu:.2f}",
            f"{1000 * (used - cpu) / outcome.cells:.1f}",
            f"{os.getloadavg()[0]:.1f}",
        )


def kills(cells="1000"):
    """Kills a worker every 20 s while a study runs; counts the rows."""
    with tempfile.TemporaryDirectory() as scratch:
        journal = Path(scratch, "cells.jsonl")
        killed, over = [], threading.Event()

        def killer():
            while not over.wait(20):
                last = journal.read_text().splitlines()[-1]
                pid = int(json.loads(last)["worker"].split(":")[1])
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

        thread = threading.Thread(target=killer, daemon=True)
        thread.start()
        outcome, wall, _ = run(sweep(int(cells)), scratch, workers=2)
        over.set()
        thread.join()
        names = [json.loads(line)["cell"] for line in journal.read_text().splitlines()]
    row("cells", "workers killed", "rows", "failed", "answers", "distinct", "wall s")
    row(*["---:"] * 7)
    row(
        outcome.cells,
        len(killed),
        outcome.rows.height,
        outcome.failed,
        len(names),
        len(set(names)),
        f"{wall:.0f}",
    )


def search(*traces):
    """Compares the best cell of a full sweep with what searches find for a tenth of its cost."""
    with tempfile.TemporaryDirectory() as scratch:
        named = ", ".join(json.dumps(str(Path(t).resolve())) for t in traces)
        full, _, _ = run(SEARCH.format(traces=named, search=""), scratch)
        print(
            f"full sweep: {full.cells} cells, {full.failed} failed, {full.cpu_s:.0f} s of processor time\n"
        )
        heads = ("trace", "search", "seed", "hit ratio", "full sweep's")
        row(*heads, "off by", "share of cost")
        row("---", "---", "---:", "---:", "---:", "---:", "---:")
        for method, seed in itertools.product(("optuna", "random"), (1, 2, 3)):
            text = f'search = "{method}"\nobjective = "max hit_ratio"\n'
            text += f"trials = 0.08\nsearch_seed = {seed}\n"
            found, _, _ = run(SEARCH.format(traces=named, search=text), scratch)
            for one in found.search.to_dicts():
                row(
                    Path(one["trace"]).name.split(".")[0],
                    method,
                    seed,
                    f"{one['best']:.4f}",
                    f"{one['full_best']:.4f}",
                    f"{one['gap']:.1%}",
                    f"{one['cost_share']:.1%}",
                )


if __name__ == "__main__":
    known = {"overhead": overhead, "scale": scale, "kills": kills, "search": search}
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        sys.exit(__doc__)
    known[sys.argv[1]](*sys.argv[2:])
