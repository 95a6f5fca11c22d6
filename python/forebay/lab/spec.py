"""The study file: what to combine in a study.

The whole file is checked before anything runs. An unknown key is rejected with an error that names it.
"""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay._run import ForebayError, reason
from forebay.lab import checks
from forebay.lab.checks import check, whole
from forebay.lab.values import Constraint, number, toml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Commands that a cell can run. A cell that measures time has its machine to itself.
TARGETS = ("simulate", "mrc", "plan", "replay", "load")
TIMED = ("replay", "load")
SEARCHES = ("grid", "random", "optuna")
#: Keys that name options of the command rather than keys of the configuration.
OPTION = "options."

_KEYS = (
    *("title", "traces", "target", "base", "sweep", "constraints", "repeats", "seed"),
    *(
        "timeout",
        "series",
        "search",
        "search_seed",
        "objective",
        "trials",
        "fidelity",
        "figure",
    ),
)
#: The kinds of keys that hold a single value and have no other check.
_KINDS = {
    "constraints": checks.TEXTS,
    "repeats": checks.COUNT,
    "seed": checks.WHOLE,
    "series": checks.FLAG,
    "search_seed": checks.WHOLE,
}
_TRACE_KINDS = {
    "path": checks.TEXT,
    "spec": checks.TEXT,
    "name": checks.TEXT,
    "volumes": checks.NAMES,
    "each_volume": checks.FLAG,
    "format": checks.TEXT,
    "limit": checks.LIMIT,
}
_FIGURE_KINDS = {
    **dict.fromkeys(("kind", "x", "color", "facet", "z"), checks.TEXT),
    "y": checks.TEXT,
    **dict.fromkeys(("title", "where"), checks.TEXT),
    "log": checks.AXES,
    "every": checks.TIME,
    "share": checks.FLAG,
}


@dataclass(frozen=True)
class Objective:
    """The goal of a search: a field of the rows to minimize or maximize."""

    field: str
    largest: bool

    def better(self, one: float, other: float) -> bool:
        return one > other if self.largest else one < other


@dataclass(frozen=True)
class StudySpec:
    """The contents of a study file."""

    #: The directory against which paths in the file are resolved.
    directory: Path
    text: str
    title: str
    #: Entries of ``traces``: each a table with ``path`` (a glob) or ``spec``.
    traces: list[dict[str, Any]]
    targets: list[str]
    base: dict[str, Any]
    sweep: dict[str, list[Any]]
    constraints: list[Constraint]
    repeats: int = 1
    seed: int = 1
    timeout_s: float | None = None
    series: bool = False
    search: str = "grid"
    search_seed: int = 1
    objective: Objective | None = None
    #: Number of cells at full rate that a search may run, or their cost as a share of the grid.
    trials: float = 0.1
    #: Sample rates of successive halving, in ascending order; the last is 1.
    fidelity: list[float] = field(default_factory=lambda: [1.0])
    figures: list[dict[str, Any]] = field(default_factory=list)
    #: The path of the file, for errors that show only when cells are made.
    path: Path | None = None


def read(path: str | Path) -> StudySpec:
    """Reads a study file.

    Raises:
        ForebayError: The file cannot be read, or is invalid.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ForebayError(f"cannot read {path}: {reason(error)}", 1) from error
    try:
        return dataclasses.replace(parse(text, path.parent), path=path)
    except ForebayError as error:
        raise ForebayError(f"{path}: {error}", error.status) from error


def parse(text: str, directory: Path) -> StudySpec:
    """Reads the text of a study file.

    >>> study = parse('traces = ["a.csv"]\\n[sweep]\\n"cache.dram" = ["1MiB", "2MiB"]', Path("."))
    >>> study.targets, study.sweep
    (['simulate'], {'cache.dram': ['1MiB', '2MiB']})
    >>> parse('traces = ["a.csv"]\\nrepeat = 3', Path("."))
    Traceback (most recent call last):
        ...
    forebay._run.ForebayError: there is no key `repeat`; did you mean `repeats`?
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ForebayError(str(error), 2) from error
    _known(document, _KEYS, "")
    check(document, _KINDS)
    targets = document.get("target", "simulate")
    targets = [targets] if isinstance(targets, str) else _list(targets, "target")
    if not targets:
        raise ForebayError("target must name a command", 2)
    for target in targets:
        _one_of(target, TARGETS, "target")
    sweep = {
        key: _list(values, f"sweep: {key}")
        for key, values in _flat(_table(document, "sweep")).items()
    }
    base = _flat(_table(document, "base"))
    for key, value in base.items():
        _written(value, f"base: {key}")
    for key, values in sweep.items():
        _different(values, f"sweep: {key}")
    constraints = [Constraint(text) for text in document.get("constraints", [])]
    inner = {k for vs in sweep.values() for v in vs if isinstance(v, dict) for k in v}
    known = {*base, *sweep, *inner, "trace", "target"}
    for constraint in constraints:
        for key in constraint.keys() - known:
            _unknown(key, sorted(known), f"constraint `{constraint.text}`: ")
    search = _one_of(document.get("search", "grid"), SEARCHES, "search")
    objective = _objective(document.get("objective"))
    if search != "grid" and objective is None:
        what = f'search = "{search}" needs an objective, such as "max hit_ratio"'
        raise ForebayError(what, 2)
    figures = [_figure(f) for f in _list(document.get("figure", []), "figure")]
    series = document.get("series", False)
    if not series and any(figure.get("kind") == "series" for figure in figures):
        what = 'a figure of kind "series" needs `series = true`'
        raise ForebayError(what, 2)
    return StudySpec(
        directory=directory,
        text=text,
        title=str(document.get("title", "Study")),
        traces=[_trace(t) for t in _list(document.get("traces", []), "traces")],
        targets=targets,
        base=base,
        sweep=sweep,
        constraints=constraints,
        repeats=whole(document.get("repeats", 1)) or 1,
        seed=whole(document.get("seed", 1)) or 0,
        timeout_s=_positive(document, "timeout", None),
        series=series,
        search=search,
        search_seed=whole(document.get("search_seed", 1)) or 0,
        objective=objective,
        trials=_positive(document, "trials", 0.1) or 0.1,
        fidelity=_fidelity(document.get("fidelity", [1.0])),
        figures=figures,
    )


