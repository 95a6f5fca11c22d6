"""The tables of docs/policies.md about admission to flash and how the tiers share blocks; see
tables.py.
"""

from common import MIB, name_of, named, row, simulate, tier_sizes

# Sizes of memory and flash, as shares of the distinct data.
SMALL = (0.02, 0.2)
# The lines of each column in the section [admission].
ADMISSION = {
    "always": [],
    "nhit, 2": ['policy = "nhit"'],
    "nhit, 4": ['policy = "nhit"', "hits = 4"],
    "nhit, 8": ['policy = "nhit"', "hits = 8"],
    "smq": ['policy = "smq"'],
    "popularity, 0.25": ['policy = "popularity"', "top = 0.25"],
    "popularity, 0.5": ['policy = "popularity"'],
    "random, 0.5": ['policy = "random"'],
}


def admission(*traces):
    """Admission policies, with memory of 2 % and flash of 20 % of the blocks, in the log layout,
    untimed. A trace without writes has one row.
    """
    row("trace", "memory + flash", "write policy", *ADMISSION)
    row("---", "---", "---", *["---:"] * len(ADMISSION))
    # The write policy, whether memory acknowledges, and further lines in [admission].
    ways = {
        "write-through": ("write-through", False, []),
        "write-back": ("write-back", False, []),
        "write-back, dram": ("write-back", True, []),
        "write-back, dram, enter": ("write-back", True, ['written = "enter"']),
    }
    for trace in traces:
        ((dram, flash),) = tier_sizes(trace, SMALL)
        found = {}
        for way, (policy, volatile, extra) in ways.items():
            cells = found[way] = []
            for lines in ADMISSION.values():
                given = {"volatile": volatile, "admission": lines + extra}
                answer = simulate(trace, dram, policy, flash, **given)
                written = answer["tier2_bytes_written"] / MIB
                cells.append(f"{answer['hit_ratio']:.1%}, {written:.0f}")
        first = found["write-through"]
        if all(cells == first for cells in found.values()):
            found = {"all four": first}
        for way, cells in found.items():
            row(*named(trace, dram, flash), way, *cells)


# The relation of the tiers, the layout, and the lines of each column in the section [flash].
RELATIONS = {
    "exclusive": ("exclusive", "log", []),
    "inclusive": ("inclusive", "log", []),
    "layered, 64 KiB": ("layered", "log", ['line_size = "64KiB"']),
    "dual, 64 KiB": ("dual", "log", ['line_size = "64KiB"']),
    "etica-npe": ("etica-npe", "log", []),
    "etica, slots": ("etica", "slots", []),
    "eci": ("eci", "log", []),
}


def relations(*traces):
    """Relations of the tiers, with memory of 2 % and flash of 20 % of the blocks, write-back
    acknowledged by flash, untimed.
    """
    row("trace", "memory + flash", *RELATIONS)
    row("---", "---", *["---:"] * len(RELATIONS))
    for trace in traces:
        ((dram, flash),) = tier_sizes(trace, SMALL)
        cells = []
        for relation, layout, lines in RELATIONS.values():
            given = {"of_cache": [f'relation = "{relation}"'], "of_flash": lines}
            answer = simulate(trace, dram, "write-back", flash, layout, **given)
            memory = sum(answer["hits"]["tier1"].values())
            both = memory + sum(answer["hits"]["tier2"].values())
            written = answer["tier2_bytes_written"] / MIB
            share = memory / both if both else 0
            cells.append(f"{answer['hit_ratio']:.1%} ({share:.0%}), {written:.0f}")
        row(*named(trace, dram, flash), *cells)


def etica(*traces):
    """ETICA's relations, with 11 MiB of memory and 47 MiB of flash in slots with 4 KiB pages,
    write-back acknowledged by flash, untimed.
    """
    names = ["eci", "etica-npe", "etica", "exclusive"]
    row("trace", *names)
    row("---", *["---:"] * len(names))
    for trace in traces:
        found = []
        for relation in names:
            lines = [f'relation = "{relation}"']
            pages = ['page_size = "4KiB"']
            given = {"of_cache": lines, "of_flash": pages}
            tiers = (trace, 11 * MIB, "write-back", 47 * MIB, "slots")
            answer = simulate(*tiers, **given)
            written = answer["tier2_bytes_written"] / MIB
            found.append(f"{answer['hit_ratio']:.1%}, {written:.0f}")
        row(name_of(trace), *found)


# Policies for the cells of the slots layout; the first column is the log layout with its default.
CELLS = ["lru", "fifo", "clock", "sieve", "s3-fifo", "2q", "arc", "lfu", "w-tinylfu"]


def cells(*traces):
    """As `relations`, by replacement policy of the slots layout's cells, with write-through."""
    row("trace", "memory + flash", "log", *CELLS)
    row("---", "---", *["---:"] * (1 + len(CELLS)))
    for trace in traces:
        ((dram, flash),) = tier_sizes(trace, SMALL)
        found = []
        for layout, policy in [("log", None)] + [("slots", name) for name in CELLS]:
            lines = [f'replacement = "{policy}"'] if policy else []
            answer = simulate(
                trace, dram, "write-through", flash, layout, of_flash=lines
            )
            written = answer["tier2_bytes_written"] / MIB
            found.append(f"{answer['hit_ratio']:.1%}, {written:.0f}")
        row(*named(trace, dram, flash), *found)


def bypass(*traces):
    """As `relations`, by the length from which the rest of a stream bypasses the cache."""
    least = ["none", "256KiB", "1MiB", "4MiB"]
    row("trace", "memory + flash", *least, "bypassed at 1MiB")
    row("---", "---", *["---:"] * (len(least) + 1))
    for trace in traces:
        ((dram, flash),) = tier_sizes(trace, SMALL)
        cells, past = [], ""
        for size in least:
            lines = ["[bypass]"] + [f'{op} = "{size}"' for op in ("reads", "writes")]
            given = {"after": lines if size != "none" else []}
            answer = simulate(trace, dram, "write-back", flash, **given)
            written = answer["tier2_bytes_written"] / MIB
            cells.append(f"{answer['hit_ratio']:.1%}, {written:.0f}")
            if size == "1MiB":
                events = answer["events"]
                gone = events["bypassed_reads"] + events["bypassed_writes"]
                kinds = [*answer["hits"].values(), answer["misses"]]
                past = f"{gone / sum(sum(kind.values()) for kind in kinds):.1%}"
        row(*named(trace, dram, flash), *cells, past)
