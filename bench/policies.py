#!/usr/bin/env python3
"""Which replacement policy when: the table of docs/policies.md.

    cargo build --release -p forebay
    bench/policies.py [SHARE,...] TRACE...

Prints a Markdown table: for each trace and size, a share of its distinct 4 KiB blocks in percent
(1,5,10,25), the miss ratio of every policy that a configuration can name and of Belady's optimum,
the lower bound. The policy with the fewest misses is bold. The last rows show the mean of each
column, and how much more a policy misses than LRU in its worst case. `FOREBAY` names another
binary; NAME=TRACE, another name in the table.
"""

import sys
from pathlib import Path

from common import BLOCK, ask, compared_policies, name_of, row, traces

SHARES = [1, 5, 10, 25]


def main():
    words = sys.argv[1:]
    shares = SHARES
    if words and not Path(words[0]).exists() and words[0][0].isdigit():
        shares = [float(share) for share in words.pop(0).split(",")]
    if not words:
        sys.exit(__doc__)
    policies = compared_policies()
    row("trace", "share of blocks", *policies, "opt")
    row("---", "---:", *["---:"] * (len(policies) + 1))
    cases = []
    for trace in traces(words):
        cases += measure(trace, shares, policies)
    names = [*policies, "opt"]
    means = [sum(case[name] for case in cases) / len(cases) for name in names]
    row("mean", "", *(f"{mean:.3f}" for mean in means))
    worst = [max(case[name] - case["lru"] for case in cases) for name in names]
    row("worst, minus LRU's", "", *(f"{excess:+.3f}" for excess in worst))


def measure(path, shares, policies):
    """Prints the rows of one trace; returns the miss ratios of each by policy."""
    footprint = ask("trace", "info", path)["footprint_blocks"]["all"]
    sizes = [max(1, round(footprint * share / 100)) for share in shares]
    at = ",".join(str(blocks * BLOCK) for blocks in sizes)
    names = ",".join([*policies, "opt"])
    document = ask("mrc", path, "--policy", names, "--points", "2", "--at", at)
    assert document["distinct_blocks"] == footprint, (
        document["distinct_blocks"],
        footprint,
    )
    misses = {}
    for curve in document["policies"]:
        for point in curve["points"]:
            misses[curve["policy"], point["size_blocks"]] = point["miss_ratio"]
    for share, blocks in zip(shares, sizes):
        ratios = [f"{misses[policy, blocks]:.3f}" for policy in policies]
        best = min(ratios)
        cells = [f"**{ratio}**" if ratio == best else ratio for ratio in ratios]
        row(name_of(path), f"{share:g} %", *cells, f"{misses['opt', blocks]:.3f}")
    return [
        {name: misses[name, blocks] for name in [*policies, "opt"]} for blocks in sizes
    ]


if __name__ == "__main__":
    main()
