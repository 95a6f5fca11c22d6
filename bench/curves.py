"""The tables of docs/miss-ratio-curves.md and docs/simulation.md; see tables.py."""

import csv
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path

from common import (
    BLOCK,
    FOREBAY,
    MIB,
    ask,
    at_or_last,
    curve,
    name_of,
    named,
    row,
    simulate,
    tier_sizes,
)


# Columns of `kept`: the write policy, whether memory acknowledges, and the number of writes before
# each flush.
KEPT = {
    "write-through": ("write-through", False, None),
    "read-only": ("read-only", False, None),
    "write-only": ("write-only", False, None),
    'write-back, `"dram"`': ("write-back", True, None),
    "a flush every 100 writes": ("write-back", True, 100),
    "write-back": ("write-back", False, None),
}
# Sizes of memory and flash, as shares of the distinct data.
KEPT_SIZES = [(1 / 32, 1 / 4), (1 / 32, 1 / 2)]
# Smaller flash is not possible: the log has 16 regions.
KEPT_MIB_MIN = 16


def kept_tiers(trace):
    """Sizes of both tiers, without those whose flash is too small."""
    for dram, flash in tier_sizes(trace, *KEPT_SIZES):
        if flash >= KEPT_MIB_MIN * MIB:
            yield dram, flash


def kept(*traces):
    """Hits of both tiers as a share of those of a memory of the same total size, by layout; and
    write amplification.
    """
    row("trace", "memory + flash", *KEPT)
    row("---", "---", *["---:"] * len(KEPT))
    for trace in traces:
        for dram, flash in kept_tiers(trace):
            cells = []
            for policy, volatile, flushed in KEPT.values():
                pace = untimed(flushed)
                ideal = hits(simulate(trace, dram + flash, policy, pace=pace))
                shares = []
                for layout in ["slots", "log"]:
                    answer = simulate(
                        trace, dram, policy, flash, layout, pace, volatile
                    )
                    written = answer["flash"]["write_amplification"]
                    # (Without hits, nothing was written either.)
                    shares.append(
                        f"{hits(answer) / ideal:.2f}, {written:.2f}" if ideal else "-"
                    )
                cells.append(" / ".join(shares))
            row(*named(trace, dram, flash), *cells)


def untimed(flushed):
    """Options of a run without times, with a flush after every `flushed` writes if it is given."""
    flush = ("--assume-flush", str(flushed)) if flushed else ()
    return ("--untimed", *flush)


def kept_with(line, *traces):
    """Slots layout, with a line in [flash]: the share of `kept`, and the bytes written to flash
    and to the backing store as shares of those without that line.
    """
    columns = [name for name in KEPT if name not in ("read-only", "write-only")]
    row("trace", "memory + flash", *columns)
    row("---", "---", *["---:"] * len(columns))
    for trace in traces:
        for dram, flash in kept_tiers(trace):
            cells = []
            for policy, volatile, flushed in map(KEPT.get, columns):
                pace = untimed(flushed)
                ideal = hits(simulate(trace, dram + flash, policy, pace=pace))
                tiers = (trace, dram, policy, flash, "slots", pace, volatile)
                plain, answer = simulate(*tiers), simulate(*tiers, of_flash=[line])
                flash_share = ratio(answer, plain, lambda a: a["tier2_bytes_written"])
                store_share = ratio(
                    answer, plain, lambda a: a["backing"]["write_bytes"]
                )
                cells.append(
                    f"{hits(answer) / ideal:.2f}, {flash_share}, {store_share}"
                )
            row(*named(trace, dram, flash), *cells)


def ratio(answer, plain, of):
    return f"{of(answer) / of(plain):.2f}" if of(plain) else "-"


# Columns of `rates`: flash, backing store, requests in flight.
RATES = [("nvme", "san", 16), ("sata-ssd", "hdd-7200", 8)]
# What to compare in each cell.
RATED = {
    "slots": ("slots", []),
    "slots, `promote_after = 3`": ("slots", ["promote_after = 3"]),
    "log": ("log", []),
}


