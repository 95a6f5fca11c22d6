"""Rows: each answer as one flat row, and the tables of a study."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl

from forebay.lab.cells import Cell
from forebay.lab.running import Answer

#: Lists of an answer that get a table of their own, by target.
TABLES = {"mrc": "points", "plan": "choices"}


def row(
    cell: Cell, name: str, answer: Answer, provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """The row of a cell: its values, its results, and where these come from."""
    started = datetime.datetime.fromtimestamp(answer.started, datetime.timezone.utc)
    made: dict[str, Any] = {
        "cell": name,
        "trace": cell.trace.name,
        "target": cell.target,
        "repeat": cell.repeat,
        **{key: _plain(value) for key, value in cell.swept.items()},
        "status": answer.status,
        "error": answer.error,
    }
    fields = flat(json.loads(answer.document)) if answer.document else {}
    # The file no longer exists; `cell.config` has its contents.
    fields.pop("config", None)
    for key, value in fields.items():
        made[key if key not in made else f"result.{key}"] = value
    made |= {
        "cell.started": started,
        "cell.wall_s": answer.wall_s,
        "cell.cpu_s": answer.cpu_s,
        "cell.machine": answer.machine,
        "cell.worker": answer.worker,
        "cell.seed": cell.seed + cell.repeat,
        "cell.command": " ".join(cell.words()),
        "cell.config": cell.config(),
        "cell.trace_hash": cell.trace.hash,
        **provenance,
    }
    return made


def provenance(binary_hash: str, binary_version: str) -> dict[str, Any]:
    """The versions that made the rows."""
    return {
        "forebay.version": binary_version,
        "forebay.hash": binary_hash,
        "forebay.python": package_version(),
    }


def package_version() -> str:
    try:
        return version("forebay")
    except PackageNotFoundError:
        return "not installed"


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The numbers and texts of a document, by dotted names; of a list of choices, only the first.

    >>> flat({"hits": {"tier1": 3}, "choices": [{"cost_usd": 2.0}, {"cost_usd": 3.0}], "points": [1]})
    {'hits.tier1': 3, 'choices.0.cost_usd': 2.0}
    """
    made: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            made |= flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            if key == "choices" and value and isinstance(value[0], Mapping):
                made |= flat(value[0], f"{prefix}{key}.0.")
        elif isinstance(value, (str, bool, int, float)):
            made[prefix + key] = value
    return made


def points(cell: Cell, name: str, answer: Answer) -> list[dict[str, Any]]:
    """The points of a curve or the choices of a plan, one row each."""
    wanted = TABLES.get(cell.target)
    if wanted is None or not answer.document:
        return []
    document = json.loads(answer.document)
    own = {
        "cell": name,
        "trace": cell.trace.name,
        **{key: _plain(value) for key, value in cell.swept.items()},
    }
    curves = document.get("policies") or [document]
    return [
        {
            **own,
            **(
                {"curve": curve.get("policy", curve.get("volume"))}
                if len(curves) > 1
                else {}
            ),
            "order": order,
            **flat(one),
            **(
                {"tiers": json.dumps(one["tiers"])}
                if isinstance(one.get("tiers"), list)
                else {}
            ),
        }
        for curve in curves
        for order, one in enumerate(curve.get(wanted, ()))
        if isinstance(one, Mapping)
    ]


def table(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """A data frame of rows whose fields can differ."""
    rows = list(rows)
    columns: dict[str, list[Any]] = {}
    for number, one in enumerate(rows):
        for key, value in one.items():
            columns.setdefault(key, [None] * number).append(value)
        for values in columns.values():
            if len(values) <= number:
                values.append(None)
    return pl.DataFrame(
        [_series(key, values) for key, values in _ordered(columns).items()]
    )


def spread(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Mean, standard deviation, minimum and maximum of each result over the repeats."""
    own = [c for c in rows.columns if rows[c].dtype.is_numeric()]
    own = [c for c in own if c not in by and not c.startswith("cell.")]
    own = [c for c in own if c != "repeat"]
    kept = rows.filter(pl.col("status") == "ok")
    return kept.group_by(by, maintain_order=True).agg(
        pl.len().alias("repeats"),
        *(pl.col(c).mean().alias(f"{c}.mean") for c in own),
        *(pl.col(c).std().alias(f"{c}.std") for c in own),
        *(pl.col(c).min().alias(f"{c}.min") for c in own),
        *(pl.col(c).max().alias(f"{c}.max") for c in own),
    )


def swept_keys(rows: pl.DataFrame) -> list[str]:
    """The swept keys of a table of rows: the columns between the repeat and the status."""
    if "repeat" not in rows.columns or "status" not in rows.columns:
        return []
    first, end = rows.columns.index("repeat") + 1, rows.columns.index("status")
    return rows.columns[first:end]


def over_repeats(rows: pl.DataFrame, fields: list[str]) -> pl.DataFrame:
    """Merges the repeats of a cell into one row: the mean of each field, and `FIELD.std`.

    `cell` names the cells of all repeats. Rows without repeats are returned unchanged.
    """
    if "repeat" not in rows.columns or rows["repeat"].n_unique() < 2:
        return rows
    by = ["trace", "target", *swept_keys(rows)]
    rest = [c for c in rows.columns if c not in by and c not in fields and c != "cell"]
    return (
        rows.group_by(by, maintain_order=True)
        .agg(
            pl.col("cell").str.join(", "),
            *(pl.col(name).mean() for name in fields),
            *(pl.col(name).std().alias(f"{name}.std") for name in fields),
            *(pl.col(name).first() for name in rest),
        )
        .select(*rows.columns, *(f"{name}.std" for name in fields))
    )


def write(frame: pl.DataFrame, path: Path) -> None:
    """Writes a table atomically."""
    partial = path.with_suffix(".partial")
    frame.write_parquet(partial)
    partial.replace(path)


def replace(frame: pl.DataFrame | None, path: Path) -> None:
    """Writes a table, or removes that of an earlier run if there is nothing to write."""
    if frame is not None and frame.height:
        write(frame, path)
    else:
        path.unlink(missing_ok=True)


def _ordered(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Puts the values of a row first, then results, then where they come from."""
    last = ("cell.", "forebay.")
    late = [key for key in columns if key.startswith(last)]
    return {key: columns[key] for key in [k for k in columns if k not in late] + late}


def _series(key: str, values: list[Any]) -> pl.Series:
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1:
        if kinds <= {int, float}:
            values = [None if v is None else float(v) for v in values]
        else:
            values = [None if v is None else str(v) for v in values]
    if kinds == {int} and any(v is not None and v > 2**63 - 1 for v in values):
        return pl.Series(key, values, dtype=pl.UInt64)
    return pl.Series(key, values, strict=False)


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value
