"""Forebay's results as Polars data frames and Plotly figures.

Most functions run the ``forebay`` command of their name and return the raw rows that the command
writes with ``--parquet``, unrounded. Their keyword arguments are the command's options: ``per_volume=True``
is ``--per-volume``, ``block_size="64KiB"`` is ``--block-size 64KiB``; a list gives an option several
times, and ``None`` or ``False`` leaves the option out. :func:`run` returns all results at once: the document,
the rows and the figures. :func:`representatives`, :func:`study`, :func:`fleet` and :func:`advise` do the
work of their commands in this process; their documentation lists their arguments.

>>> import forebay
>>> rows = forebay.mrc(EXAMPLE)
>>> rows.columns[:3]
['volume', 'size_bytes', 'read_hits']
"""

from forebay._run import ForebayError, Result, run
from forebay.frames import (
    consolidate,
    features,
    load,
    mrc,
    partition,
    plan,
    policies,
    replay,
    sample,
    simulate,
    trace_convert,
    trace_info,
    trace_synth,
)
from forebay.figures import figures
from forebay.lab.advise import advise
from forebay.lab.fleet import Fleet, fleet
from forebay.lab.study import study
from forebay.representatives import Cluster, Representatives, representatives

__all__ = [
    "Cluster",
    "Fleet",
    "ForebayError",
    "Representatives",
    "Result",
    "advise",
    "consolidate",
    "features",
    "figures",
    "fleet",
    "load",
    "mrc",
    "partition",
    "plan",
    "policies",
    "replay",
    "representatives",
    "run",
    "sample",
    "simulate",
    "study",
    "trace_convert",
    "trace_info",
    "trace_synth",
]
