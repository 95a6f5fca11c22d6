#!/usr/bin/env python3
"""Draws the picture of docs/partitioning.md: each volume's curve and share, and
the simulated result of these shares, of equal shares and of one shared cache.

    bench/partition-figure.py OUT.svg TRACE... -- [OPTIONS of forebay partition]

FOREBAY=path of the binary (target/release/forebay). The same figures come out on every machine.
"""

import html
import json
import math
import os
import subprocess
import sys

FOREBAY = os.environ.get("FOREBAY", "target/release/forebay")
COLOURS = ["#3366cc", "#dc6a12", "#109652", "#9b3fb5", "#c8324b", "#6b7280"]
WIDTH, HEIGHT = 960, 330
MIB = 1 << 20


def forebay(*args):
    return json.loads(
        subprocess.run(
            [FOREBAY, *args, "--json", "-q"], check=True, capture_output=True, text=True
        ).stdout
    )


def text(x, y, words, anchor="start", size=12, colour="#374151", weight="normal"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{colour}" font-weight="{weight}">{html.escape(words)}</text>'
    )


def line(points, colour, width=1.0, dash=""):
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" '
        f'stroke-width="{width}"{dash}/>'
    )


def size(bytes_):
    for unit, of in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1024)):
        if bytes_ >= of:
            return f"{bytes_ / of:.3g} {unit}"
    return "0"


def duration(us):
    return f"{us / 1000:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"


def curves(plan, mrc):
    """The curves, on the left: miss ratio by size on a logarithmic scale."""
    x0, x1, y0, y1 = 60, 540, 280, 50
    low = 16 * 1024
    high = max(v["useful_bytes"] for v in plan["volumes"]) * 1.3

    def at(size):
        return x0 + (x1 - x0) * math.log(max(size, low) / low) / math.log(high / low)

    def up(ratio):
        return y0 - (y0 - y1) * ratio

    out = [
        text(
            x0,
            24,
            "Request miss ratio by size of the share",
            size=14,
            weight="bold",
        )
    ]
    for tick in range(0, 11, 2):
        out += [
            line([(x0, up(tick / 10)), (x1, up(tick / 10))], "#e5e7eb"),
            text(x0 - 8, up(tick / 10) + 4, f"{tick / 10:.1f}", "end"),
        ]
    mark = low
    while mark < high:
        out += [
            line([(at(mark), y0), (at(mark), y0 + 4)], "#6b7280"),
            text(at(mark), y0 + 18, size(mark), "middle"),
        ]
        mark *= 8
    by_name = {v["volume"]: v["points"] for v in mrc["volumes"]}
    block = mrc["block_size"]
    for number, volume in enumerate(plan["volumes"]):
        colour = COLOURS[number % len(COLOURS)]
        points = [
            (p["size_blocks"] * block, p["miss_ratio"])
            for p in by_name[volume["volume"]]
        ]
        last = points[-1][1]
        steps = [(at(b), up(r)) for b, r in points if b >= low] + [(x1, up(last))]
        out.append(line(steps, colour, 2))
        share = volume["dram_bytes"] + volume["flash_bytes"]
        out.append(
            f'<circle cx="{at(share):.1f}" cy="{up(1 - volume["hit_ratio"]):.1f}" r="5" '
            f'fill="{colour}" stroke="white" stroke-width="1.5"/>'
        )
        out.append(
            text(
                x0 + 12,
                y0 - 12 - 17 * (len(plan["volumes"]) - 1 - number),
                f"{volume['volume']}: {size(share)}",
                colour=colour,
                weight="bold",
            )
        )
    return out


def bars(plan):
    """The bars, on the right: the objective of each division."""
    x0, x1, y0 = 690, 900, 70
    found = {
        "name": "found",
        "objective": plan["objective"],
        "simulated_objective": plan["simulated_objective"],
    }
    rows = [
        (name, division)
        for name, division in zip(
            ("these shares", "equal shares", "one shared cache"),
            [found] + plan["baselines"],
        )
    ]
    most = max(d[k] for _, d in rows for k in ("objective", "simulated_objective"))
    out = [text(600, 24, "Sum of mean latencies", size=14, weight="bold")]
    for number, (name, division) in enumerate(rows):
        top = y0 + number * 72
        out.append(text(x0 - 10, top + 24, name, "end"))
        for at, (field, colour) in enumerate(
            (("objective", "#c7d2e8"), ("simulated_objective", "#3366cc"))
        ):
            value = division[field]
            out.append(
                f'<rect x="{x0}" y="{top + at * 22}" width="{(x1 - x0) * value / most:.1f}" '
                f'height="18" fill="{colour}"/>'
            )
            out.append(
                text(
                    x0 + 6,
                    top + at * 22 + 13,
                    f"{'predicted' if at == 0 else 'simulated'} {duration(value)}",
                    colour="#1f2937" if at == 0 else "white",
                    size=11,
                )
            )
    return out


def main():
    try:
        split = sys.argv.index("--")
        out, traces, options = sys.argv[1], sys.argv[2:split], sys.argv[split + 1 :]
    except (ValueError, IndexError):
        sys.exit(__doc__)
    plan = forebay("partition", *traces, "--evaluate", "simulate", *options)
    mrc = forebay("mrc", *traces, "--request-level", "--per-volume")
    body = "\n".join(curves(plan, mrc) + bars(plan))
    with open(out, "w", encoding="utf-8") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
        )
    for volume in plan["volumes"]:
        print(
            f"{volume['volume']:<20} {volume['flash_bytes']:>12} {volume['hit_ratio']:.3f} "
            f"{volume['simulated_hit_ratio']:.3f} {volume['predicted_latency_us']:>12.0f} "
            f"{volume['simulated_latency_us']:>12.0f}"
        )
    print(
        "converged" if plan["converged"] else "not converged",
        "after",
        len(plan["rounds"]),
        "plans",
    )


main()
