#!/usr/bin/env python3
"""Puts the output of the programs here into the tables of the documents, and redraws their
pictures.

    bench/figures.py [--check | --list] [NAME...]

    --check   change nothing: show what differs, and end with status 1 if anything does
    --list    show the tables and pictures, and check their markers
    NAME      only these: a page (`simulation`), a program (`policies.py`), a table of tables.py (`rates`) or a
              picture (`partition.svg`)

In a document, a table or the line of a picture is between two markers, which name the program and
its arguments:

    <!-- figures: tables.py rates zipf sqlite-shop -->
    <!-- end of figures -->

If a program prints several tables, the first marker of a page with these arguments takes the first,
and so on. Only results that are the same on every machine have markers. Arguments that OURS, PUBLIC
and SYNTHETIC define below are traces: the programs get their files, with the names for the tables.
A table whose trace is missing is left unchanged.

The tables of papers.py come from studies, which `make papers` runs into target/papers; this program
first runs all that it needs.

FOREBAY=path of the binary (target/release/forebay). FOREBAY_TRACES=folder of the public traces (default:
../shared/traces, relative to the repository). FIGURES_AT_ONCE=number of programs to run in parallel (default 2).
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import tables
from common import FOREBAY, PAPERS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("FOREBAY_TRACES") or ROOT.parent / "shared/traces")

# Traces: their names in markers, their names in tables, and their files or descriptions.
OURS = {
    "sqlite-shop": ("SQLite", "docs/traces/sqlite-shop.parquet"),
    # These are recorded by `make traces`.
    "build": ("build", "traces/build.parquet"),
    "database": ("database", "traces/database.parquet"),
    "machines": ("machines", "traces/machines.parquet"),
    "mail": ("mail", "traces/mail.parquet"),
}
PUBLIC = {
    "cloudphysics": ("CloudPhysics", "cloudphysics/cloudPhysicsIO.vscsi"),
    "cloudphysics-prefix": ("CloudPhysics, prefix", "cydonia/test_cp.csv"),
    "oltp": ("ARC OLTP", "arc/OLTP.lis.zst"),
    "p3": ("ARC P3", "arc/P3.lis.zst"),
    "disksim": ("DiskSim", "disksim/ascii.trace.zst"),
    "tpcc": ("MQSim TPC-C", "mqsim/tpcc-small.trace"),
    "web-0": ("MSR web_0", "msr/web_0-head5000.csv.gz"),
    "home1": ("FIU home1", "fiu/home1sample.blkparse"),
    "home2": ("FIU home2", "fiu/home2sample.blkparse"),
    "evelii": ("blkparse, evelii", "blkparse/evelii_sample.txt"),
    "trace-builder": ("blkparse, trace builder", "blkparse/trace_builder_output.txt"),
}
SYNTHETIC = {
    "zipf": ("Zipf 1.0", "zipf:blocks=60k,theta=1,requests=400k,write=0.25,seed=1"),
    "zipf-0.9": (
        "Zipf 0.9, 3 in 10 writes",
        "zipf:blocks=60k,theta=0.9,write=0.3,size=4KiB,requests=300k,seed=1",
    ),
    "zipf-20m": (
        "Zipf 1.0",
        "zipf:blocks=2200k,theta=1,requests=20M,seed=1,write=0.3",
    ),
}
TRACES = {**OURS, **PUBLIC, **SYNTHETIC}

# The programs and their tables; None: a program with a single table without a name.
PROGRAMS = {
    "tables.py": set(tables.TABLES),
    "papers.py": set(PAPERS),
    "policies.py": None,
    "isolation.py": None,
}
PICTURES = ["policies-figure.py", "partition-figure.py"]
# Programs that take files without names.
NAMELESS = ["partition-figure.py"]

MARKER = re.compile(r"<!-- figures: (.*) -->")
END = "<!-- end of figures -->"
PICTURE = re.compile(r"!\[.*\]\((.*\.svg)\)")


@dataclass
class Place:
    """The place of a table or picture: the nth on its page with the same arguments."""

    page: Path
    line: int
    words: str
    nth: int
    picture: Path | None = None

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.words}"

    def is_called(self, names):
        own = [self.page.stem, self.page.name, str(self.page.relative_to(ROOT))]
        program, *words = shlex.split(self.words)
        # Tables of studies share names with others, and take minutes.
        own += [program] if program == "papers.py" else [program, *words[:1]]
        own += [self.picture.name, self.picture.stem] if self.picture else []
        return any(name in own for name in names)


def places():
    """All markers of the documents, and the errors in them."""
    found, wrong = [], []
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        place, counts = None, {}
        for number, line in enumerate(page.read_text().splitlines(), 1):
            if match := MARKER.fullmatch(line):
                if place:
                    wrong.append(f"{place}: the end marker is missing")
                words = match[1]
                place = Place(page, number, words, counts.get(words, 0))
                counts[words] = place.nth + 1
                wrong += [f"{place}: {what}" for what in errors(words)]
            elif line == END:
                if not place:
                    wrong.append(
                        f"{page.relative_to(ROOT)}:{number}: an end marker without a start"
                    )
                else:
                    found.append(place)
                place = None
            elif "figures" in line and line.startswith("<!--"):
                wrong.append(
                    f"{page.relative_to(ROOT)}:{number}: a malformed marker: {line}"
                )
            elif place and (match := PICTURE.fullmatch(line)):
                place.picture = page.parent / match[1]
            elif place and line and not line.startswith("|"):
                wrong.append(
                    f"{page.relative_to(ROOT)}:{number}: text between the markers"
                )
        if place:
            wrong.append(f"{place}: the end marker is missing")
    for place in found:
        draws = shlex.split(place.words)[0] in PICTURES
        if draws != bool(place.picture):
            wrong.append(
                f"{place}: {'the picture is missing' if draws else 'a picture is not expected here'}"
            )
    return found, wrong


def errors(words):
    """Errors about names in a marker that do not exist."""
    program, *words = shlex.split(words)
    if program not in [*PROGRAMS, *PICTURES] or not (ROOT / "bench" / program).exists():
        yield f"there is no program {program}"
        return
    if known := PROGRAMS.get(program):
        table = words.pop(0) if words else ""
        if table not in known:
            yield f"{program} has no table {table!r}"
    options = False
    for word in words:
        options |= word.startswith("--")
        # Volumes are numbers; `kept-with` takes a configuration line.
        if (
            not options
            and word not in TRACES
            and not re.fullmatch(r"\d+|.* = .*", word)
        ):
            yield f"there is no trace {word}"


class Runner:
    """Runs programs, and stops them when the user stops this one."""

    def __init__(self, scratch):
        self.scratch = Path(scratch)
        self.running = set()
        self.lock = threading.Lock()
        self.stopped = False

    def run(self, command, **more):
        """Runs a command; returns its output, and the processor seconds of it and its children."""
        environment = {**os.environ, "FOREBAY": FOREBAY, **more}
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            with self.lock:
                if self.stopped:
                    raise InterruptedError
                child = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
                self.running.add(child)
            try:
                _, status, usage = os.wait4(child.pid, 0)
                child.returncode = os.waitstatus_to_exitcode(status)
            except KeyboardInterrupt:
                # In the main thread, which waits for the preparations of the tables.
                os.killpg(child.pid, signal.SIGINT)
                child.wait()
                raise
            finally:
                with self.lock:
                    self.running.discard(child)
            out.seek(0), err.seek(0)
            if child.returncode:
                last = [*err.read().splitlines(), "nothing"][-6:-1]
                called = " ".join(map(str, command))
                raise RuntimeError("\n    ".join([f"{called} failed:", *last]))
            return out.read(), usage.ru_utime + usage.ru_stime

    def stop(self):
        with self.lock:
            self.stopped = True
            for child in self.running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGINT)

    def figures(self, words, pictures):
        """The tables that a program prints, or the picture that it draws."""
        program, *rest = shlex.split(words)
        used = [file(word, self.scratch) for word in rest]
        if program not in NAMELESS:
            used = [
                f"{TRACES[word][0]}={path}" if word in TRACES else path
                for word, path in zip(rest, used, strict=True)
            ]
        path = ROOT / "bench" / program
        if pictures:
            drawn = self.scratch / f"{program}.svg"
            _, seconds = self.run([sys.executable, path, drawn, *used])
            return [drawn.read_text()], seconds
        python = sys.executable
        if program == "papers.py":
            python = ROOT / "target/python/bin/python"
        text, seconds = self.run([python, path, *used])
        return [part.strip() for part in text.strip().split("\n\n")], seconds

    def synthesize(self, name):
        path = file(name, self.scratch)
        self.run([FOREBAY, "-q", "trace", "synth", SYNTHETIC[name][1], "-o", path])

    def study(self, names):
        wanted = " ".join(sorted(PAPERS[name] for name in names))
        _, seconds = self.run([ROOT / "scripts/papers.sh"], STUDIES=wanted)
        return seconds


def file(word, scratch):
    """The file of a trace; other words are returned unchanged."""
    if word in OURS:
        return str(ROOT / OURS[word][1])
    if word in PUBLIC:
        return str(FOLDER / PUBLIC[word][1])
    if word in SYNTHETIC:
        return str(scratch / f"{word}.parquet")
    return word


def missing(words):
    """The traces of a marker that are missing on this machine."""
    files = {word: file(word, Path()) for word in shlex.split(words)}
    return [
        word
        for word, path in files.items()
        if word in {**OURS, **PUBLIC} and not Path(path).exists()
    ]


def old(place):
    if place.picture:
        return place.picture.read_text() if place.picture.exists() else ""
    lines = place.page.read_text().splitlines()
    begin, end = span(place, lines)
    return "\n".join(lines[begin:end]).strip()


def span(place, lines):
    """The lines between the markers, which may have moved since they were found."""
    begins = [n for n, line in enumerate(lines) if is_marker(line, place.words)]
    begin = begins[place.nth] + 1
    return begin, lines.index(END, begin)


def is_marker(line, words):
    match = MARKER.fullmatch(line)
    return bool(match) and match[1] == words


def put(place, new):
    if place.picture:
        return replace(place.picture, new)
    lines = place.page.read_text().splitlines()
    begin, end = span(place, lines)
    lines[begin:end] = [*new.splitlines(), ""]
    replace(place.page, "\n".join(lines) + "\n")


def replace(path, text):
    """Writes a file atomically: at any time it is either the old or the new one."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as out:
        out.write(text)
    Path(out.name).chmod(path.stat().st_mode if path.exists() else 0o644)
    Path(out.name).replace(path)


