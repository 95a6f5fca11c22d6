"""Cells: the single runs of a study. A hash of everything that determines its answer names each
cell.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay._run import ForebayError
from forebay.lab.running import Task, content_hash
from forebay.lab.spec import OPTION, TIMED, StudySpec
from forebay.lab.traces import Trace
from forebay.lab.values import number, share, toml

#: Sizes that are given as a share of the trace are rounded up to a multiple of this.
GRAIN_BYTES = 64 * 1024
#: The smallest memory of a cache with blocks of 4 KiB.
DRAM_BYTES_MIN = 256 * 1024
#: Targets whose runs depend on a seed.
_SEEDED = ("simulate",)
#: Options that name files which the command writes or measures. Their contents are not input, and
#: change with each run.
_NOT_READ = ("target", "resume", "output", "parquet", "html", "intervals")


@dataclass(frozen=True)
class Cell:
    """One run of the command."""

    trace: Trace
    target: str
    repeat: int
    seed: int
    #: The value of each swept key, as in the study file; a table is represented by its `name`.
    swept: dict[str, Any]
    #: The values of all keys, including those in tables, with shares converted to sizes.
    values: dict[str, Any]
    #: The share of the trace that is used: 1, except in the first rungs of a search.
    rate: float = 1.0

    def words(self) -> tuple[str, ...]:
        """The words of the command."""
        line = [self.target, *self.trace.arguments()]
        if self._config():
            line += ["--config", "{config}"]
        options = {
            key.removeprefix(OPTION): value
            for key, value in self.values.items()
            if key.startswith(OPTION)
        }
        if self.target in _SEEDED and "seed" not in options:
            options["seed"] = self.seed + self.repeat
        for key, value in options.items():
            line += _option(key, value)
        return tuple(line)

    def config(self) -> str | None:
        """The text of the configuration file; `None` if no key belongs in one."""
        lines = [f"{key} = {toml(value)}" for key, value in self._config().items()]
        return "\n".join(lines) + "\n" if lines else None

    def _config(self) -> dict[str, Any]:
        return {k: v for k, v in self.values.items() if not k.startswith(OPTION)}

    def name(self, binary_hash: str) -> str:
        """The hash that names the cell."""
        # Options are split at `=` as in earlier versions, so that their answers remain valid.
        words = [
            part
            for word in self.words()
            if word != self.trace.path
            for part in (word.split("=", 1) if word.startswith("--") else [word])
        ]
        parts = [self.trace.hash, words, self.config(), binary_hash, self.repeat]
        if self.target == "load":
            parts.append(self.trace.path)
        # Cells without such files keep the names that they had in earlier versions.
        if files := self._files_read():
            parts.append(files)
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def _files_read(self) -> dict[str, str]:
        """A hash of the contents of each file that an option names, such as a device catalogue."""
        options = (
            (key.removeprefix(OPTION).replace("-", "_"), value)
            for key, value in self.values.items()
            if key.startswith(OPTION)
        )
        named = (
            one
            for key, value in options
            if key not in _NOT_READ
            for one in (value if isinstance(value, list) else [value])
            if isinstance(one, str)
        )
        return {path: content_hash(path) for path in named if os.path.isfile(path)}

    def task(
        self,
        *,
        study: str,
        binary: str,
        binary_hash: str,
        timeout_s: float | None = None,
        series: Path | None = None,
    ) -> Task:
        name = self.name(binary_hash)
        wanted = series is not None and self.target in ("simulate", *TIMED)
        return Task(
            cell=name,
            study=study,
            binary=binary,
            binary_hash=binary_hash,
            words=self.words(),
            config=self.config(),
            exclusive=self.target in TIMED,
            timeout_s=timeout_s,
            series=str(series / f"{name}.parquet") if series and wanted else None,
            # With --parquet a replay writes its results as one row.
            series_option="--intervals" if self.target in TIMED else "--parquet",
            files=tuple(self._files_read().items()),
        )


def needs_footprints(spec: StudySpec) -> bool:
    """Whether any size in the study is a share of the trace."""
    values = itertools.chain(spec.base.values(), *spec.sweep.values())
    return any(_has_share(value) for value in values)


def combinations(spec: StudySpec) -> list[dict[str, Any]]:
    """The swept values of every combination.

    Constraints are checked cell by cell, in :func:`make`, because they can refer to the trace and
    to shares of it.
    """
    keys = list(spec.sweep)
    return [
        dict(zip(keys, values, strict=True))
        for values in itertools.product(*spec.sweep.values())
    ]


def expand(
    spec: StudySpec, traces: list[Trace], swept: dict[str, Any] | None = None
) -> Iterator[Cell]:
    """All cells of a study, or those of one combination. Cells that measure time come last."""
    targets = sorted(spec.targets, key=lambda target: target in TIMED)
    chosen = combinations(spec) if swept is None else [swept]
    for target, repeat in itertools.product(targets, range(spec.repeats)):
        for trace, one in itertools.product(traces, chosen):
            cell = make(spec, trace, target, one, repeat)
            if cell is not None:
                yield cell


def make(
    spec: StudySpec,
    trace: Trace,
    target: str,
    swept: Mapping[str, Any],
    repeat: int = 0,
    rate: float = 1.0,
) -> Cell | None:
    """The cell of a trace and a combination; `None` if a constraint forbids it."""
    values = dict(spec.base)
    shown = {}
    for key, value in swept.items():
        if isinstance(value, Mapping):
            name = value.get("name")
            values |= {k: v for k, v in value.items() if k != "name"}
            shown[key] = name if name is not None else toml(value)
        else:
            values[key] = value
            shown[key] = value
    values = {key: _sized(key, value, trace) for key, value in values.items()}
    values = _set(values)
    known = {**shown, **values, "trace": trace.name, "target": target}
    try:
        if not all(constraint.holds(known) for constraint in spec.constraints):
            return None
    except ForebayError as error:
        where = f"{spec.path}: " if spec.path else ""
        raise ForebayError(f"{where}{error}", error.status) from error
    return Cell(trace, target, repeat, spec.seed, shown, values, rate)


def scaled(values: Mapping[str, Any], rate: float) -> dict[str, Any]:
    """The values with the tiers scaled down for a sample of the trace; no tier becomes smaller than
    the minimum.
    """
    return {
        key: max(_whole(size * rate), DRAM_BYTES_MIN)
        if key in ("cache.dram", "flash.size") and (size := number(value))
        else value
        for key, value in values.items()
    }


def _sized(key: str, value: Any, trace: Trace) -> Any:
    if isinstance(value, str) and not key.startswith(OPTION):
        fraction = share(value)
        if fraction is not None and trace.footprint_bytes is not None:
            return _whole(trace.footprint_bytes * fraction)
    return value


def _has_share(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_share(v) for v in value.values())
    if isinstance(value, list):
        return any(map(_has_share, value))
    return share(value) is not None


def _whole(size: float) -> int:
    return max(1, math.ceil(size / GRAIN_BYTES)) * GRAIN_BYTES


def _set(values: dict[str, Any]) -> dict[str, Any]:
    """The values without unset keys, and without a flash tier if its size is unset."""
    if values.get("flash.size") == "unset":
        values = {k: v for k, v in values.items() if not k.startswith("flash.")}
    elif any(key.startswith("flash.") for key in values):
        # A simulation opens no files; a replay creates a new tier for each cell.
        values = {"flash.path": "{scratch}/flash", **values}
    return {key: value for key, value in values.items() if value != "unset"}


def _option(key: str, value: Any) -> list[str]:
    option = "--" + key.replace("_", "-")
    if value is False or value == "unset":
        return []
    if value is True:
        return [option]
    if isinstance(value, Mapping):
        raise ForebayError(f"{OPTION}{key}: an option cannot be a table", 2)
    several = value if isinstance(value, list) else [value]
    # In one word, because an option with an optional value accepts only this form.
    return [f"{option}={one}" for one in several]
