"""The journal of a study: the answer of each cell, one line per answer, written as it arrives.

A line that a crash has cut off is dropped at the next start, and its cell is run again. A second answer for
a cell changes nothing, so no cell counts twice.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from forebay._run import ForebayError
from forebay.lab.running import Answer


class Journal(Mapping[str, Answer]):
    """Answers by cell; a context manager that keeps other processes out of the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "cells.jsonl"
        self._answers: dict[str, Answer] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Journal:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._file = open(self._path, "a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            what = f"another study is running in {self._directory}"
            raise ForebayError(what, 1) from error
        self._read()
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def add(self, answer: Answer) -> bool:
        """Keeps an answer; whether it is the first one of its cell."""
        assert self._file is not None, "the journal is open"
        if answer.cell in self._answers:
            return False
        line = json.dumps(dataclasses.asdict(answer)) + "\n"
        self._file.write(line.encode())
        self._file.flush()
        self._answers[answer.cell] = answer
        return True

    def forget(self, cells: Iterable[str]) -> None:
        """Makes cells run again."""
        assert self._file is not None, "the journal is open"
        for cell in list(cells):
            del self._answers[cell]
            self._file.write(json.dumps({"forget": cell}).encode() + b"\n")
        self._file.flush()

    def _read(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            try:
                fields = json.loads(line)
            except ValueError as error:
                what = f"{self._path} is damaged at byte {whole}: {error}"
                raise ForebayError(what, 1) from error
            whole += len(line)
            if "forget" in fields:
                self._answers.pop(fields["forget"], None)
            else:
                answer = Answer(**fields)
                self._answers.setdefault(answer.cell, answer)
        self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)

    def __getitem__(self, cell: str) -> Answer:
        return self._answers[cell]

    def __iter__(self) -> Iterator[str]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)
