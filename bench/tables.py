#!/usr/bin/env python3
"""Prints the tables of the documents.

    bench/tables.py lru              hits of two tiers, compared with LRU of the same total size
    bench/tables.py kept TRACE...    share of LRU's hits that two tiers keep, by write policy and layout
    bench/tables.py rates TRACE...   requests per second of the first 300,000, by devices, write policy and layout
    bench/tables.py kept-with 'promote_after = 3' TRACE...
                                     what slots keep and write with such a line in [flash]
    bench/tables.py promotion TRACE...
                                     hits, writes to flash and latency, by promote_after and sizes
    bench/tables.py promotion-phases the same where the blocks in use change and all are on flash
    bench/tables.py copies TRACE     hits and writes of slots that give up dirty copies
    bench/tables.py replacement TRACE...
                                     the same by [flash] replacement, and write amplification
    bench/tables.py admission TRACE...
                                     hits and writes to flash, by write policy and admission
    bench/tables.py relations TRACE...
                                     hits and writes to flash, by relation of the tiers
    bench/tables.py etica TRACE...   the same for ETICA's relations, with pages of 4 KiB
    bench/tables.py cells TRACE...   hits and writes to flash, by what replaces blocks on flash
    bench/tables.py bypass TRACE...  hits and writes to flash, by length of the streams that bypass the cache
    bench/tables.py pod TRACE        read-only and write-only caches, compared with their curves
    bench/tables.py sampling TRACE...
                                     errors of sampled curves
    bench/tables.py miniature TRACE  errors of miniature simulations
    bench/tables.py formulas TRACE...
                                     the planner's formulas against the simulator, by layout
    bench/tables.py info TRACE...    what is in traces with content hashes
    bench/tables.py contents TRACE... reuse of contents, compared with reuse of sectors
    bench/tables.py sample TRACE...  errors of samples of a tenth, by size of the regions
    bench/tables.py sample-regions TRACE
    bench/tables.py sample-reduced TRACE
    bench/tables.py sample-default TRACE...
                                     the same in other forms, of single samples
    bench/tables.py sample-runs TRACE...
                                     simulations of such samples, compared with the whole trace
    bench/tables.py cydonia TRACE... Cydonia, compared with exhaustive search
    bench/tables.py study TRACE...   which shape of cache wins, by trace and by combination
    bench/tables.py memory           bookkeeping, by size of the tiers and layout of the flash
    bench/tables.py backing TRACE    operations of the backing store, by tiers and write policy
    bench/tables.py consolidate [TRACE VOLUME...]
                                     wastage by number of workloads (synthetic ones by default)

NAME=TRACE gives a trace a name in the table. FOREBAY=path of the binary (target/release/forebay). The same
figures come out on every machine; the times of `miniature` go to standard error. bench/figures.py puts the
tables into the documents.
"""

import os
import subprocess
import sys
import tempfile
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
    row,
    simulate,
    traces,
)
from curves import (
    block_accesses,
    copies,
    kept,
    kept_with,
    lru,
    miniature,
    pod,
    promotion,
    promotion_phases,
    rates,
    replacement,
    sampling,
)
from samples import by_default, reduced, regions
from sharing import admission, bypass, cells, etica, relations

# Ten minutes each of two web servers, five desktops and a mail server, in the manner of Koller
# 2012, figure 4.5: popular blocks, and a flood of blocks that are never read again.
DESKS = [(2, 40), (3, 25), (4, 60), (5, 30), (6, 50)]
WORKLOADS = {
    "web-1": "zipf:weight=9,blocks=12k,theta=0.9 + sequential:weight=1,start=1GiB,rate=150",
    "web-2": "zipf:weight=8,blocks=20k,theta=0.9 + sequential:weight=2,start=1GiB,rate=120",
    "mail": "zipf:weight=6,blocks=16k,theta=0.8,write=0.6 + "
    "sequential:weight=4,start=1GiB,write=1,rate=200",
    **{
        f"desk-{n}": f"zipf:weight=7,blocks={n}k,theta=1,write=0.5 + "
        f"sequential:weight=3,start=1GiB,write=0.5,rate={rate}"
        for n, rate in DESKS
    },
}


