#!/usr/bin/env python3
"""Draws the picture of docs/policies.md: miss ratio by size for every policy, one panel for each
trace.

    cargo build --release -p forebay
    bench/policies-figure.py OUT.svg [NAME=]TRACE...

The policies are those that a configuration can name, and Belady's optimum. Sizes are shares of the
distinct 4 KiB blocks of the trace, evenly spaced on a logarithmic scale. `FOREBAY` names another
binary.
"""

import html
import math
import sys
from pathlib import Path

from common import ask, compared_policies, name_of, traces

# Colours of Okabe and Ito, which colour-blind readers can distinguish; curves of the same colour
# differ in dashes. LRU, the reference, and the optimum are black and wide, and drawn last.
STYLES = {
    "fifo": ("#999999", 1.2, ""),
    "random": ("#999999", 1.2, "2 2"),
    "clock": ("#999999", 1.2, "6 2"),
    "lfu": ("#56b4e9", 1.2, ""),
    "sieve": ("#56b4e9", 1.4, "5 2"),
    "priority-lru": ("#0072b2", 1.4, "5 2"),
    "hr-lru": ("#0072b2", 1.4, ""),
    "arc": ("#e69f00", 1.4, ""),
    "2q": ("#cc79a7", 1.4, ""),
    "w-tinylfu": ("#009e73", 1.4, ""),
    "s3-fifo": ("#d55e00", 1.6, ""),
    "lru": ("#000000", 2.2, ""),
    "opt": ("#000000", 2.2, "5 3"),
}
POINTS = 17
SMALLEST_PERCENT = 0.1
WIDTH, COLUMNS = 960, 3
PANEL, ABOVE, LEFT = 235, 78, 40
INK, GRID = "#374151", "#e5e7eb"


def main():
    words = sys.argv[1:]
    if len(words) < 2:
        sys.exit(__doc__)
    policies = [*compared_policies(), "opt"]
    unknown = [name for name in policies if name not in STYLES]
    if unknown:
        sys.exit(f"give STYLES a line for {', '.join(unknown)}")
    names = [name for name in STYLES if name in policies]
    height = ABOVE + PANEL * math.ceil(len(words[1:]) / COLUMNS) - 16
    what = "Miss ratio by cache size, as a share of the trace's blocks; each panel has its own scale"
    out = [text(LEFT, 18, what, size=13), *legend(names)]
    for number, path in enumerate(traces(words[1:])):
        x = LEFT + number % COLUMNS * (WIDTH - 10) / COLUMNS
        out += panel(
            x, ABOVE + number // COLUMNS * PANEL, name_of(path), curves(path, names)
        )
    body = "\n".join(out)
    Path(words[0]).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{body}\n</svg>\n',
        encoding="utf-8",
    )


def curves(path, names):
    """For each policy: shares of the blocks in percent, with their miss ratios."""
    footprint = ask("trace", "info", path)["footprint_blocks"]["all"]
    growth = math.log(100 / SMALLEST_PERCENT) / (POINTS - 1)
    shares = [SMALLEST_PERCENT * math.exp(growth * step) for step in range(POINTS)]
    sizes = sorted({max(1, round(footprint * share / 100)) for share in shares})
    at = ",".join(str(blocks * 4096) for blocks in sizes)
    document = ask(
        "mrc", path, "--policy", ",".join(names), "--points", "2", "--at", at
    )
    found = {}
    for curve in document["policies"]:
        points = {p["size_blocks"]: p["miss_ratio"] for p in curve["points"]}
        found[curve["policy"]] = [
            (100 * size / footprint, points[size]) for size in sizes
        ]
    return found


def legend(names):
    out, x, y = [], LEFT, 42
    for name in reversed(names):
        colour, width, dash = STYLES[name]
        wide = 42 + 7.6 * len(name)
        if x + wide > WIDTH:
            x, y = LEFT, y + 20
        out += [
            line([(x, y - 4), (x + 24, y - 4)], colour, width + 0.4, dash),
            text(
                x + 29, y, name, weight="bold" if name in ("lru", "opt") else "normal"
            ),
        ]
        x += wide
    return out


def panel(x0, top, name, by_policy):
    x1, y1 = x0 + (WIDTH - 10) / COLUMNS - LEFT - 12, top + 22
    y0 = y1 + PANEL - 66
    ratios = [ratio for points in by_policy.values() for _, ratio in points]
    low, high = math.floor(min(ratios) * 10) / 10, math.ceil(max(ratios) * 10) / 10
    step = 0.1 if high - low <= 0.5 else 0.2

    def at(share):
        whole = math.log(100 / SMALLEST_PERCENT)
        return x0 + (x1 - x0) * math.log(share / SMALLEST_PERCENT) / whole

    def up(ratio):
        return y0 - (y0 - y1) * (ratio - low) / (high - low)

    out = [text(x0, top + 12, name, size=13, weight="bold")]
    for tick in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        ratio = tick * step
        out += [
            line([(x0, up(ratio)), (x1, up(ratio))], GRID),
            text(x0 - 6, up(ratio) + 4, f"{ratio:.1f}", "end", 11),
        ]
    for share in (0.1, 1, 10, 100):
        out += [
            line([(at(share), y1), (at(share), y0 + 4)], GRID),
            text(at(share), y0 + 17, f"{share:g} %", "middle", 11),
        ]
    for policy, points in by_policy.items():
        colour, width, dash = STYLES[policy]
        points = [
            (at(max(share, SMALLEST_PERCENT)), up(ratio)) for share, ratio in points
        ]
        out.append(line(points, colour, width, dash))
    return out


def text(x, y, words, anchor="start", size=12, weight="normal"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{INK}" font-weight="{weight}">{html.escape(words)}</text>'
    )


def line(points, colour, width=1.0, dash=""):
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" '
        f'stroke-width="{width}" stroke-linejoin="round"{dash}/>'
    )


if __name__ == "__main__":
    main()
