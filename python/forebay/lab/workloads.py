"""The synthetic workloads of `forebay advise`: those for training, and those that validate
the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable


def workloads() -> list[tuple[str, str]]:
    """The training workloads, each with its family. They vary in popularity and in the share of
    writes.
    """
    made = []
    mixes = itertools.product((0, 0.3, 0.8), ("4KiB", "16KiB", "4KiB@0.7/64KiB@0.3"))
    for seed, (write, size) in enumerate(mixes):
        common = f"write={write},size={size}"
        end = f",requests=30k,seed={seed + 1}"
        for theta in (0.7, 1.1):
            made.append(
                ("zipf", f"zipf:blocks={20 + 5 * seed}k,theta={theta},{common}{end}")
            )
        zones = ("0.1@0.85/0.9@0.15", "0.3@0.7/0.7@0.3")[seed % 2]
        made += [
            ("uniform", f"uniform:blocks={12 + 4 * seed}k,{common}{end}"),
            ("zoned", f"zoned:blocks={20 + 3 * seed}k,zones={zones},{common}{end}"),
            ("zoned", f"zoned:blocks=24k,zones={zones},scatter=no,{common}{end}"),
            ("loop", f"sequential:blocks={10 + 3 * seed}k,{common}{end}"),
            ("runs", f"sequential:blocks=60k,run={16 << seed % 5},{common}{end}"),
            (
                "flood",
                f"zipf:weight=6,blocks={12 + seed}k,{common} + "
                f"sequential:weight=4,start=1GiB,blocks=60k,{common}{end}",
            ),
            (
                "phases",
                f"zipf:blocks=15k,theta=0.9,{common},requests=15k then "
                f"zipf:blocks=15k,theta=0.9,start=256MiB,{common},requests=15k,seed={seed + 1}",
            ),
        ]
    made += _families(_MIXES[0], 101, 0.9, "0.2@0.8/0.8@0.2", 24, 5)
    made += _families(_MIXES[1], 201, 1.0, "0.05@0.6/0.95@0.4", 12, 3)
    made += _families(_MIXES[3], 401, 1.2, "0.1@0.5/0.9@0.5", 40, 4)
    made += _mixed(_MIXES[0], 501, 0.9)
    made += _mixed(_MIXES[3], 601, 1.1)
    # Miniatures see only a part of these.
    made += _families(_LARGER, 801, 0.9, "0.1@0.7/0.9@0.3", 28, 6, scale=4)
    return made + _mixed(_LARGER, 901, 1.0, scale=4)


#: Shares of writes, and request sizes, in four sets: the third is held out, the others are for the
#: training. With only a few shares of writes, a tree would put its thresholds anywhere between
#: them.
_MIXES = (
    tuple(itertools.product((0.15, 0.5), ("8KiB", "4KiB@0.5/32KiB@0.5"))),
    ((0.05, "4KiB"), (0.1, "16KiB"), (0.2, "8KiB"), (0.6, "4KiB@0.5/32KiB@0.5")),
    ((0.08, "12KiB"), (0.25, "4KiB@0.8/128KiB@0.2"), (0.4, "8KiB@0.5/24KiB@0.5"), (0.7, "32KiB")),
    ((0.03, "8KiB"), (0.12, "4KiB@0.9/64KiB@0.1"), (0.35, "4KiB"), (0.45, "16KiB@0.5/64KiB@0.5")),
)  # fmt: skip

#: The same for workloads with several times the blocks and requests.
_LARGER = ((0.1, "4KiB"), (0.3, "8KiB@0.7/32KiB@0.3"), (0.55, "16KiB"))


def held_out() -> list[tuple[str, str]]:
    """Workloads of the same families with other mixes and skews, which influence neither training
    nor any choice.
    """
    made = _families(_MIXES[2], 301, 0.8, "0.15@0.75/0.85@0.25", 20, 7)
    return made + _mixed(_MIXES[2], 701, 1.0)


def _families(
    mixes: Iterable[tuple[float, str]],
    seed: int,
    theta: float,
    zones: str,
    run: int,
    weight: int,
    scale: int = 1,
) -> list[tuple[str, str]]:
    """One workload of each family for each mix."""
    made = []
    for n, (write, size) in enumerate(mixes):
        common = f"write={write},size={size}"
        end = f",requests={30 * scale}k,seed={seed + n}"
        half = f"{common},requests={15 * scale}k"

        def k(blocks: int) -> str:
            return f"blocks={blocks * scale}k"

        made += [
            ("zipf", f"zipf:{k(18 + 7 * n)},theta={theta},{common}{end}"),
            ("uniform", f"uniform:{k(14 + 5 * n)},{common}{end}"),
            ("zoned", f"zoned:{k(30)},zones={zones},{common}{end}"),
            ("loop", f"sequential:{k(12 + 4 * n)},{common}{end}"),
            ("runs", f"sequential:{k(50)},run={run << n},{common}{end}"),
            (
                "flood",
                f"zipf:weight={weight},{k(14 + 2 * n)},{common} + "
                f"sequential:weight={10 - weight},start=1GiB,{k(50)},{common}{end}",
            ),
            (
                "phases",
                f"zipf:{k(18)},theta=1,{half} then "
                f"zipf:{k(12)},theta=0.8,start=512MiB,{half},seed={seed + n}",
            ),
        ]
    return made


def _mixed(
    mixes: Iterable[tuple[float, str]], seed: int, theta: float, scale: int = 1
) -> list[tuple[str, str]]:
    """Families with several kinds of access at once: a database with its log, recurring scans,
    tenants.
    """
    made = []
    for n, (write, size) in enumerate(mixes):
        common = f"write={write},size={size}"
        end = f",requests={30 * scale}k,seed={seed + n}"

        def k(blocks: int) -> str:
            return f"blocks={blocks * scale}k"

        part = f"zipf:{k(10 + 3 * n)},theta={theta},{common},requests={10 * scale}k"
        scan = f"sequential:{k(24)},start=1GiB,size=32KiB,requests={(3 + n) * scale}k"
        made += [
            (
                "log",
                f"zipf:weight={8 - n},{k(20 + 6 * n)},theta={theta},{common} + "
                f"sequential:weight={2 + n},start=1GiB,{k(40)},write=1,size=16KiB{end}",
            ),
            ("scans", f"{part} then {scan} then {part} then {scan},seed={seed + n}"),
            (
                "tenants",
                f"zipf:weight=5,{k(8)},theta={theta},{common} + "
                f"zoned:weight=3,start=1GiB,{k(16 + 4 * n)},zones=0.2@0.8/0.8@0.2,{common} + "
                f"uniform:weight=2,start=2GiB,{k(12 + 4 * n)},write={write},size=4KiB{end}",
            ),
        ]
    return made