def synthetic_workloads():
    for seed, (name, spec) in enumerate(WORKLOADS.items()):
        spec += f",duration=10min,seed={seed}"
        run = [FOREBAY, "-q", "trace", "synth", spec, "-o", f"{name}.parquet"]
        subprocess.run(run, check=True, stdout=2)
    return [f"{name}.parquet" for name in WORKLOADS]


def consolidate(*words):
    """One row for each number of workloads: the mean over all starting points."""
    members = list(words[1:]) or synthetic_workloads()
    row("workloads", "alone", "wasted", "predicted", "with migration")
    row("---:", "---:", "---:", "---:", "---:")
    for count in range(1, len(members) + 1):
        firsts = range(len(members) if count < len(members) else 1)
        rows = []
        for first in firsts:
            chosen = [members[(first + n) % len(members)] for n in range(count)]
            traces = [words[0], "--volumes", ",".join(chosen)] if words else chosen
            plain = ask("consolidate", *traces, "--size", "1GiB")
            slow = ["--migration-period", "1min"]
            slow = ask("consolidate", *traces, "--size", "1GiB", *slow)
            rows.append([*measured(plain), plain["wastage_blocks"], *measured(slow)])
        own, wasted, predicted, own_slow, wasted_slow = (
            sum(column) / len(rows) * BLOCK / MIB for column in zip(*rows, strict=True)
        )
        row(
            count,
            f"{own:.1f} MiB",
            f"{wasted:.1f} MiB, {percent(wasted / (own + wasted))}",
            f"{predicted:.1f} MiB",
            f"{wasted_slow:.1f} MiB, {percent(wasted_slow / (own_slow + wasted_slow))}",
        )


def percent(share):
    return f"{100 * share:.1f} %"


def measured(answer):
    """The blocks that workloads need alone, and the additional ones that they need together."""
    own = answer["erss_blocks"]
    return own, answer["simulated_isolation_blocks"] - own


def info(*traces):
    """One row for each trace."""
    row(
        "",
        "requests",
        "reads, writes, flushes",
        "read, written",
        "blocks touched",
        "contents",
        "written again",
        "duplicates at the end",
        "minutes",
        "file",
    )
    row("---", *["---:"] * 9)
    for trace in traces:
        found = ask("trace", "info", trace)
        held = found["contents"]
        ops = [found[op] / found["requests"] for op in ("reads", "writes", "flushes")]
        blocks = [found["footprint_blocks"]["all"], held["distinct"]["all"]]
        duplicates = held["blocks_at_end"] - held["contents_at_end"]
        row(
            name_of(trace),
            f"{found['requests']:,}",
            ", ".join(f"{share:.0%}" for share in ops),
            ", ".join(
                f"{found[k] / MIB:,.0f} MiB" for k in ("read_bytes", "write_bytes")
            ),
            *(f"{count * BLOCK / MIB:,.0f} MiB" for count in blocks),
            f"{held['rewritten'] / max(held['accesses']['write'], 1):.0%}",
            f"{duplicates / max(held['blocks_at_end'], 1):.0%}",
            f"{found['duration_s'] / 60:.1f}",
            f"{Path(trace).stat().st_size / MIB:.1f} MiB",
        )


def contents(*traces):
    """Read misses of caches of several sizes, and duplicate data."""
    shares = [1 / 64, 1 / 16, 1 / 4, 1]
    row(
        "",
        "data by sector",
        "data by content",
        "cache size",
        "reads missed by sector",
        "reads missed by content",
    )
    row("---", "---:", "---:", "---:", "---:", "---:")
    for trace in traces:
        found = ask("trace", "info", trace)
        at_end = found["contents"]
        end = found["footprint_blocks"]["all"]
        sizes = [max(1, int(end * share)) for share in shares]
        names = [name_of(trace)] + [""] * len(shares)
        held = [
            f"{at_end[key] * BLOCK / MIB:.0f} MiB"
            for key in ("blocks_at_end", "contents_at_end")
        ]
        curves = [
            curve(trace, "--distance", "urd", "--key", key, at=sizes)[0]
            for key in ("sector", "content")
        ]
        for size, name in zip(sizes, names, strict=False):
            missed = [at_or_last(points, size)["read_miss_ratio"] for points in curves]
            cells = held if name else ["", ""]
            row(
                name,
                *cells,
                f"{size * BLOCK / MIB:.1f} MiB",
                *(f"{m:.1%}" for m in missed),
            )