def difference(place, new):
    """The lines that change: old ones and new ones."""
    lines = difflib.unified_diff(
        old(place).splitlines(), new.splitlines(), lineterm="", n=0
    )
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


class Progress:
    def __init__(self, count, check):
        self.count, self.check, self.done = count, check, 0
        self.differing, self.failed = 0, 0

    def say(self, place, what):
        self.done += 1
        print(f"[{self.done}/{self.count}] {place}: {what}", flush=True)

    def take(self, group, parts, seconds):
        """Compares the results with the places that have these arguments, and replaces their
        contents.
        """
        time_taken = f"{seconds:.0f} s of CPU"
        for place in group:
            if place.nth >= len(parts) or not parts[place.nth]:
                self.fail(place, f"the program gives {len(parts)} tables or pictures")
                continue
            new = parts[place.nth]
            lines = difference(place, new)
            if not lines:
                self.say(place, f"unchanged, {time_taken}")
                continue
            self.differing += 1
            removed = sum(line.startswith("-") for line in lines)
            added = len(lines) - removed
            self.say(place, f"{removed} lines replaced by {added} others, {time_taken}")
            if self.check and not place.picture:
                print("\n".join(f"    {line}" for line in lines), flush=True)
            if not self.check:
                put(place, new)

    def fail(self, place, what):
        self.failed += 1
        self.say(place, f"left unchanged: {what}")