def rates(*traces):
    """Requests per second, mean latency in ms, hits in percent and MiB written to flash, by devices and layout."""
    row("trace", "memory + flash", "devices", "write policy", *RATED)
    row(*["---"] * 4, *["---:"] * len(RATED))
    for trace in traces:
        *_, (dram, flash) = kept_tiers(trace)
        policies = {policy: policy for policy in ["write-through", "write-back"]}
        if ask("trace", "info", trace)["writes"] == 0:
            policies = {"either (reads only)": "write-through"}
        for device, store, depth in RATES:
            volume = f'[[volume]]\nname = "a"\nbacking = "/b"\nshape = "{store}"'
            for shown, policy in policies.items():
                cells = []
                for layout, lines in RATED.values():
                    answer = simulate(
                        trace,
                        dram,
                        policy,
                        flash,
                        layout,
                        ("--queue-depth", str(depth), "--limit", "300000"),
                        of_flash=[f'shape = "{device}"', *lines],
                        after=[volume],
                    )
                    rate = answer["throughput"]["requests_per_s"]
                    mean = answer["latency_us"]["all"]["mean"] / 1000
                    found, misses = hits(answer), sum(answer["misses"].values())
                    share = found / (found + misses)
                    written = answer["tier2_bytes_written"] / MIB
                    cells.append(
                        f"{rate:,.0f}, {mean:.2f} ms, {share:.1%}, {written:,.0f}"
                    )
                row(
                    *named(trace, dram, flash),
                    f"{device}, {store}, depth {depth}",
                    shown,
                    *cells,
                )


# Sizes of memory and flash in `promotion`, as shares of the distinct data.
PROMOTION_SIZES = [
    (1 / 32, 1 / 4),
    (1 / 8, 1 / 4),
    (1 / 4, 1 / 2),
    (1 / 16, 1 / 8),
    (1 / 8, 1 / 8),
]


def promotion(*traces):
    """Slots layout, by `promote_after`: all hits, hits in memory, bytes written to flash and
    mean latency, as shares of those with 1. With an nvme in front of a san, 16 requests in
    flight, and the first 300,000 requests.
    """
    columns = {
        f"{policy}, {after}": (policy, after)
        for policy in ["write-through", "write-back"]
        for after in (2, 3)
    }
    row("trace", "memory + flash", *columns)
    row("---", "---", *["---:"] * len(columns))
    pace = ("--queue-depth", "16", "--limit", "300000")
    for trace in traces:
        for dram, flash in tier_sizes(trace, *PROMOTION_SIZES):
            plain = {
                policy: promoted((trace, dram, policy, flash), 1, pace)
                for policy, _ in columns.values()
            }
            cells = []
            for policy, after in columns.values():
                answer = promoted((trace, dram, policy, flash), after, pace)
                of = [
                    hits,
                    memory_hits,
                    lambda a: a["tier2_bytes_written"],
                    lambda a: a["latency_us"]["all"]["mean"],
                ]
                cells.append(", ".join(ratio(answer, plain[policy], f) for f in of))
            row(*named(trace, dram, flash), *cells)


def promoted(tiers, after, pace):
    """Simulates the slots layout on an nvme, in front of a san, with this `promote_after`."""
    lines = ['shape = "nvme"', f"promote_after = {after}"]
    volume = '[[volume]]\nname = "a"\nbacking = "/b"\nshape = "san"'
    return simulate(*tiers, "slots", pace, of_flash=lines, after=[volume])


def promotion_phases():
    """Sixteen sets of 2,000 blocks, all on flash; only one set at a time is in use. Reads one
    request after another.
    """
    phase = "uniform:blocks=2000,start={}MiB,requests=10000,write=0.1"
    spec = " then ".join(phase.format(8 * (n % 16)) for n in range(64)) + ",seed=1"
    run = [FOREBAY, "-q", "trace", "synth", spec, "-o", "phases.parquet"]
    subprocess.run(run, check=True, stdout=2)
    row("`promote_after`", "memory hits", "mean read latency", "MiB written to flash")
    row("---", "---:", "---:", "---:")
    tiers = ("phases.parquet", 16 * MIB, "write-through", 192 * MIB)
    for after in (1, 2, 3):
        answer = promoted(tiers, after, ("--queue-depth", "1"))
        share = memory_hits(answer) / answer["requests"]
        mean = answer["latency_us"]["read"]["mean"]
        written = answer["tier2_bytes_written"] / MIB
        row(after, f"{share:.1%}", f"{mean:.1f} µs", f"{written:.0f}")


def memory_hits(answer):
    return sum(answer["hits"]["tier1"].values())


def hits(answer):
    """The hits in both tiers, of reads and writes."""
    return sum(sum(tier.values()) for tier in answer["hits"].values())


# The lines of each column in the section [flash].
REPLACEMENT = {
    "`fifo`": ['replacement = "fifo"'],
    "`second-chance`": ['replacement = "second-chance"'],
    "`popularity`": ['replacement = "popularity"'],
    "`frequency`": ['replacement = "frequency"'],
    "`promote_after = 2`": ['replacement = "frequency"', "promote_after = 2"],
}