BEST = ["--bits", "4,5,6,7,8", "--best-of", "8"]


def sample(*traces):
    """Errors of a sample of a tenth: of all features, without misalignment below a byte, and of
    hits.
    """
    ways = [
        ("4 KiB", ["--bits", "0"]),
        ("64 KiB", ["--bits", "4"]),
        ("the best of 40", BEST),
        ("and reduced", [*BEST, "--target-rate", "0.07"]),
    ]
    heads = [
        "regions of",
        "requests kept",
        "features",
        "features, without misalignments below one byte",
        "hits",
    ]
    row("", *heads)
    row("---", *["---:"] * len(heads))
    for trace in traces:
        label = name_of(trace)
        for name, options in ways:
            words = ["--rate", "0.1", *options, "-o", "tenth.parquet"]
            found = ask("sample", trace, *words)
            if options[:2] == BEST[:2]:
                name += f": {4 << found['bits']} KiB"
            # Only the means, without quantiles.
            large = [
                f["error"]
                for key, f in found["features"].items()
                if "_p" not in key and not ("misalignment" in key and f["full"] < 1)
            ]
            errors = [found["mean_error"], sum(large) / len(large)]
            row(
                label,
                name,
                f"{found['request_ratio']:.1%}",
                *(f"{error:.1%}" for error in errors),
                f"{found['hit_ratio_error']['all']:.1%}",
            )
            label = ""


def sample_runs(*traces):
    """Median and largest error over sixteen pairs of tiers, with sizes as shares of the whole
    trace's footprint.
    """
    # In the first, a disk is always busy; in the second, a store keeps up.
    closed, timed = ["--queue-depth", "8"], ["--backing-device", "san"]
    latencies = ["mean latency", "p99"]
    ways = [
        ("eight in flight", closed, [], "64 KiB", [], ["throughput"]),
        ("eight in flight", closed, [], "the best of 40", BEST, ["throughput"]),
        ("by gaps", timed, ["--follow-gaps"], "64 KiB", [], latencies),
        ("by gaps", timed, ["--follow-gaps"], "the best of 40", BEST, latencies),
    ]
    row("", "requests arrive", "regions of", "", "median error", "largest")
    row("---", "---", "---", "---", "---:", "---:")
    shares = [(m, f) for m in (0.01, 0.02, 0.05, 0.1) for f in (0.05, 0.1, 0.2, 0.4)]
    for trace in traces:
        label = name_of(trace)
        blocks = ask("trace", "info", trace)["footprint_blocks"]["all"]
        tiers = [[int(blocks * share) for share in pair] for pair in shares]
        wholes = {}
        for arrive, pace, gaps, name, options, figures in ways:
            if arrive not in wholes:
                wholes[arrive] = [run_of(trace, t, pace) for t in tiers]
            whole = wholes[arrive]
            words = ["--rate", "0.1", *options, "-o", "tenth.parquet"]
            rate = ask("sample", trace, *words)["rate"]
            parts = [
                run_of(
                    "tenth.parquet", [max(64, int(n * rate)) for n in t], pace + gaps
                )
                for t in tiers
            ]
            for what in figures:
                pairs = zip(parts, whole, strict=True)
                errors = sorted(
                    abs(part[what] / full[what] - 1) for part, full in pairs
                )
                median = (errors[7] + errors[8]) / 2
                row(label, arrive, name, what, f"{median:.0%}", f"{errors[-1]:.0%}")


def run_of(trace, blocks, pace):
    """The speed of a simulation."""
    dram, flash = (size * BLOCK for size in blocks)
    # The log layout needs regions of a megabyte; slots allow any size.
    found = simulate(trace, dram, "write-back", flash, "slots", pace=pace)
    latency = found["latency_us"]["all"]
    return {
        "throughput": found["throughput"]["bytes_per_s"],
        "mean latency": latency["mean"],
        "p99": latency["p99"],
    }