def make(chosen, check):
    """Runs every program that is named; returns the exit status."""
    progress = Progress(len(chosen), check)
    left = [(place, missing(place.words)) for place in chosen]
    groups = {}
    for place, lacks in left:
        if lacks:
            progress.say(place, f"left unchanged: missing trace {', '.join(lacks)}")
        else:
            groups.setdefault(place.words, []).append(place)
    at_once = int(os.environ.get("FIGURES_AT_ONCE", "2"))
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(at_once) as pool:
        runner = Runner(scratch)
        try:
            prepare(runner, groups, progress)
            work = {
                pool.submit(runner.figures, words, group[0].picture): group
                for words, group in groups.items()
            }
            waiting = set(work)
            while waiting:
                # A wait without a timeout could not be interrupted.
                ended, waiting = wait(waiting, 1, FIRST_COMPLETED)
                for one in ended:
                    try:
                        progress.take(work[one], *one.result())
                    except (RuntimeError, OSError) as error:
                        for place in work[one]:
                            progress.fail(place, error)
        except KeyboardInterrupt:
            runner.stop()
            pool.shutdown(cancel_futures=True)
            print(f"stopped: {progress.count - progress.done} left unchanged")
            return 130
    lacking = sum(bool(lacks) for _, lacks in left)
    differ = "differ" if check else "changed"
    print(
        f"{progress.differing} of {len(chosen)} {differ}; left unchanged: {lacking} whose traces are missing,"
        f" {progress.failed} whose programs failed"
    )
    return 1 if progress.failed or check and progress.differing else 0


def prepare(runner, groups, progress):
    """Creates synthetic traces and runs studies; a failure fails the tables that depend on it."""
    words = {word for line in groups for word in shlex.split(line)}
    for name in sorted(words & set(SYNTHETIC)):
        runner.synthesize(name)
    lines = [line for line in groups if shlex.split(line)[0] == "papers.py"]
    if not lines:
        return
    print(f"running the studies for {len(lines)} tables ...", flush=True)
    began = time.monotonic()
    try:
        seconds = runner.study({shlex.split(line)[1] for line in lines})
        took = time.monotonic() - began
        print(f"the studies took {took:.0f} s, {seconds:.0f} s of CPU")
    except RuntimeError as error:
        for line in lines:
            for place in groups.pop(line):
                progress.fail(place, error)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true")
    how.add_argument("--list", action="store_true")
    args = parser.parse_args()
    found, wrong = places()
    if wrong:
        sys.exit("\n".join(wrong))
    chosen = [place for place in found if place.is_called(args.names or [""])]
    chosen = chosen if args.names else found
    if unknown := [n for n in args.names if not any(p.is_called([n]) for p in found)]:
        sys.exit(f"nothing is called {', '.join(unknown)}; --list shows all")
    if args.list:
        for place in chosen:
            lacks = missing(place.words)
            print(f"{place}{' (missing: ' + ', '.join(lacks) + ')' if lacks else ''}")
        return
    if not Path(FOREBAY).exists():
        sys.exit(f"{FOREBAY} is missing: make build")
    sys.exit(make(chosen, args.check))


if __name__ == "__main__":
    main()
