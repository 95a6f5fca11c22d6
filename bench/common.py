"""Shared parts of the programs here: calling the binary, and printing a table."""

import json
import os
import subprocess
from pathlib import Path

FOREBAY = os.environ.get(
    "FOREBAY", str(Path(__file__).parent.parent / "target/release/forebay")
)
FOREBAY = str(Path(FOREBAY).resolve())
BLOCK = 4096
MIB = 1 << 20
# Names of traces in tables, by path; see `traces`.
NAMES = {}


def traces(words):
    """Paths for words of a command line such as `trace.csv` or `NAME=trace.csv`; other words are
    returned unchanged.
    """
    for word in words:
        name, _, path = word.rpartition("=")
        if not Path(path).exists():
            yield word
            continue
        path = str(Path(path).resolve())
        if name:
            NAMES[path] = name
        yield path


def name_of(trace):
    return NAMES.get(str(trace), Path(trace).name.split(".")[0])


def ask(*words):
    """The answer of a command with --json."""
    done = subprocess.run(
        [FOREBAY, "-q", *words, "--json"], check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


def curve(trace, *options, at=()):
    """The points of a curve, by blocks, and the whole document."""
    sizes = ["--at", ",".join(str(blocks * BLOCK) for blocks in at)] if at else []
    document = ask("mrc", trace, *options, *sizes)
    points = {}
    for point in document["points"]:
        point["hits"] = round(document["accesses"] * (1 - point["miss_ratio"]))
        point["read_hits"] = round(document["reads"] * (1 - point["read_miss_ratio"]))
        points[point["size_blocks"]] = point
    return points, document


def simulate(
    trace,
    dram_bytes,
    policy,
    flash_bytes=0,
    layout="log",
    pace=("--untimed",),
    volatile=False,
    replacement="lru",
    admission=(),
    of_flash=(),
    of_cache=(),
    after=(),
):
    config = Path("cache.toml")
    text = f'[cache]\ndram = {dram_bytes}\nwrite_policy = "{policy}"\n'
    if volatile and policy == "write-back":
        text += 'acknowledge = "dram"\n'
    text += "".join(f"{line}\n" for line in of_cache)
    if flash_bytes:
        text += f'[flash]\npath = "/flash"\nsize = {flash_bytes}\n'
        text += f'layout = "{layout}"\n'
        text += "".join(f"{line}\n" for line in of_flash)
        text += "[admission]\n" + "".join(f"{line}\n" for line in admission)
    text += f'[replacement]\npolicy = "{replacement}"\n'
    text += "".join(f"{line}\n" for line in after)
    config.write_text(text)
    return ask("simulate", trace, "--config", str(config), *pace)


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def at_or_last(points, blocks):
    """The point at a size, or the last point before it: a curve ends where a larger cache has no
    more hits.
    """
    return points[max(size for size in points if size <= blocks)]


def tier_sizes(trace, *shares):
    """Sizes of memory and flash, in bytes: shares of the trace's distinct data, rounded to whole
    MiB.
    """
    footprint = ask("trace", "info", trace)["footprint_blocks"]["all"] * BLOCK
    for pair in shares:
        dram, flash = (round(footprint * share / MIB) * MIB for share in pair)
        yield dram, flash


def named(trace, dram, flash):
    """The first cells of a trace's row: its name, and the sizes of the tiers."""
    return name_of(trace), f"{dram // MIB} + {flash // MIB} MiB"


def compared_policies():
    """Replacement policies for tables of single volumes. `derivative-lru`, which weighs volumes,
    equals `lru` there.
    """
    names = [policy["name"] for policy in ask("policies")["policies"]]
    return [name for name in names if name != "derivative-lru"]


# The study for each table of bench/papers.py.
PAPERS = {
    "classes": "bhandari-3-4-classes",
    "cydonia": "bhandari-3-5-cydonia",
    "tiers": "bhandari-4-tiers",
    "lines": "ajdari-line-size",
    "promotion": "ajdari-promotion",
    "levels": "etica-levels",
    "pages": "hazan-two-tiers",
    "policies": "policies",
}