def memory():
    """Bookkeeping of memory alone, and the additional bookkeeping of flash."""
    trace = "small.parquet"
    spec = "zipf:blocks=1000,requests=1000,write=0.3"
    subprocess.run(
        [FOREBAY, "-q", "trace", "synth", spec, "-o", trace], check=True, stdout=2
    )
    row(
        "memory",
        "flash",
        "bytes per block in memory",
        "additional bytes per block on flash, log",
        "additional bytes per block on flash, slots",
    )
    row(*["---"] * 5)
    for dram, flash in [(64, 256), (256, 4096), (1024, 16384), (4096, 65536)]:
        alone = simulate(trace, dram * MIB, "write-back")["metadata_bytes"]
        cells = [f"{dram} MiB", f"{flash} MiB", f"{alone * BLOCK / (dram * MIB):.1f}"]
        for layout in ["log", "slots"]:
            both = simulate(trace, dram * MIB, "write-back", flash * MIB, layout)
            cells.append(
                f"{(both['metadata_bytes'] - alone) * BLOCK / (flash * MIB):.1f}"
            )
        row(*cells)
    print()
    row(
        "policy",
        "bytes per block",
        "of which for the policy's own lists, counts, ghosts and sketches",
    )
    row(*["---"] * 3)
    names = {}
    for policy in ask("policies")["policies"]:
        name = policy["name"]
        alone = simulate(trace, 4096 * MIB, "write-back", replacement=name)
        each = alone["metadata_bytes"] * BLOCK / (4096 * MIB)
        figures = f"{each:.1f}", f"{policy['bytes_per_block']:.1f}"
        names.setdefault(figures, []).append(name)
    for figures in sorted(names, key=lambda both: float(both[0])):
        row(", ".join(names[figures]), *figures)


def backing(trace):
    """Operations of the backing store, a disk, with eight requests in flight."""
    reads, writes = "reads from the disk", "writes to the disk"
    row("tiers", "write policy", "requests/s", reads, writes, "KiB per write")
    row(*["---"] * 6)
    for name, sizes in [
        ("64 MiB of memory", (64 * MIB,)),
        ("16 MiB of memory, 256 MiB of flash, log", (16 * MIB, 256 * MIB, "log")),
        ("16 MiB of memory, 256 MiB of flash, slots", (16 * MIB, 256 * MIB, "slots")),
    ]:
        for policy in ["write-through", "write-back"]:
            dram, *flash = sizes
            pace = ("--queue-depth", "8")
            result = simulate(trace, dram, policy, *flash, pace=pace)
            devices = result["component_latency_us"]
            reads, writes = (
                devices[f"backing_{way}"]["count"] for way in ["read", "write"]
            )
            kib = result["backing"]["write_bytes"] / writes / 1024
            rate = result["throughput"]["requests_per_s"]
            row(name, policy, f"{rate:.0f}", f"{reads:,}", f"{writes:,}", f"{kib:.0f}")


# Latencies of block accesses in microseconds, from the catalogue: read and write of tier 1, tier 2
# and the backing store.
SLOW = ((0.0619, 0.0619), (18.18, 33.33), (1661.1, 1037.3))
FAST = ((0.0619, 0.0619), (1.82, 2.0), (18.18, 33.33))


