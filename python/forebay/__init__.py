"""Forebay's results as Polars data frames and Plotly figures.

Each function runs the ``forebay`` command of its name and returns the raw rows that the command
writes with ``--parquet``, unrounded. Keyword arguments are the command's options: ``per_volume=True``
is ``--per-volume``, ``block_size="64KiB"`` is ``--block-size 64KiB``; a list gives an option several
times, and ``None`` or ``False`` leaves the option out. :func:`run` returns all results at once: the document,
the rows and the figures.

>>> import forebay
>>> rows = forebay.mrc(EXAMPLE)
>>> rows.columns[:3]
['volume', 'size_bytes', 'read_hits']
"""

from forebay._run import ForebayError, Result, run
from forebay.frames import (
    consolidate,
    features,
    mrc,
    partition,
    plan,
    replay,
    sample,
    simulate,
    trace_info,
)
from forebay.figures import figures
from forebay.representatives import Cluster, Representatives, representatives

__all__ = [
    "Cluster",
    "ForebayError",
    "Representatives",
    "Result",
    "consolidate",
    "features",
    "figures",
    "mrc",
    "partition",
    "plan",
    "replay",
    "representatives",
    "run",
    "sample",
    "simulate",
    "trace_info",
]
