#!/usr/bin/env python3
"""Measures studies: what a cell costs beyond the command, how studies scale, what a search saves.

    bench/study.py overhead [CELLS]        time that a study adds to each cell, on one worker
    bench/study.py scale [CELLS [WORKERS...]]
                                           wall-clock time, compared with the cells' processor time
    bench/study.py kills [CELLS]           kill a worker every 20 s; count the rows
    bench/study.py search TRACE...         compare Optuna with the full sweep
    bench/study.py terabyte                cost of fleets and studies by requests and by files,
                                           extrapolated to 10,000 traces of a terabyte in total
    bench/study.py replayed [WORKLOADS]    replay workloads that `advise` was not trained on, with and
                                           without a second tier; how often its advice was right
    bench/study.py advised DIR [TRACE...]  how often the trees of `advise --train DIR TRAINING` are right, by size;
                                           and those of the shipped model, on TRACEs. TRAINING, the trace to train
                                           on, is BENCH_TRACE

BENCH_TRACE=the trace for the first three (sqlite-shop). FOREBAY=path of the binary
(target/release/forebay). Run it with the Python of an environment in which the package is installed
(scripts/test-python.sh makes target/python). Other work on the machine lengthens the measured
times, so the load is printed.
"""

import itertools
import json
import operator
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import FOREBAY, ask, row
from sklearn.metrics import precision_recall_fscore_support

os.environ["FOREBAY"] = FOREBAY
from forebay.lab import spec  # noqa: E402
from forebay.lab.advise import (  # noqa: E402
    LATENCY_GAIN_MIN,
    QUESTIONS,
    advise,
    checked,
    load,
    simulated,
    training,
    unseen,
    walk,
)
from forebay.lab.fleet import fleet  # noqa: E402
from forebay.lab.seen import MINIATURE_BLOCKS  # noqa: E402
from forebay.lab.study import Study  # noqa: E402
from forebay.lab.workloads import held_out  # noqa: E402

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
            # Exclude the time of starting and reporting, which does not depend on the number of
            # cells.
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


#: Traces from which `terabyte` computes slopes, and their numbers of requests.
SYNTHETIC = "zipf:blocks={blocks},theta=0.9,write=0.3,requests={requests},seed=1"
REQUESTS = (500_000, 1_000_000, 2_000_000)
SMALL_FILES = (20, 120)
FILES, BYTES = 10_000, 1e12


def terabyte():
    """Measures how fleets and studies grow with requests and files, and extrapolates.

    The slopes are those of straight lines through traces of three sizes: processor time and memory
    of the commands. The time of a file beyond its commands is the difference between two fleets of
    small files; other work on the machine can make it negative, which then counts as 0.
    """
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for ending in ("parquet", "csv"):
            traces = [synthetic(Path(scratch), count, ending) for count in REQUESTS]
            each = traces[-1].stat().st_size / REQUESTS[-1]
            for work, measure in (("fleet", fleet_cpu), ("cell, untimed", cell_cpu)):
                lines = zip(*(measure(trace) for trace in traces), strict=True)
                cpu, mib = (statistics.linear_regression(REQUESTS, ys) for ys in lines)
                found[ending, work] = each, cpu, mib
        beyond = beyond_commands(Path(scratch))
    heads = ("files", "bytes per request", "work", "ns per request", "ms per file")
    row(*heads, "MiB per million requests", "MiB per file", "load")
    row("---", "---:", "---", *["---:"] * 5)
    for (ending, work), (each, cpu, mib) in found.items():
        slopes = f"{1e9 * cpu.slope:.0f}", f"{1e3 * cpu.intercept:.0f}"
        memory_slopes = f"{1e6 * mib.slope:.0f}", f"{mib.intercept:.0f}"
        load = f"{os.getloadavg()[0]:.1f}"
        row(ending, f"{each:.1f}", work, *slopes, *memory_slopes, load)
    print(f"\nbeyond its commands a file takes {1e3 * beyond:.0f} ms\n")
    heads = ("10,000 files, 1 TB", "requests", "work", "processor time, h")
    row(*heads, "/ 2, h", "/ 64, h", "MiB per worker")
    row("---", "---:", "---", *["---:"] * 4)
    for (ending, work), (each, cpu, mib) in found.items():
        requests = BYTES / each
        own = max(cpu.intercept, 0.0) + max(beyond, 0.0)
        hours = (requests * cpu.slope + FILES * own) / 3600
        most = mib.intercept + mib.slope * requests / FILES
        shares = (f"{hours / n:.1f}" for n in (1, 2, 64))
        row(ending, f"{requests:.1e}", work, *shares, f"{most:.0f}")


