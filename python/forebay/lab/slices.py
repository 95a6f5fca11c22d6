"""The curve of one huge trace on several workers: each measures a slice of the blocks, and one merges the slices.

A slice is a share of the blocks, chosen by hash (`forebay mrc --slices N --slice K`). A worker reads the whole
trace and holds the blocks of one slice, so each of N slices needs an Nth of the memory. No slice is sampled:
the accesses, blocks and cold misses of the merged curve are exact. Only its distances are estimates, and it
contains bounds for them (`forebay mrc --merge`). `forebay mrc --slices N` computes the same curve in one process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from forebay.lab.journal import Journal
from forebay.lab.running import Answer, Task


#: Files with more bytes than this are measured in slices, if slices are requested.
SLICE_ABOVE_BYTES = 4 << 30


@dataclass(frozen=True)
class SlicedCurve:
    """A curve that is measured in slices."""

    #: The parts of the tasks that are the same for all files.
    task: Task
    path: str
    #: The only volume to measure; `None`: all volumes.
    volume: str | None
    slices: int
    points: int
    #: The directory for slices until they are merged; workers must see it, too.
    directory: Path

    def measurements(self) -> list[Task]:
        """A task for each slice."""
        only = [] if self.volume is None else ["--volumes", self.volume]
        line = ["mrc", self.path, *only, "--slices", str(self.slices)]
        return [
            self._task(
                f"slice {number}",
                (*line, "--slice", str(number), "-o", str(self._file(number))),
            )
            for number in self._numbers()
        ]

    def merge(self) -> Task:
        """The task that merges the slices."""
        files = [str(self._file(number)) for number in self._numbers()]
        line = ("mrc", *files, "--merge", "--points", str(self.points))
        return self._task(f"merge to {self.points} points", line)

    def missing(self, journal: Journal) -> list[Task]:
        """The slices that still have to be measured."""
        if self.merge().cell in journal:
            return []
        numbered = zip(self._numbers(), self.measurements(), strict=True)
        return [
            task
            for number, task in numbered
            if task.cell not in journal
            or (journal[task.cell].status == "ok" and not self._file(number).exists())
        ]

    def measured(self, journal: Mapping[str, Answer]) -> bool:
        """Whether every slice has been measured."""
        answers = [journal.get(task.cell) for task in self.measurements()]
        return all(answer is not None and answer.status == "ok" for answer in answers)

    def settled(self, journal: Mapping[str, Answer]) -> bool:
        """Whether the curve is complete, or cannot be completed."""
        answers = [journal.get(task.cell) for task in self.measurements()]
        failed = any(answer is not None and answer.status != "ok" for answer in answers)
        return failed or self.merge().cell in journal

    def answer(self, journal: Mapping[str, Answer]) -> Answer:
        """The merged curve, or the failure that stopped it."""
        tasks = [*self.measurements(), self.merge()]
        answers = [journal[task.cell] for task in tasks if task.cell in journal]
        failed = (answer for answer in answers if answer.status != "ok")
        return next(failed, None) or journal[self.merge().cell]

    def remove_slices(self) -> None:
        """Removes the files of slices that have been merged."""
        for number in self._numbers():
            with contextlib.suppress(FileNotFoundError):
                self._file(number).unlink()

    def _numbers(self) -> Iterable[int]:
        return range(1, self.slices + 1)

    def _file(self, number: int) -> Path:
        return self.directory / f"{self._name(f'slice {number}')}.json"

    def _task(self, what: str, words: tuple[str, ...]) -> Task:
        own = self.task
        return Task(
            self._name(what), own.study, own.binary, own.binary_hash, words, None, False
        )

    def _name(self, what: str) -> str:
        status = os.stat(self.path)
        parts = [self.path, status.st_size, status.st_mtime_ns, self.volume]
        text = json.dumps([*parts, self.slices, what, self.task.binary_hash])
        return hashlib.sha256(text.encode()).hexdigest()[:20]


def measure(
    curves: list[SlicedCurve], journal: Journal
) -> Iterable[tuple[str, list[Task]]]:
    """The tasks that still have to run, one kind after another: slices, then merges of complete
    curves.
    """
    for curve in curves:
        curve.directory.mkdir(parents=True, exist_ok=True)
    left = [task for curve in curves for task in curve.missing(journal)]
    journal.forget(task.cell for task in left if task.cell in journal)
    yield "slices", left
    merges = [curve.merge() for curve in curves if curve.measured(journal)]
    yield "merges", [task for task in merges if task.cell not in journal]
