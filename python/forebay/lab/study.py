"""A study, from its file to its rows and report."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import polars as pl

from forebay._run import ForebayError, binary
from forebay.lab import rows as rows_of
from forebay.lab import search as searching
from forebay.lab.cells import Cell, combinations, expand, needs_footprints
from forebay.lab.cluster import Cluster
from forebay.lab.failures import exit_status, failure
from forebay.lab.journal import Journal, make_directory
from forebay.lab.progress import Progress, duration
from forebay.lab.running import Answer, Task, binary_hash
from forebay.lab.running import run as run_here
from forebay.lab.spec import StudySpec
from forebay.lab.traces import Trace, resolve

#: Number of cells that a dry run measures.
TRIED = 4


@dataclass(frozen=True)
class Binary:
    """The command that runs the cells."""

    path: str
    hash: str
    version: str

    @classmethod
    def found(cls) -> Binary:
        path = str(Path(binary()).resolve())
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=True
        )
        return cls(path, binary_hash(path), said.stdout.strip())


@dataclass
class Outcome:
    """The result of a study."""

    cells: int
    #: The answers of the cells that failed, in this run or in earlier ones.
    failures: list[Answer]
    #: Number of cells that were answered in earlier runs.
    known: int
    wall_s: float
    #: Processor time of all commands of this run.
    cpu_s: float
    rows: pl.DataFrame
    search: pl.DataFrame | None = None

    @property
    def failed(self) -> int:
        return len(self.failures)

    def text(self, directory: Path) -> str:
        lines = [
            f"{self.cells} cells, {self.known} of them from earlier runs, {self.failed} failed; "
            f"{duration(self.wall_s)}, and {duration(self.cpu_s)} of processor time for the commands",
            f"rows: {directory / 'rows.parquet'}, report: {directory / 'report.html'}",
        ]
        if self.search is not None:
            lines += [searching.sentence(found) for found in self.search.to_dicts()]
        return "\n".join(lines)

    def raise_for_failures(self, directory: Path) -> None:
        """Raises a ForebayError with the first errors if a cell failed."""
        if not self.failures:
            return
        status = exit_status(self.failures)
        again = "repeat the command with --retry-failed to rerun these cells"
        raise failure(
            f"{self.failed} of {self.cells} cells failed",
            (answer.error for answer in self.failures),
            kept=f"all results; the column `error` of {directory / 'rows.parquet'} has all errors",
            next_=again if status == 1 else "correct the study file, and run it again",
            status=status,
        )


@dataclass
class DryRun:
    """The result of a dry run."""

    text: str
    #: The cells that were run.
    answers: list[Answer]

    def raise_for_failures(self) -> None:
        """Raises a ForebayError with the first errors if a cell failed."""
        failed = [answer for answer in self.answers if answer.status != "ok"]
        if failed:
            raise failure(
                f"{len(failed)} of the {len(self.answers)} cells that were run failed",
                (answer.error for answer in failed),
                status=exit_status(failed),
            )


class Study:
    """A study and its directory."""

    def __init__(self, spec: StudySpec, directory: Path, quiet: bool = False) -> None:
        self.spec, self.directory, self.quiet = spec, directory, quiet
        self.binary = Binary.found()
        make_directory(directory)
        self.traces = resolve(spec, directory, needs_footprints(spec))
        # The name by which workers know the study, for killing its commands.
        text = f"{directory.resolve()} {time.time_ns()}"
        self._name = hashlib.sha256(text.encode()).hexdigest()[:16]

    def cells(self) -> list[Cell]:
        """All cells of the full sweep."""
        cells = list(expand(self.spec, self.traces))
        if not cells:
            raise ForebayError("no combination meets the constraints", 2)
        return cells

    def task(self, cell: Cell) -> Task:
        return cell.task(
            study=self._name,
            binary=self.binary.path,
            binary_hash=self.binary.hash,
            timeout_s=self.spec.timeout_s,
            series=self.directory.resolve() / "series" if self.spec.series else None,
        )

    def dry_run(self, workers: int) -> DryRun:
        """Counts the cells, and estimates the time for all of them by running a few."""
        cells = self.cells()
        with Journal(self.directory) as journal:
            left = [c for c in cells if c.name(self.binary.hash) not in journal]
        per = f"{_counted(len(self.traces), 'trace')} x " + _counted(
            len(combinations(self.spec)), "combination"
        )
        lines = [
            f"{_counted(len(cells), 'cell')} ({per} x {_counted(len(self.spec.targets), 'target')} x "
            f"{_counted(self.spec.repeats, 'repeat')}, excluding those that constraints forbid), "
            f"{len(cells) - len(left)} of them already run"
        ]
        # Cells that measure time may write to devices, which a dry run must not do.
        tried = [c for c in left if not self.task(c).exclusive]
        tried = tried[:: max(1, len(tried) // TRIED)][:TRIED]
        answers = [run_here(self.task(c)) for c in tried]
        good = [a for a in answers if a.status == "ok"]
        if good:
            mean = sum(a.wall_s for a in good) / len(good)
            lines.append(
                f"about {duration(mean * len(left) / workers)} on {workers} workers: "
                f"{len(good)} cells took {mean:.2g} s on average"
            )
        elif answers:
            lines.append("no estimate: all cells that were run failed")
        elif left:
            lines.append("no estimate: cells that measure time are not run")
        return DryRun("\n".join(lines), answers)

    def run(
        self,
        workers: int | None = None,
        scheduler: str | None = None,
        retry_failed: bool = False,
    ) -> Outcome:
        """Runs the cells without an answer, and writes rows and report, also when interrupted."""
        begin = time.monotonic()
        with Journal(self.directory) as journal:
            # Within the lock, so that the file belongs to the study that runs.
            text = self.spec.text
            (self.directory / "study.toml").write_text(text, encoding="utf-8")
            if retry_failed:
                journal.forget(n for n, a in journal.items() if a.status != "ok")
            if self.spec.series and self.spec.search == "grid":
                journal.forget(self._without_series(journal))
            known = set(journal)
            found: pl.DataFrame | None = None
            try:
                with interruptible():
                    if self.spec.search == "grid":
                        cells = self.cells()
                        self._sweep(cells, journal, workers, scheduler)
                    else:
                        cells, found = self._search(journal, workers, scheduler)
            except KeyboardInterrupt:
                done = self._write(self._named(self.cells()), journal)
                kept = f"{done.height} cells are kept in {self.directory}"
                next_ = "the same command resumes with the remaining cells"
                what = f"stopped by a signal before the study was done; {kept}; {next_}"
                raise ForebayError(what, 1) from None
            named = self._named(cells)
            table = self._write(named, journal, found)
            new = [journal[name] for name in set(journal) - known]
            return Outcome(
                cells=len(named),
                failures=[
                    a for a in (journal[n] for n, _ in named) if a.status != "ok"
                ],
                known=sum(name in known for name, _ in named),
                wall_s=time.monotonic() - begin,
                cpu_s=sum(answer.cpu_s for answer in new),
                rows=table,
                search=found,
            )

    def _without_series(self, journal: Journal) -> list[str]:
        """The cells that were answered when no series was requested."""
        tasks = [self.task(cell) for cell in self.cells()]
        return [
            task.cell
            for task in tasks
            if task.cell in journal
            and journal[task.cell].status == "ok"
            and task.series is not None
            and not Path(task.series).exists()
        ]

    def _named(self, cells: list[Cell]) -> list[tuple[str, Cell]]:
        """Cells with their names; equivalent combinations have the same name."""
        return [(cell.name(self.binary.hash), cell) for cell in cells]

    def _sweep(
        self,
        cells: list[Cell],
        journal: Journal,
        workers: int | None,
        scheduler: str | None,
    ) -> None:
        left = {name: cell for name, cell in self._named(cells) if name not in journal}
        if not left:
            return
        if workers is not None:
            workers = min(workers, len(left))
        with Cluster(workers, scheduler) as cluster, self._killing(cluster):
            with Progress(len(left), quiet=self.quiet) as progress:
                for answer in cluster.run(map(self.task, left.values())):
                    if journal.add(answer):
                        progress.add(answer.status != "ok")

    def _search(
        self, journal: Journal, workers: int | None, scheduler: str | None
    ) -> tuple[list[Cell], pl.DataFrame]:
        """Runs the search; returns the cells at full rate that it ran, and what it found."""
        with ExitStack() as stack, Progress(0, quiet=self.quiet) as progress:
            started: list[Cluster] = []

            def run(cells: Iterable[Cell]) -> Iterator[Answer]:
                # Start no workers if all answers are known.
                if not started:
                    cluster = stack.enter_context(Cluster(workers, scheduler))
                    stack.enter_context(self._killing(cluster))
                    started.append(cluster)
                yield from started[0].run(map(self.task, cells))

            def ask(cells: list[Cell]) -> list[Answer]:
                named = self._named(cells)
                left = {n: c for n, c in named if n not in journal}
                progress.total += len(cells)
                progress.done += len(cells) - len(left)
                for answer in run(left.values()) if left else ():
                    if journal.add(answer):
                        progress.add(answer.status != "ok")
                return [journal[name] for name, _ in named]

            return searching.search(
                self.spec, self.traces, self.directory, ask, self._known(journal)
            )

    def _known(self, journal: Journal) -> Callable[[Trace], list[Answer] | None]:
        """A function that returns the answers of the full sweep of a trace, if all of them are
        known.
        """

        def known(trace: Trace) -> list[Answer] | None:
            names = [
                c.name(self.binary.hash)
                for c in expand(self.spec, [trace])
                if c.repeat == 0
            ]
            if all(name in journal for name in names):
                return [journal[name] for name in names]
            return None

        return known

    def _write(
        self,
        cells: list[tuple[str, Cell]],
        journal: Journal,
        found: pl.DataFrame | None = None,
    ) -> pl.DataFrame:
        from forebay.lab import report

        provenance = rows_of.provenance(self.binary.hash, self.binary.version)
        answered = [(n, c, journal[n]) for n, c in cells if n in journal]
        table = rows_of.table(rows_of.row(c, n, a, provenance) for n, c, a in answered)
        rows_of.write(table, self.directory / "rows.parquet")
        points = rows_of.table(
            point for n, c, a in answered for point in rows_of.points(c, n, a)
        )
        spread = None
        if self.spec.repeats > 1 and table.height:
            spread = rows_of.spread(table, ["trace", "target", *self.spec.sweep])
        rows_of.replace(points, self.directory / "points.parquet")
        rows_of.replace(spread, self.directory / "repeats.parquet")
        rows_of.replace(found, self.directory / "search.parquet")
        report.write(self.spec, self.directory, table, points, spread, found)
        return table

    @contextmanager
    def _killing(self, cluster: Cluster) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            cluster.kill(self._name)
            raise


@contextmanager
def interruptible() -> Iterator[None]:
    """Makes SIGTERM stop a study as Ctrl-C does."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # Not the main thread.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def study(
    file: str | Path,
    output: str | Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    retry_failed: bool = False,
    quiet: bool = True,
) -> pl.DataFrame:
    """Runs a study file; returns a row for each cell.

    Args:
        file: The study file.
        output: The directory for the rows and the report. A stopped study resumes from this directory.
        workers: Number of cells to run at a time on this machine; by default, one for each processor.
        scheduler: The address of a Dask scheduler; its workers then run the cells instead of this machine.
        retry_failed: Whether to rerun cells that failed before.
        quiet: Whether to suppress progress output.

    Raises:
        ForebayError: The study file is invalid, or the study cannot be run.
    """
    from forebay.lab.spec import read

    made = Study(read(file), Path(output), quiet)
    return made.run(workers, scheduler, retry_failed).rows


def _counted(n: int, one: str) -> str:
    """A number of things, where `one` is the singular."""
    return f"{n} {one}{'' if n == 1 else 's'}"
