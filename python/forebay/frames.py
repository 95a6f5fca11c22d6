"""A data frame for each command."""

from __future__ import annotations

import os
from typing import Any

import polars as pl

from forebay._calls import given
from forebay._run import ForebayError, PathLike, run


def _rows(command: str, *arguments: PathLike, **options: Any) -> pl.DataFrame:
    rows = run(command, *arguments, rows=True, **options).rows
    assert rows is not None, "rows were requested"
    return rows


def _described(command: str, *arguments: PathLike, **options: Any) -> pl.DataFrame:
    """The document of a command as one row."""
    return pl.DataFrame([run(command, *arguments, **options).document])


def policies(*names: str, **options: Any) -> pl.DataFrame:
    """The replacement policies, one row each; with ``admission=True``, the admission policies.

    >>> policies("arc", "s3-fifo")["name"].to_list()
    ['arc', 's3-fifo']
    >>> policies(admission=True).columns
    ['name', 'idea', 'source', 'keys']
    """
    (found,) = run("policies", *names, **options).document.values()
    return pl.DataFrame(found, infer_schema_length=None)


def trace_convert(*traces: PathLike, output: PathLike, **options: Any) -> pl.DataFrame:
    """Writes traces in another format; returns one row that describes the written trace.

    The extension of ``output`` selects the format, or ``to="iolog"``.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     written = trace_convert(SECOND, output=pathlib.Path(directory, "trace.csv"))
    >>> written.select("requests", "volumes").row(0)
    (4000, 1)
    """
    return _described("trace convert", *traces, output=output, **options)


def trace_synth(spec: PathLike, *, output: PathLike, **options: Any) -> pl.DataFrame:
    """Generates a synthetic trace; returns one row that describes the written trace.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = pathlib.Path(directory, "zipf.parquet")
    ...     written = trace_synth("zipf:blocks=2k,requests=500", output=path)
    >>> written["requests"].item()
    500
    """
    return _described("trace synth", spec, output=output, **options)


def trace_info(*traces: PathLike, **options: Any) -> pl.DataFrame:
    """The features of traces: a row for each feature (``feature``, ``value``).

    >>> info = trace_info(EXAMPLE)
    >>> info.filter(pl.col("feature") == "wss")["value"].item()
    105713664.0
    """
    return _rows("trace info", *traces, **options)


def features(*traces: PathLike, **options: Any) -> pl.DataFrame:
    """The feature table: a row for each trace; a column ``trace``, and a column for each feature.

    The features are those of Bhandari 2024, table 4.2: sizes in bytes, distances in bytes, times
    in microseconds, splits as fractions.

    >>> table = features(EXAMPLE)
    >>> table.select("read_block_req_count", "write_block_req_count").row(0)
    (41407.0, 8688.0)
    """
    # Each trace would overwrite the file of the trace before it.
    for name in ("output", "parquet", "html"):
        if given(options, name):
            what = (
                f"{name}: `features` runs a command for each trace and writes no files"
            )
            raise ForebayError(f"{what}; save the data frame that it returns", 2)
    rows = []
    for trace in traces:
        document = run("trace info", trace, rows=False, **options).document
        rows.append({"trace": os.fspath(trace), **document["features"]})
    return pl.DataFrame(rows, infer_schema_length=None)


def mrc(*traces: PathLike, **options: Any) -> pl.DataFrame:
    """Miss-ratio curves: a row for each volume and each size at which the volume's curve changes.

    The columns are ``volume``, ``size_blocks``, ``size_bytes``, hits and accesses by operation, and
    the miss ratios as fractions. Between two rows, the miss ratio is that of the smaller size. With
    ``slices=16``, ``miss_ratio_bounds_low`` and ``miss_ratio_bounds_high`` bound the ratio. With
    ``config``, the configured cache is simulated, and there is a row for each size of memory and of
    ``flash``. With ``policy=["lru", "arc", "opt"]``, there is a row for each replacement policy and size.

    >>> curve = mrc(EXAMPLE)
    >>> curve.filter(pl.col("size_bytes") <= 100 << 20)["miss_ratio"].min().__round__(3)
    0.336
    """
    return _rows("mrc", *traces, **options)


