"""Series: the events in each interval of a run, for pictures over time.

A study with `series = true` keeps the intervals of each simulation, replay and load in a separate file,
`series/CELL.parquet`. The intervals of simulations contain hits and dirty blocks; those of replays and loads
contain only requests and latencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from forebay._run import ForebayError

#: The columns that can be drawn over time.
COLUMNS = (
    "requests_per_s",
    "miss_ratio",
    "dirty_blocks",
    "latency_us.mean",
    "latency_us.p99",
)
_HITS = [
    f"hits_{where}_{op}"
    for where in ("tier1", "tier2", "delayed")
    for op in ("read", "write")
]
_MISSES = ["misses_read", "misses_write"]


class Series:
    """The intervals of a study's cells, read when they are drawn."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, pl.DataFrame] = {}

    def path(self, cell: str) -> Path:
        return self._directory / f"{cell}.parquet"

    def of(self, cells: Sequence[str], every_s: float | None = None) -> pl.DataFrame:
        """The rows of the cells that have a series, with a column `cell` in front. With `every_s`,
        joined into intervals of that many seconds.
        """
        frames = []
        for cell in cells:
            if not self.path(cell).exists():
                continue
            if cell not in self._known:
                self._known[cell] = intervals(pl.read_parquet(self.path(cell)))
            rows = self._known[cell]
            rows = rows if every_s is None else joined(rows, every_s)
            frames.append(rows.select(pl.lit(cell).alias("cell"), *_DRAWN))
        if not frames:
            what = "no cell has a series: set `series = true` to keep the series of simulate, replay and load"
            raise ForebayError(f"figure: {what}", 2)
        return pl.concat(frames)


def intervals(rows: pl.DataFrame) -> pl.DataFrame:
    """The intervals of a simulation or a replay, with the same column names."""
    if "length_s" in rows.columns:
        nothing = pl.lit(None, pl.Int64)
        made = rows.select(
            "start_s",
            (pl.col("start_s") + pl.col("length_s")).alias("end_s"),
            pl.col("requests").cast(pl.Int64),
            *(nothing.alias(name) for name in ("hits", "misses", "dirty_blocks")),
            pl.col("mean_us").alias("latency_us.mean"),
            pl.col("p99_us").alias("latency_us.p99"),
        )
    else:
        made = rows.select(
            "start_s",
            "end_s",
            pl.col("requests").cast(pl.Int64),
            pl.sum_horizontal(_HITS).cast(pl.Int64).alias("hits"),
            pl.sum_horizontal(_MISSES).cast(pl.Int64).alias("misses"),
            pl.col("dirty_blocks").cast(pl.Int64),
            pl.col("latency_us_mean").alias("latency_us.mean"),
            pl.col("latency_us_p99").alias("latency_us.p99"),
        )
    # An interval without requests has no latency.
    quiet = pl.col("requests") == 0
    latencies = [pl.col(name) for name in made.columns if name.startswith("latency")]
    return _ratios(
        made.with_columns(
            pl.when(quiet).then(None).otherwise(latency).name.keep()
            for latency in latencies
        )
    )


def joined(rows: pl.DataFrame, every_s: float) -> pl.DataFrame:
    """Joins rows into intervals of `every_s` seconds; each row belongs to the interval in which it
    begins.

    The 99th percentile of several rows is unknown, so it becomes null in all rows. Rows longer than
    `every_s` are not joined.
    """
    count, known = pl.col("requests"), pl.col("latency_us.mean").is_not_null()
    weighed = (pl.col("latency_us.mean") * count).sum() / count.filter(known).sum()
    sums = [_sum(name) for name in ("requests", "hits", "misses")]
    made = rows.group_by(
        (pl.col("start_s") / every_s).floor().alias("interval"), maintain_order=True
    ).agg(
        pl.col("start_s").min(),
        pl.col("end_s").max(),
        *sums,
        pl.col("dirty_blocks").last(),
        weighed.alias("latency_us.mean"),
        pl.lit(None, pl.Float64).alias("latency_us.p99"),
    )
    return _ratios(made.drop("interval"))


def _sum(name: str) -> pl.Expr:
    """The sum of a column; null if all its values are null."""
    own = pl.col(name)
    return pl.when(own.is_not_null().any()).then(own.sum())


def _ratios(rows: pl.DataFrame) -> pl.DataFrame:
    length, accesses = (
        pl.col("end_s") - pl.col("start_s"),
        pl.col("hits") + pl.col("misses"),
    )
    return rows.with_columns(
        pl.when(length > 0).then(pl.col("requests") / length).alias("requests_per_s"),
        pl.when(accesses > 0).then(pl.col("misses") / accesses).alias("miss_ratio"),
    )


_DRAWN = ("start_s", "end_s", "requests", "hits", "misses", *COLUMNS)