def synthetic(directory, requests, ending):
    path = directory / f"{requests}" / f"trace.{ending}"
    path.parent.mkdir(exist_ok=True)
    synthesise(SYNTHETIC.format(blocks=requests // 10, requests=requests), path)
    return path


def synthesise(text, path):
    line = [FOREBAY, "-q", "trace", "synth", text, "-o", str(path)]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)


def fleet_cpu(trace):
    """Processor time of the commands of a fleet of one trace, and the largest memory of a
    command.
    """
    with tempfile.TemporaryDirectory() as output:
        found = fleet(trace.parent, output, pattern=trace.name, workers=1)
        (cpu,) = found.volumes["cell.cpu_s"]
    curve = "mrc", str(trace), "--max-blocks", "65536"
    return cpu, max(memory("trace", "info", str(trace)), memory(*curve))


def cell_cpu(trace):
    """Processor time of a study cell of the trace, and its memory."""
    with tempfile.TemporaryDirectory() as output:
        outcome, _, _ = run(sweep(4, trace), output, workers=1)
    config = Path(trace.parent, "cell.toml")
    config.write_text('cache.dram = "8MiB"\n')
    used = memory("simulate", str(trace), "--config", str(config), "--untimed")
    return outcome.cpu_s / outcome.cells, used


#: Linux counts the memory of the process that starts a command as the command's, so that process
#: must be small.
MEMORY = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def memory(*words):
    """Peak memory of a command, in MiB."""
    line = [sys.executable, "-S", "-E", "-c", MEMORY, FOREBAY, "-q", *words]
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE)
    return int(done.stdout) / 1024


def beyond_commands(directory):
    """Processor time of a fleet's file beyond that of its commands."""
    used = []
    for count in SMALL_FILES:
        home = directory / f"{count} files"
        home.mkdir()
        for number in range(count):
            text = SYNTHETIC.format(blocks=100, requests=100 + number)
            synthesise(text, home / f"{number}.parquet")
        before = processor()
        with tempfile.TemporaryDirectory() as output:
            found = fleet(home, output, workers=1)
        used.append(processor() - before - found.volumes["cell.cpu_s"].sum())
    return (used[1] - used[0]) / (SMALL_FILES[1] - SMALL_FILES[0])


#: For `replayed`: sizes of the tiers as shares of the distinct data, the volume, and concurrent
#: runs. A replay mostly waits for the modelled devices, so several can share the processors.
DRAM, FLASH, VOLUME, AT_ONCE = 0.08, 0.4, "3GiB", 10
TIERS = """
[cache]
dram = {dram}
[[volume]]
name = "v"
backing = "{home}/disk.img"
size = "{volume}"
shape = "hdd-7200"
"""
SECOND = """
[flash]
path = "{home}/flash.img"
size = {flash}
shape = "nvme"
"""