def formulas(*traces):
    """How far the simulated cache deviates from the planner's formulas, with slots and as a log."""
    row(
        "trace",
        "policy",
        "memory + flash",
        "hits, tier 1",
        "hits, tier 2",
        "demotions",
        "write-backs",
        "time, SlowHDD",
        "time, SlowSSD",
        "written to flash",
    )
    row(*["---"] * 3, *["---:"] * 7)
    synthetic = {
        "zipf": "zipf:blocks=60k,theta=1,requests=400k,write=0.25,seed=1",
        "zoned": "zoned:zones=0.1@0.8/0.9@0.2,blocks=60k,requests=400k,write=0.5,seed=2",
    }
    for name, spec in synthetic.items():
        run = [FOREBAY, "-q", "trace", "synth", spec, "-o", f"{name}.parquet"]
        subprocess.run(run, check=True, stdout=2)
    for trace in [*traces, *(f"{name}.parquet" for name in synthetic)]:
        accesses = list(block_accesses(trace))
        for policy in ["write-through", "write-back"]:
            for dram, flash in [(8, 64), (16, 128), (64, 128), (32, 512)]:
                if len({block for block, _ in accesses}) * BLOCK < flash * MIB:
                    continue
                off = []
                for layout in ["slots", "log"]:
                    answer = simulate(
                        trace, dram * MIB, policy, flash * MIB, layout, volatile=True
                    )
                    off.append(deviations(trace, accesses, policy, answer))
                cells = (f"{a} / {b}" for a, b in zip(*off, strict=True))
                row(name_of(trace), policy, f"{dram} + {flash} MiB", *cells)


def deviations(trace, accesses, policy, answer):
    sizes = answer["capacity_blocks"]["tier1"], answer["capacity_blocks"]["tier2"]
    expected = by_formulas(trace, accesses, policy, *sizes)
    found = by_simulation(policy, answer)
    for key in ["tier1", "tier2", "demotions", "write_backs"]:
        yield deviation(found[key], expected[key])
    for devices in [SLOW, FAST]:
        yield deviation(
            device_time(found, devices, policy), device_time(expected, devices, policy)
        )
    yield deviation(found["written"], expected["written"])


def deviation(found, expected):
    return f"{100 * (found / expected - 1):+.1f}" if expected else "-"


def by_formulas(trace, accesses, policy, tier1, tier2):
    """The counts for tiers of these sizes, according to docs/planning-reference.md."""
    points, document = curve(trace, at=[tier1, tier1 + tier2])
    first, both = (at_or_last(points, size) for size in (tier1, tier1 + tier2))
    demotions = document["accesses"] - first["hits"]
    counts = {
        "tier1": first["hits"],
        "tier2": both["hits"] - first["hits"],
        "read1": first["read_hits"],
        "read2": both["read_hits"] - first["read_hits"],
        "read_misses": document["reads"] - both["read_hits"],
        "writes": document["accesses"] - document["reads"],
        # The cache begins empty: filling memory demotes nothing.
        "demotions": demotions - tier1,
        "written": demotions - tier1,
        "write_backs": 0,
    }
    if policy == "write-back":
        counts["write_backs"] = dirtied(accesses, tier1 + tier2)
    return counts


def dirtied(accesses, size):
    """Counts the writes that miss, or hit a clean block, in an LRU cache of `size` blocks."""
    held, count = OrderedDict(), 0
    for block, written in accesses:
        dirty = held.pop(block, False)
        count += written and not dirty
        held[block] = dirty or written
        if len(held) > size:
            held.popitem(last=False)
    return count


def by_simulation(policy, answer):
    hits, misses, events = answer["hits"], answer["misses"], answer["events"]
    back = events["destaged"] + answer["dirty_blocks"]
    return {
        "tier1": sum(hits["tier1"].values()),
        "tier2": sum(hits["tier2"].values()),
        "read1": hits["tier1"]["read"],
        "read2": hits["tier2"]["read"],
        "read_misses": misses["read"],
        "writes": sum(tier["write"] for tier in [*hits.values(), misses]),
        # Blocks that left memory with a record on flash; not all of these records were written for
        # that.
        "demotions": events["left_on_flash"],
        "written": answer["flash"]["payload_bytes"] / BLOCK,
        "write_backs": back if policy == "write-back" else 0,
    }


def device_time(counts, devices, policy):
    """Microseconds for which all devices are busy, by the rates of the formulas."""
    (r1, w1), (r2, w2), (rs, ws) = devices
    to_memory = counts["writes"] + counts["read2"] + counts["read_misses"]
    stored = counts["writes"] if policy == "write-through" else counts["write_backs"]
    return (
        r1 * (counts["read1"] + counts["demotions"])
        + w1 * to_memory
        + r2 * (counts["read2"] + counts["write_backs"])
        + w2 * counts["written"]
        + rs * counts["read_misses"]
        + ws * stored
    )


