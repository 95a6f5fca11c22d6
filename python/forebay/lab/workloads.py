"""The synthetic workloads of `forebay advise`: those of its training, and those that check it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable


def workloads() -> list[tuple[str, str]]:
    """Families and synthetic workloads of the training: what is popular, and how much is written."""
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
    return made + _families(_MIXES[1], 201, 1.0, "0.05@0.6/0.95@0.4", 12, 3)


#: Shares of writes and sizes of requests: two sets for the training, one that is held out. A tree that knew
#: few shares of writes only would put its thresholds anywhere between them.
_MIXES = (
    tuple(itertools.product((0.15, 0.5), ("8KiB", "4KiB@0.5/32KiB@0.5"))),
    ((0.05, "4KiB"), (0.1, "16KiB"), (0.2, "8KiB"), (0.6, "4KiB@0.5/32KiB@0.5")),
    ((0.08, "12KiB"), (0.25, "4KiB@0.8/128KiB@0.2"), (0.4, "8KiB@0.5/24KiB@0.5"), (0.7, "32KiB")),
)  # fmt: skip


def held_out() -> list[tuple[str, str]]:
    """Workloads of the same families, with other mixes and skews, on which nothing is trained or chosen."""
    return _families(_MIXES[2], 301, 0.8, "0.15@0.75/0.85@0.25", 20, 7)


def _families(
    mixes: Iterable[tuple[float, str]],
    seed: int,
    theta: float,
    zones: str,
    run: int,
    weight: int,
) -> list[tuple[str, str]]:
    """A workload of each family for each mix."""
    made = []
    for n, (write, size) in enumerate(mixes):
        common = f"write={write},size={size}"
        end = f",requests=30k,seed={seed + n}"
        second = f"start=512MiB,{common},requests=15k,seed={seed + n}"
        made += [
            ("zipf", f"zipf:blocks={18 + 7 * n}k,theta={theta},{common}{end}"),
            ("uniform", f"uniform:blocks={14 + 5 * n}k,{common}{end}"),
            ("zoned", f"zoned:blocks=30k,zones={zones},{common}{end}"),
            ("loop", f"sequential:blocks={12 + 4 * n}k,{common}{end}"),
            ("runs", f"sequential:blocks=50k,run={run << n},{common}{end}"),
            (
                "flood",
                f"zipf:weight={weight},blocks={14 + 2 * n}k,{common} + "
                f"sequential:weight={10 - weight},start=1GiB,blocks=50k,{common}{end}",
            ),
            (
                "phases",
                f"zipf:blocks=18k,theta=1,{common},requests=15k then "
                f"zipf:blocks=12k,theta=0.8,{second}",
            ),
        ]
    return made