def replayed(count="40"):
    """Replays held-out workloads on files shaped as devices, with and without a second tier.

    The second tier pays if it lowers the mean latency by at least 5 %, the question of `advise`.
    Replays whose results are in BENCH_JOURNAL are not run again.
    """
    made = held_out()
    step = max(1, len(made) // int(count))
    journal = Path(os.environ.get("BENCH_JOURNAL", os.devnull))
    lines = journal.read_text().splitlines() if journal.exists() else []
    known = {one["workload"]: one["gains"] for one in map(json.loads, lines)}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as scratch:
        homes = [Path(scratch, str(n)) for n in range(len(made[::step]))]

        def one(workload, home):
            name, home = workload[1], make(home)
            trace, dram, flash = prepared(name, home)
            if name not in known:
                known[name] = gains(trace, dram, flash, home)
                with journal.open("a") as out:
                    out.write(
                        json.dumps({"workload": name, "gains": known[name]}) + "\n"
                    )
            said = advise(trace, dram=str(dram), flash=str(flash))["advice"]
            answers = {one["question"]: one["answer"] for one in said}
            return name, answers[QUESTIONS["tier"]] == "yes", *known[name]

        with ThreadPoolExecutor(AT_ONCE) as pool:
            rows = list(pool.map(one, made[::step], homes))
    heads = ("workload", "advice", "simulated gain", "replayed gain")
    print("where the advice or the simulation was wrong:\n")
    row(*heads)
    row("---", "---", "---:", "---:")
    truth = [real >= LATENCY_GAIN_MIN for *_, real in rows]
    simulated = [virtual >= LATENCY_GAIN_MIN for _, _, virtual, _ in rows]
    said = [advised for _, advised, _, _ in rows]
    for (name, advised, virtual, real), pays in zip(rows, truth, strict=True):
        if advised != pays or (virtual >= LATENCY_GAIN_MIN) != pays:
            row(name, "yes" if advised else "no", f"{virtual:.1%}", f"{real:.1%}")
    right = sum(map(operator.eq, said, truth)) / len(rows)
    agreed = sum(map(operator.eq, simulated, truth)) / len(rows)
    always = max(sum(truth), len(truth) - sum(truth)) / len(rows)
    precision, recall, _, _ = precision_recall_fscore_support(
        truth, said, average="weighted", zero_division=0
    )
    off = statistics.median(abs(virtual - real) for *_, virtual, real in rows)
    print()
    row("workloads", "advice right", "precision", "recall", "always the same",
        "simulation right", "its gain off by, median", "load")  # fmt: skip
    row(*["---:"] * 8)
    shares = (f"{share:.1%}" for share in (right, precision, recall, always, agreed))
    row(len(rows), *shares, f"{off:.3f}", f"{os.getloadavg()[0]:.1f}")


#: Limits between the size classes of `advised`, in blocks; below the first, miniatures are whole
#: traces.
SIZES = (2 * MINIATURE_BLOCKS, 80_000)


def advised(directory, *traces):
    """How often trees are right about unseen workloads and traces, by size."""
    entries, families = training([TRACE])
    known, examples = simulated(entries, directory)
    apart = {text for _, text in held_out()}
    print(f"unseen workloads, by number of blocks (each up to the next of {SIZES}):\n")
    row("question", "blocks", *CHECKED)
    row("---", "---:", *["---:"] * len(CHECKED))
    for question, rows in examples.items():
        own = [one for one in rows if one["workload"] not in apart]
        said = unseen(question, own, families)["by_workload"]
        pairs = list(zip(own, said, strict=True))
        for least, most in itertools.pairwise((0, *SIZES, 1 << 32)):
            some = [
                pair
                for pair in pairs
                if least <= known[pair[0]["workload"]].footprint_bytes / 4096 < most
            ]
            row(question, f"{least} and more", *figures(*zip(*some, strict=True)))
        print_wrong(question, pairs)
    if traces:
        print("\nthe shipped model on traces that it was not trained on:\n")
        entries = [{"path": str(Path(one).resolve()), "name": one} for one in traces]
        known, examples = simulated(entries, Path(directory, "others"))
        shipped = load()["questions"]
        row("question", "trace", *CHECKED)
        row("---", "---", *["---:"] * len(CHECKED))
        for question, rows in examples.items():
            said = [walk(shipped[question], one["features"])[0] for one in rows]
            pairs = list(zip(rows, said, strict=True))
            for name in traces:
                some = [pair for pair in pairs if pair[0]["workload"] == name]
                blocks = known[name].footprint_bytes // 4096
                if some:
                    shown = figures(*zip(*some, strict=True))
                    row(question, f"{Path(name).name}, {blocks} blocks", *shown)
            row(question, "all", *figures(rows, said))
            print_wrong(question, pairs)


#: The columns of `figures`.
CHECKED = ("rows", "right", "precision", "recall", "near", "always the same")


def figures(rows, said):
    """How often answers are right, and how often the most frequent right answer would be."""
    share = checked(rows, said)
    answers = Counter(one["answer"] for one in rows)
    shares = [share[of] for of in ("accuracy", "precision", "recall", "near")]
    shares.append(answers.most_common(1)[0][1] / len(rows))
    return (len(rows), *(f"{one:.1%}" for one in shares))


def print_wrong(question, pairs):
    """Prints the wrong answers, with their counts."""
    wrong = Counter(
        (one["answer"], said) for one, said in pairs if one["answer"] != said
    )
    for (right, said), count in wrong.most_common():
        print(f"    {question}: {said} instead of {right}: {count}")


def make(directory):
    directory.mkdir()
    return directory


def prepared(text, home):
    """The trace of a synthetic workload, and the sizes of both tiers for it, in bytes."""
    trace = home / "trace.parquet"
    synthesise(text, trace)
    footprint = ask("trace", "info", str(trace))["footprint_blocks"]["all"] * 4096
    return trace, int(DRAM * footprint), int(FLASH * footprint)


def gains(trace, dram, flash, home):
    """The share of the mean latency that a second tier gains, simulated and replayed."""
    found = []
    for real in (False, True):
        latency = []
        for number, layout in enumerate((TIERS, TIERS + SECOND)):
            place = make(home / f"{real}-{number}")
            config = place / "cache.toml"
            values = {"dram": dram, "flash": flash, "volume": VOLUME, "home": place}
            config.write_text(layout.format(**values))
            pace = ["--config", str(config), "--queue-depth", "8"]
            real_pace = ["--write", "--as-fast-as-possible"] if real else []
            said = ask("replay" if real else "simulate", str(trace), *pace, *real_pace)
            latency.append(said["latency_us"]["all"]["mean"])
            shutil.rmtree(place)
        found.append(1 - latency[1] / latency[0])
    return found


if __name__ == "__main__":
    known = {"overhead": overhead, "scale": scale, "kills": kills, "search": search}
    known |= {"terabyte": terabyte, "replayed": replayed, "advised": advised}
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        sys.exit(__doc__)
    known[sys.argv[1]](*sys.argv[2:])
