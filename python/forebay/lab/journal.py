"""The journal of a study: the answer of each cell, one line per answer, written as it arrives.

The next start drops a line that a crash has cut off, and runs its cell again. A second answer for a
cell changes nothing, so no cell counts twice.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from forebay._run import ForebayError, reason
from forebay.lab.running import Answer

#: The fields of an answer, with the types of their values.
_KINDS = {
    name: typing.get_args(kind) or (kind,)
    for name, kind in typing.get_type_hints(Answer).items()
}
#: The fields that every answer has; answers of earlier versions lack the others.
_REQUIRED = [
    field.name
    for field in dataclasses.fields(Answer)
    if field.default is dataclasses.MISSING
]


def make_directory(directory: Path) -> None:
    """Creates the directory for the results, unless it exists.

    Raises:
        ForebayError: There is a file in its place, or it cannot be made.
    """
    what = f"cannot write the results to {directory}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise ForebayError(f"{what}: it is a file, not a directory", 1) from error
    except OSError as error:
        raise ForebayError(f"{what}: {reason(error)}", 1) from error


class Journal(Mapping[str, Answer]):
    """Answers by cell; a context manager that keeps other processes out of the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "cells.jsonl"
        self._answers: dict[str, Answer] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Journal:
        make_directory(self._directory)
        self._file = open(self._path, "a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            what = f"another study is running in {self._directory}"
            raise ForebayError(what, 1) from error
        try:
            self._read()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def add(self, answer: Answer, *, keep: bool = True) -> bool:
        """Adds an answer; returns whether it is the first one of its cell.

        An answer that is not kept counts until the journal is closed.
        """
        assert self._file is not None, "the journal is open"
        if answer.cell in self._answers:
            return False
        if keep:
            line = json.dumps(dataclasses.asdict(answer)) + "\n"
            self._file.write(line.encode())
            self._file.flush()
        self._answers[answer.cell] = answer
        return True

    def forget(self, cells: Iterable[str]) -> None:
        """Forgets the answers of cells, so that these run again."""
        assert self._file is not None, "the journal is open"
        for cell in list(cells):
            del self._answers[cell]
            self._file.write(json.dumps({"forget": cell}).encode() + b"\n")
        self._file.flush()

    def _read(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break
            try:
                entry = _entry(line)
            except ValueError as error:
                what = f"{self._path}, line {number}: {error}"
                kept = "the journal as it is; nothing was run"
                next_ = "remove the line; its cell then runs again"
                message = f"{what}\n  kept: {kept}\n  next: {next_}"
                raise ForebayError(message, 1) from error
            whole += len(line)
            if isinstance(entry, Answer):
                self._answers.setdefault(entry.cell, entry)
            else:
                self._answers.pop(entry, None)
        self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)

    def __getitem__(self, cell: str) -> Answer:
        return self._answers[cell]

    def __iter__(self) -> Iterator[str]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)


def _entry(line: bytes) -> Answer | str:
    """An answer, or the name of a cell whose answer no longer counts.

    Raises:
        ValueError: The line is neither.

    >>> _entry(b'{"forget": "abc"}')
    'abc'
    """
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    if set(fields) == {"forget"} and isinstance(fields["forget"], str):
        return fields["forget"]
    for name, value in fields.items():
        if name not in _KINDS:
            raise ValueError(f"an answer has no key `{name}`")
        if not isinstance(value, _KINDS[name]):
            raise ValueError(f"`{name}` cannot be {json.dumps(value)[:40]}")
    missing = next((name for name in _REQUIRED if name not in fields), None)
    if missing is not None:
        raise ValueError(f"the key `{missing}` is missing")
    return Answer(**fields)
