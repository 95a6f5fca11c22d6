#!/usr/bin/env python3
"""Prints the tables of docs/papers.md from the results of `make papers`.

bench/papers.py [TABLE...]          all tables, or those named: classes, cydonia, tiers, lines, promotion, levels,
                                    pages, policies
bench/papers.py --check             compare all with the page; if lines differ, print them and exit with status 1

PAPERS=directory that contains one for each study (target/papers).
"""

import contextlib
import io
import os
import sys
from pathlib import Path

import polars as pl
from common import PAPERS, row

HOME = Path(os.environ.get("PAPERS", "target/papers"))
PAGE = Path(__file__).parent.parent / "docs/papers.md"
REQUESTS = "throughput.requests_per_s"


def rows(study):
    table = pl.read_parquet(HOME / study / "rows.parquet")
    return table.filter(pl.col("status") == "ok")


def heads(*names):
    print()
    row(*names)
    row("---", *["---:"] * (len(names) - 1))


def classes(table):
    budget, kind = pl.col("options.budget"), pl.col("choices.0.class")
    low = ~budget.is_in(["60%", "80%", "100%"])
    disk = pl.col("options.backing") != "SlowSSD"
    heads(
        "budgets",
        "plans",
        "two tiers win",
        "of these, pyramidal",
        "latency saved, median",
    )
    for name, chosen in (
        ("hard disks, up to 40 %", low & disk),
        ("SlowSSD, up to 40 %", low & ~disk),
        ("60 % or more", ~low),
    ):
        own = table.filter(chosen)
        two = own.filter(kind != "single")
        pyramidal = two.filter(kind == "pyramidal").height
        less = two["choices.0.latency_reduction"].median()
        shown = "-" if less is None else f"{less:.0%}"
        row(name, own.height, f"{two.height / own.height:.0%}", pyramidal, shown)


def cydonia(table):
    keys = ["trace", "options.budget", "options.policy"]
    heads(
        "write policy",
        "plans",
        "worse, mean",
        "worse, at most",
        "sizes tried",
        "all sizes",
    )
    for policy in ("write-through", "write-back"):
        own = table.filter(pl.col("options.policy") == policy)
        wide = own.pivot(
            on="options.method", index=keys, values="choices.0.mean_latency_us"
        )
        off = wide["cydonia"] / wide["exhaustive"] - 1
        tried = dict(
            own.group_by("options.method").agg(pl.col("evaluations").mean()).rows()
        )
        shares = f"{tried['cydonia']:.0f}", f"{tried['exhaustive']:.0f}"
        row(policy, wide.height, f"{off.mean():.2%}", f"{off.max():.2%}", *shares)


def tiers(table):
    keys = ["trace", "cache.dram", "options.queue_depth"]
    flash = pl.col("flash.size")
    one = table.filter(flash == "unset").select(*keys, pl.col(REQUESTS).alias("one"))
    two = table.filter(flash != "unset").join(one, on=keys)
    two = two.with_columns((pl.col(REQUESTS) / pl.col("one")).alias("gain"))
    heads(
        "queue depth",
        "pairs",
        "two tiers faster",
        "neither",
        "one tier faster",
        "lowest",
        "median",
        "highest",
    )
    for (depth,), own in sorted(two.group_by("options.queue_depth")):
        gain = own["gain"]
        more, less = (gain >= 1.1).mean(), (gain <= 0.9).mean()
        shares = (f"{share:.0%}" for share in (more, 1 - more - less, less))
        ends = (f"{g:.2f}" for g in (gain.min(), gain.median(), gain.max()))
        row(depth, own.height, *shares, *ends)


def lines(table):
    table = table.filter(pl.col("replacement.policy") == "lru")
    sizes = ["4KiB", "8KiB", "16KiB", "32KiB", "64KiB"]
    wide = table.pivot(on="cache.block_size", index="trace", values=REQUESTS)
    heads("requests", *sizes)
    for one in wide.to_dicts():
        most = max(one[size] for size in sizes)
        row(one["trace"], *(f"{one[size] / most:.2f}" for size in sizes))


def promotion(table):
    wide = table.pivot(on="admission.hits", index="trace", values=REQUESTS)
    wrote = table.pivot(
        on="admission.hits", index="trace", values="tier2_bytes_written"
    )
    counts = [name for name in wide.columns if name != "trace"]
    heads("accesses before promotion", *counts)
    for one, flash in zip(wide.to_dicts(), wrote.to_dicts(), strict=True):
        shares = (
            f"{one[n] / one['1']:.2f}, {flash[n] / flash['1']:.0%}" for n in counts
        )
        row(one["trace"], *shares)


def levels(table):
    latency, wrote = (
        table.pivot(on="cache.relation", index=["trace", "flash.size"], values=name)
        for name in ("latency_us.all.mean", "tier2_bytes_written")
    )
    names = ["eci", "etica-npe", "etica", "exclusive", "inclusive"]
    heads("requests, flash", *names)
    for one, flash in zip(latency.to_dicts(), wrote.to_dicts(), strict=True):
        shares = (
            f"{one[n] / one['eci']:.2f}, {flash[n] / flash['eci']:.0%}" for n in names
        )
        trace = Path(one["trace"]).name.split(".par")[0]
        row(f"{trace}; {one['flash.size']}", *shares)


def pages(table):
    hits, latency, wrote = (
        table.pivot(
            on="cache.relation", index=["trace", "options.backing_device"], values=name
        )
        for name in ("hit_ratio", "latency_us.all.mean", "tier2_bytes_written")
    )
    names = ["layered", "dual", "exclusive"]
    heads("requests, store", *names)
    every = zip(hits.to_dicts(), latency.to_dicts(), wrote.to_dicts(), strict=True)
    for hit, one, flash in every:
        cells = (
            f"{hit[n]:.1%}, {one[n] / one['layered']:.2f}, "
            f"{flash[n] / flash['layered']:.0%}"
            for n in names
        )
        trace = Path(one["trace"]).name.split(".par")[0]
        row(f"{trace}; {one['options.backing_device']}", *cells)


def policies(table):
    own = table.filter(pl.col("cache.dram") == "10%")
    wide = own.pivot(on="replacement.policy", index="trace", values="hit_ratio")
    names = wide.columns[1:]
    heads("hit ratio at 10%", *names)
    for one in wide.to_dicts():
        name = Path(one["trace"]).name.split(".par")[0]
        row(name, *(f"{one[policy]:.3f}" for policy in names))


TABLES = {
    "classes": classes,
    "cydonia": cydonia,
    "tiers": tiers,
    "lines": lines,
    "promotion": promotion,
    "levels": levels,
    "pages": pages,
    "policies": policies,
}


def tables(*names):
    for name in names or TABLES:
        TABLES[name](rows(PAPERS[name]))


def differences():
    """The table lines that only the page has, and those that only the studies give."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        tables()
    page, made = (
        [line for line in text.splitlines() if line.startswith("|")]
        for text in (PAGE.read_text(), printed.getvalue())
    )
    old = [f"- {line}" for line in page if line not in made]
    return old + [f"+ {line}" for line in made if line not in page]


if unknown := [name for name in sys.argv[1:] if name not in [*TABLES, "--check"]]:
    sys.exit(f"there is no table {', '.join(unknown)}\n\n{__doc__}")
elif "--check" not in sys.argv:
    tables(*sys.argv[1:])
elif found := differences():
    sys.exit("\n".join([f"{PAGE} differs from the studies:", *found]))
else:
    print(f"{PAGE} matches the studies")