def replacement(*traces):
    """Write-through: the share of LRU's hits, the write amplification, and the share of these
    hits that memory alone has.
    """
    row("trace", "memory + flash", *REPLACEMENT, "memory")
    row("---", "---", *["---:"] * (len(REPLACEMENT) + 1))
    for trace in traces:
        for dram, flash in kept_tiers(trace):
            blocks = (dram + flash) // BLOCK
            points, _ = curve(trace, "--distance", "trd", at=[blocks])
            ideal = at_or_last(points, blocks)["hits"]
            cells, memory = [], []
            for lines in REPLACEMENT.values():
                answer = simulate(trace, dram, "write-through", flash, of_flash=lines)
                hits = {
                    tier: sum(found.values()) for tier, found in answer["hits"].items()
                }
                written = answer["flash"]["write_amplification"]
                cells.append(f"{sum(hits.values()) / ideal:.2f}, {written:.2f}")
                memory.append(f"{hits['tier1'] / ideal:.2f}")
            row(*named(trace, dram, flash), *cells, f"{memory[-1]}, {memory[-2]}")


def lru():
    trace = "zipf.parquet"
    spec = "zipf:blocks=60k,theta=1,requests=400k,write=0.25,seed=1"
    subprocess.run(
        [FOREBAY, "-q", "trace", "synth", spec, "-o", trace], check=True, stdout=2
    )
    rows = [(1000, 4096), (1000, 16384), (5000, 16384), (1000, 32768)]
    points, _ = curve(trace, at=[dram + flash for dram, flash in rows])
    row("memory + flash, blocks", "write-through", "write-back")
    row("---", "---", "---")
    for dram, flash in rows:
        shares = []
        for policy in ["write-through", "write-back"]:
            hits = simulate(trace, dram * BLOCK, policy, flash * BLOCK)["hits"]
            both = sum(sum(hits[tier].values()) for tier in ["tier1", "tier2"])
            shares.append(f"{both / points[dram + flash]['hits']:.2f}")
        row(f"{dram:,} + {flash:,}", *shares)


def copies(trace):
    """Slots layout, without and with `give_up_copies`: the share of `kept`, and the increase in
    writes.
    """
    row(
        "memory + flash",
        "acknowledged from",
        "increase in the share of LRU's hits",
        "more writes to the backing store",
        "more writes to flash",
    )
    row("---", "---", "---", "---:", "---:")
    for dram, flash in kept_tiers(trace):
        ideal = hits(simulate(trace, dram + flash, "write-back"))
        for where in ["memory", "flash"]:
            given = (trace, dram, "write-back", flash, "slots")
            plain, answer = (
                simulate(*given, volatile=where == "memory", of_flash=lines)
                for lines in ([], ["give_up_copies = true"])
            )
            before, after = (hits(each) / ideal for each in (plain, answer))
            more = (
                of(answer) / of(plain) - 1
                for of in (
                    lambda a: a["backing"]["write_bytes"],
                    lambda a: a["tier2_bytes_written"],
                )
            )
            row(
                named(trace, dram, flash)[1],
                where,
                f"from {before:.2f} to {after:.2f}",
                *(f"{100 * share:.0f} %" for share in more),
            )


