"""Runs the command and reads its results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from forebay import _calls
from forebay.figures import figures

if TYPE_CHECKING:
    import plotly.graph_objects as go

PathLike = str | os.PathLike[str]


class ForebayError(RuntimeError):
    """The command failed; the message says why, what was kept and what to do next.

    ``status`` is the exit status of the command: 1 if the work failed, 2 for incorrect usage.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def reason(error: Exception) -> str:
    """The reason for a failure, without the error number of the system and without the path.

    >>> reason(FileNotFoundError(2, "No such file or directory", "a/b"))
    'No such file or directory'
    """
    known = isinstance(error, OSError) and error.strerror
    return error.strerror if known else str(error)


@dataclass(frozen=True)
class Result:
    """All results of a command."""

    #: The document of ``--json``.
    document: dict[str, Any]
    #: The rows of ``--parquet``; ``None`` if they were not requested, or if the command has none.
    rows: pl.DataFrame | None = None
    #: The figures of ``--html``, in the order of the page; empty if they were not requested.
    figures: list[go.Figure] = field(default_factory=list)


def binary() -> str:
    """The path of the command: ``FOREBAY`` if set, else the command in the package's wheel, else
    that on the PATH.

    Raises:
        ForebayError: There is no such command.
    """
    named = os.environ.get("FOREBAY")
    scripts = sysconfig.get_path("scripts")
    path = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])
    found = shutil.which(named) if named else shutil.which("forebay", path=path)
    if found is None:
        what = f"FOREBAY is {named}, which" if named else "forebay"
        message = f"{what} cannot be run: install it, or set FOREBAY to its path"
        raise ForebayError(message, 2)
    return found


def words(options: dict[str, Any]) -> list[str]:
    """Converts options to words of a command line.

    An option and its value form one word, because an option with an optional value accepts only
    this form.

    >>> words({"per_volume": True, "at": ["1MiB", "2MiB"], "limit": None})
    ['--per-volume', '--at=1MiB', '--at=2MiB']
    """
    line: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            line.append(option)
            continue
        several = isinstance(value, Sequence) and not isinstance(value, str)
        for one in value if several else [value]:
            text = os.fspath(one) if isinstance(one, os.PathLike) else str(one)
            line.append(f"{option}={text}")
    return line


def run(
    command: str,
    *arguments: PathLike,
    rows: bool | None = None,
    pictures: bool = False,
    **options: Any,
) -> Result:
    """Runs ``forebay COMMAND ARGUMENTS...`` and returns its results.

    Args:
        command: The command, such as ``"mrc"`` or ``"trace info"``: any command that prints a JSON document.
        arguments: The arguments of the command, usually traces.
        rows: Whether to return the raw rows; by default, if the command has rows.
        pictures: Whether to return the figures.
        options: The options of the command, with underscores instead of hyphens. ``output``, ``parquet`` and
            ``html`` also write files, as on the command line.

    Returns:
        The document, the rows and the figures.

    Raises:
        ForebayError: The command failed, or it has no such results.

    >>> answer = run("trace info", EXAMPLE)
    >>> answer.document["requests"], answer.rows.columns
    (54634, ['feature', 'value'])
    >>> run("policies", "arc").document["policies"][0]["name"]
    'arc'
    """
    name = _calls.name_of(command)
    why = _calls.refusal(name, rows, pictures, options)
    if why is not None:
        raise ForebayError(why, 2)
    if rows is None:
        rows = _calls.has_rows(name, options)
    with tempfile.TemporaryDirectory(prefix="forebay-") as directory:
        files = {"parquet": rows, "html": pictures}
        files = {o: Path(directory, f"result.{o}") for o, on in files.items() if on}
        # Files that the caller has named are kept.
        files |= {o: Path(options[o]) for o in files if _calls.given(options, o)}
        line = [binary(), "--quiet", *command.split(), *map(os.fspath, arguments)]
        # `forebay ctl` commands print JSON in any case.
        line += [] if name.startswith("ctl ") else ["--json"]
        line += words({**options, **files})
        try:
            done = subprocess.run(line, capture_output=True, text=True, check=False)
        except OSError as error:
            what = f"{line[0]} cannot be run: {reason(error)}"
            raise ForebayError(what, 2) from error
        if done.returncode != 0:
            message = done.stderr.strip().removeprefix("forebay: ")
            raise ForebayError(message or f"forebay {command} failed", done.returncode)
        output = _calls.document_file(name, options)
        try:
            text = done.stdout if output is None else Path(output).read_text("utf-8")
            document = json.loads(text)
            table = pl.read_parquet(files["parquet"]) if rows else None
        except (ValueError, OSError) as error:
            what = f"{line[0]} did not write the results of `forebay {name}`"
            next_ = "check that it is the command `forebay`, or set FOREBAY to its path"
            raise ForebayError(f"{what}\n  next: {next_}", 1) from error
        return Result(
            document=document,
            rows=table,
            figures=figures(files["html"]) if pictures else [],
        )