def _known(table: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    for key in table:
        if key not in keys:
            _unknown(key, list(keys), where)


def _unknown(key: str, keys: list[str], where: str) -> None:
    near = difflib.get_close_matches(key, keys, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(keys)}"
    raise ForebayError(f"{where}there is no key `{key}`; {hint}", 2)


def _one_of(value: Any, names: tuple[str, ...], where: str) -> str:
    if value not in names:
        raise ForebayError(f"{where}: {value!r} is not one of {', '.join(names)}", 2)
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or (where.startswith("sweep") and not value):
        raise ForebayError(f"{where} must be a list of values", 2)
    return value


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name, {})
    if not isinstance(value, dict):
        raise ForebayError(f"{name} must be a table", 2)
    return value


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens tables to dotted keys: `cache.dram` is the same as a table `cache` with the key
    `dram`.
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _written(value: Any, where: str) -> str:
    """A value in the form of a configuration file."""
    try:
        return toml(value)
    except ForebayError as error:
        raise ForebayError(f"{where}: {error}", error.status) from error


def _different(values: list[Any], where: str) -> None:
    """Checks that all values differ, because equal values would make the same cell."""
    texts = [_written(value, where) for value in values]
    twice = next((text for text in texts if texts.count(text) > 1), None)
    if twice is not None:
        raise ForebayError(f"{where} has the value {twice} more than once", 2)


def _positive(
    document: Mapping[str, Any], key: str, default: float | None
) -> float | None:
    if key not in document:
        return default
    value = number(document[key])
    if value is None or value <= 0:
        raise ForebayError(f"{key} must be more than 0, not {document[key]!r}", 2)
    return value


def _trace(entry: Any) -> dict[str, Any]:
    if isinstance(entry, str):
        return {"path": entry}
    if not isinstance(entry, dict) or ("path" in entry) == ("spec" in entry):
        what = "a trace is a path, or a table with either `path` or `spec`"
        raise ForebayError(f"traces: {what}, not {entry!r}", 2)
    _known(entry, _TRACE_KINDS, "traces: ")
    check(entry, _TRACE_KINDS, "traces: ")
    return entry


def _figure(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ForebayError(f"figure: a figure is a table, not {entry!r}", 2)
    _known(entry, _FIGURE_KINDS, "figure: ")
    several = {"y": checks.TEXT_OR_TEXTS} if entry.get("kind") == "stack" else {}
    check(entry, {**_FIGURE_KINDS, **several}, "figure: ")
    return entry


def _objective(text: Any) -> Objective | None:
    if text is None:
        return None
    words = text.split() if isinstance(text, str) else []
    if len(words) != 2 or words[0] not in ("min", "max"):
        what = 'objective must look like "max hit_ratio" or "min latency_us.all.mean"'
        raise ForebayError(what, 2)
    return Objective(words[1], words[0] == "max")


def _fidelity(rates: Any) -> list[float]:
    rates = [number(rate) for rate in _list(rates, "fidelity")]
    rising = all(rate and 0 < rate <= 1 for rate in rates) and rates == sorted(rates)
    if not rates or not rising or rates[-1] != 1:
        what = "fidelity must be a list of increasing sample rates that ends with 1, such as [0.1, 1]"
        raise ForebayError(what, 2)
    return rates  # type: ignore[return-value]