def pod(trace):
    """Compares the curves of write policies, which model LRU caches, with the simulated cache."""
    sizes = [16, 128, 256, 512, 1024]
    blocks = [mib * MIB // BLOCK for mib in sizes]
    policies = {
        "read-only": ["lru-ro", "pod-ro"],
        "write-only": ["lru-wbwo", "pod-wbwo"],
    }
    names = (name for both in policies.values() for name in both)
    curves = {d: curve(trace, "--distance", d, at=blocks)[0] for d in names}
    accesses = list(block_accesses(trace))
    whole_blocks("trace.csv", "whole.csv")
    heads = (
        [f"{p}: `{d[0]}`", f"`{d[1]}`", "simulated", "whole blocks"]
        for p, d in policies.items()
    )
    row("cache", *(cell for head in heads for cell in head))
    row(*["---"] * 9)
    for mib, count in zip(sizes, blocks, strict=True):
        cells = []
        for policy, distances in policies.items():
            exact, paper = (
                at_or_last(curves[d], count)["read_hits"] for d in distances
            )
            if exact != (counted := read_hits(accesses, policy, count)):
                sys.exit(f"{policy}, {mib} MiB: {exact} by the curve, {counted} by LRU")
            simulated, whole = (
                simulate(t, mib * MIB, policy)["hits"]["tier1"]["read"]
                for t in [trace, "whole.csv"]
            )
            cells += [f"{exact:,}", f"{paper:,}", f"{simulated:,}", f"{whole:,}"]
        row(f"{mib} MiB" if mib < 1024 else "1 GiB", *cells)


def block_accesses(trace):
    """Pairs of (volume, block) and whether it is written, in the order of the trace."""
    run = [FOREBAY, "-q", "trace", "convert", trace, "-o", "trace.csv"]
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
    with open("trace.csv") as lines:
        for line in csv.DictReader(lines):
            offset, length = int(line["offset"]), int(line["length"])
            if line["op"] not in ("read", "write") or length == 0:
                continue
            for block in range(offset // BLOCK, (offset + length - 1) // BLOCK + 1):
                yield (line["volume"], block), line["op"] == "write"


def whole_blocks(trace, output):
    """Writes the trace with its requests extended to whole blocks."""
    with open(trace) as lines, open(output, "w") as out:
        reader = csv.DictReader(lines)
        writer = csv.DictWriter(out, reader.fieldnames)
        writer.writeheader()
        for line in reader:
            offset, length = int(line["offset"]), int(line["length"])
            if length == 0:
                continue
            end = -(-(offset + length) // BLOCK) * BLOCK
            line["offset"] = offset // BLOCK * BLOCK
            line["length"] = end - line["offset"]
            writer.writerow(line)


def read_hits(accesses, policy, size):
    held, hits = OrderedDict(), 0
    for block, written in accesses:
        found = block in held
        hits += found and not written
        if written and policy == "read-only":
            held.pop(block, None)
        elif found or written == (policy == "write-only"):
            held[block] = True
            held.move_to_end(block)
            if len(held) > size:
                held.popitem(last=False)
    return hits


def sampling(*traces):
    """The mean and the largest absolute difference in miss ratio over 100 evenly spaced sizes."""
    heads, columns = [], []
    for trace in traces:
        exact, document = curve(trace)
        end = max(exact)
        sizes = [end * n // 100 for n in range(1, 101)]
        exact, _ = curve(trace, at=sizes)
        blocks = document["distinct_blocks"] / 1e6
        heads.append(f"{name_of(trace)}, {blocks:.2g} M blocks")
        columns.append([sampled(trace, exact, sizes, ways) for ways in SAMPLED])
    row("", *heads)
    row("---", *["---"] * len(heads))
    for options, *cells in zip(SAMPLED, *columns, strict=True):
        row(f"`{' '.join(options)}`", *cells)


SAMPLED = [
    ("--sample", "0.1"),
    ("--sample", "0.01"),
    ("--max-blocks", "8192"),
    ("--max-blocks", "1024"),
]


def sampled(trace, exact, sizes, options):
    points, _ = curve(trace, *options, at=sizes)
    errors = [
        abs(
            at_or_last(exact, size)["miss_ratio"]
            - at_or_last(points, size)["miss_ratio"]
        )
        for size in sizes
    ]
    return f"{sum(errors) / len(errors):.4f} ({max(errors):.3f})"


def miniature(trace):
    """Compares miniature simulations with full ones: memory alone, and two tiers in both layouts."""
    memory = [16, 64, 128, 256]
    flash = [128, 256, 512, 1024]
    sizes = {
        "memory": ("", ["--at", ",".join(f"{mib}MiB" for mib in [*memory, 512, 1024])])
    }
    for layout in ["log", "slots"]:
        section = f'[flash]\npath = "/flash"\nlayout = "{layout}"\n'
        words = ["--at", ",".join(f"{mib}MiB" for mib in memory[:3])]
        words += ["--flash", ",".join(f"{mib}MiB" for mib in flash)]
        sizes[f"memory and flash, {layout}"] = (section, words)
    row("tiers", "share of blocks", "mean error", "largest error")
    row("---", "---:", "---:", "---:")
    for name, (section, words) in sizes.items():
        Path("cache.toml").write_text(
            f'[cache]\nwrite_policy = "write-back"\n{section}'
        )
        whole, seconds = miss_ratios(trace, words, "1")
        for rate in ["0.3", "0.1", "0.03"]:
            part, taken = miss_ratios(trace, words, rate)
            errors = [abs(part[at] - whole[at]) for at in part]
            mean, most = sum(errors) / len(errors), max(errors)
            row(name, rate, f"{mean:.4f}", f"{most:.4f}")
            share = taken / seconds
            print(f"{name}, {rate}: {share:.2f} of the time", file=sys.stderr)


def miss_ratios(trace, words, rate):
    started = time.monotonic()
    document = ask("mrc", trace, "--config", "cache.toml", "--sample", rate, *words)
    taken = time.monotonic() - started
    points = {
        (point["size_bytes"], point["flash_bytes"]): point.get("miss_ratio")
        for point in document["points"]
    }
    return {at: ratio for at, ratio in points.items() if ratio is not None}, taken