def plan(*traces: PathLike, **options: Any) -> pl.DataFrame:
    """Which tiers to buy: a row for each budget and combination of devices.

    Costs are in US dollars, and latencies in microseconds.

    >>> plans = plan(EXAMPLE, budget="10%", backing="SlowHDD", wear_max="none")
    >>> best = plans.filter(pl.col("budget_usd") < 0.1).sort("mean_latency_us").row(0, named=True)
    >>> best["class"]
    'pyramidal'
    """
    return _rows("plan", *traces, **options)


def partition(*traces: PathLike, **options: Any) -> pl.DataFrame:
    """How volumes should share the tiers: a row for each volume and each division.

    >>> import forebay
    >>> rows = partition(EXAMPLE, SECOND, flash="64MiB", goal="hits")
    >>> "volume" in rows.columns
    True
    """
    return _rows("partition", *traces, **options)


def consolidate(*traces: PathLike, **options: Any) -> pl.DataFrame:
    """Whether workloads fit together in one cache: a row for each phase of each workload.

    >>> rows = consolidate(EXAMPLE, SECOND, size="256MiB")
    >>> rows.height > 0
    True
    """
    return _rows("consolidate", *traces, **options)


def sample(*traces: PathLike, output: PathLike, **options: Any) -> pl.DataFrame:
    """Writes a smaller trace with similar features and hit ratios; returns a row for each feature, with its error.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = pathlib.Path(directory, "small.parquet")
    ...     errors = sample(EXAMPLE, rate=0.1, output=path)
    ...     path.exists(), errors.columns
    (True, ['sample', 'feature', 'full', 'value', 'error'])
    """
    return _rows("sample", *traces, output=output, **options)


def simulate(*traces: PathLike, config: PathLike, **options: Any) -> pl.DataFrame:
    """Runs the cache in virtual time; returns a row for each interval of the run.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = pathlib.Path(directory, "cache.toml")
    ...     _ = path.write_text('[cache]\\ndram = "64MiB"\\n')
    ...     rows = simulate(EXAMPLE, config=path, untimed=True)
    >>> int(rows["requests"].sum())
    54634
    """
    return _rows("simulate", *traces, config=config, **options)


def replay(*traces: PathLike, **options: Any) -> pl.DataFrame:
    """Replays traces on real devices; returns one row with the results of the run.

    ``intervals="FILE"`` also writes a row for each interval to a Parquet file.

    ``config`` names the configuration of a cache; ``target`` names a device, a file or an NBD export.
    If the trace contains writes, the replay overwrites data on the target: ``write=True`` allows this.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     disk = pathlib.Path(directory, "disk.img")
    ...     path = disk.with_name("cache.toml")
    ...     volume = f'[[volume]]\\nname = "demo"\\nbacking = "{disk}"\\nsize = "2GiB"\\n'
    ...     _ = path.write_text('[cache]\\ndram = "64MiB"\\n' + volume)
    ...     how = {"as_fast_as_possible": True, "queue_depth": 8, "write": True}
    ...     rows = replay(EXAMPLE, config=path, limit=2000, **how)
    >>> rows.height, rows["requests"].item()
    (1, 2000)
    """
    return _rows("replay", *traces, **options)


def load(spec: PathLike, **options: Any) -> pl.DataFrame:
    """Sends a synthetic workload to real devices; returns one row with the results of the run.

    ``intervals="FILE"`` also writes a row for each interval to a Parquet file.

    ``config`` names the configuration of a cache; ``target`` names a device, a file or an NBD export.
    If the workload writes to an existing target, this overwrites its data: ``write=True`` allows this.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     disk = pathlib.Path(directory, "disk.img")
    ...     rows = load("zipf:blocks=1Ki", target=disk, create="4MiB", requests=2000)
    >>> rows.height, rows["requests"].item()
    (1, 2000)
    """
    return _rows("load", spec, **options)