def cydonia(*traces):
    """Every combination of the catalogue with 50 budgets, from one that buys little to one that
    holds all data.
    """
    row(
        "",
        "mean excess latency",
        "two tiers are best, but Cydonia finds a single tier",
    )
    row(*["---"] * 3)
    for policy in ["write-through", "write-back"]:
        excess, missed, two_tiers = [], 0, 0
        for trace in traces:
            given = [
                trace,
                "--budget",
                "100%",
                "--sweep",
                "50",
                "--policy",
                policy,
                "--wear-max",
                "none",
                "--method",
            ]
            best = choices(ask("plan", *given, "exhaustive"))
            found = choices(ask("plan", *given, "cydonia"))
            for key, (least, single) in best.items():
                latency, gave_up = found[key]
                excess.append(latency / least - 1)
                two_tiers += not single
                missed += gave_up and not single
        mean = 100 * sum(excess) / len(excess)
        row(policy, f"{mean:.2f} %", f"{missed:,} of {two_tiers:,}")


def study(*traces):
    """Shares of budgets in percent: with write-through / with write-back."""

    def both(key, of, of_all=None):
        cells = []
        for summary in of:
            value = summary[key]
            if of_all:
                value = value / summary[of_all]
            cells.append("-" if value is None else f"{100 * value:.1f}")
        return " / ".join(cells)

    def shares(of):
        keys = ["single", "pyramidal", "non_pyramidal"]
        return [both(key, of, "points") for key in keys]

    document = ask("plan", *traces, "--study")
    row("trace", "distinct data", "single", "pyramidal", "non-pyramidal", "Cydonia")
    row("---", *["---:"] * 5)
    for path, trace in zip(traces, document["traces"], strict=True):
        of = trace["policies"]
        size = f"{trace['footprint_bytes'] / MIB:,.0f} MiB"
        row(name_of(path), size, *shares(of), both("cydonia_excess", of))
    row(
        "all",
        "",
        *shares(document["policies"]),
        both("cydonia_excess", document["policies"]),
    )
    print()
    row(
        "combination",
        "single",
        "pyramidal",
        "non-pyramidal",
        "faster, pyramidal",
        "faster, non-pyramidal",
        "faster at most",
        "Cydonia",
    )
    row("---", *["---:"] * 7)
    for of in zip(*(p["combinations"] for p in document["policies"]), strict=True):
        name = f"{' + '.join(of[0]['tiers'])} / {of[0]['backing']}"
        gains = ["pyramidal_reduction", "non_pyramidal_reduction", "reduction_max"]
        row(name, *shares(of), *(both(key, of) for key in [*gains, "cydonia_excess"]))


def choices(document):
    """Latency, and whether the choice is a single tier, for each budget and combination."""
    found = {}
    for plan in document["sweep"]:
        for choice in plan["choices"]:
            devices = [tier["device"] for tier in choice["tiers"]] + [choice["backing"]]
            key = (plan["budget_usd"], *devices)
            found[key] = (choice["mean_latency_us"], choice["class"] == "single")
    return found


TABLES = {
    "lru": lru,
    "kept": kept,
    "rates": rates,
    "kept-with": kept_with,
    "promotion": promotion,
    "promotion-phases": promotion_phases,
    "copies": copies,
    "replacement": replacement,
    "admission": admission,
    "relations": relations,
    "cells": cells,
    "etica": etica,
    "bypass": bypass,
    "pod": pod,
    "sampling": sampling,
    "miniature": miniature,
    "sample": sample,
    "sample-regions": regions,
    "sample-reduced": reduced,
    "sample-default": by_default,
    "sample-runs": sample_runs,
    "info": info,
    "contents": contents,
    "memory": memory,
    "backing": backing,
    "formulas": formulas,
    "cydonia": cydonia,
    "consolidate": consolidate,
    "study": study,
}


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in TABLES:
        sys.exit(__doc__)
    # Names of volumes are not files.
    words = list(traces(sys.argv[2:]))
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        TABLES[sys.argv[1]](*words)


if __name__ == "__main__":
    main()
