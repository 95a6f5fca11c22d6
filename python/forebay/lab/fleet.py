"""Fleets: every trace below a directory, with a row for each volume.

Each file is one task: the features of the file, the curve of each of its volumes, measured on a bounded
number of blocks, and, if a budget is given, what to buy for each volume. The curves of a file that is larger
than `slice_above` can be measured in slices instead; each slice is then a task (:mod:`forebay.lab.slices`).
A worker holds the curves of one file at a time, and the process that collects rows holds only rows. Neither
needs more memory for longer traces, except that ``trace info`` and slices need memory for each distinct block.

A command that ends without an exit status, because it or its worker was killed, says nothing about the file. The
journal does not keep what it left, so the next run asks again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from forebay._run import ForebayError
from forebay.lab import rows as rows_of
from forebay.lab import running
from forebay.lab import slices as slices_of
from forebay.lab.cluster import Cluster
from forebay.lab.failures import failure
from forebay.lab.journal import Journal
from forebay.lab.progress import Progress, counted, duration
from forebay.lab.running import Answer, Task
from forebay.lab.slices import SLICE_ABOVE_BYTES, SlicedCurve
from forebay.lab.study import Binary, interruptible


@dataclass(frozen=True)
class Scan:
    """The work on one file."""

    task: Task
    path: str
    max_blocks: int
    points: int
    budget: str | None
    #: The backing store of the plans; `None`: that of the fastest plan.
    backing: str | None
    #: Whether to compute features of each volume if the file has several; this reads the file once
    #: per volume.
    features: bool
    #: Number of slices in which the curves are measured later; `None`: they are measured here,
    #: without slices.
    slices: int | None


@dataclass(frozen=True)
class Scanned:
    """The result of one file."""

    answer: Answer
    #: Whether every command ended with an exit status; only then does the journal keep the answer.
    complete: bool
    #: The errors of plans that ended without an exit status.
    killed_plans: list[str]


@dataclass(frozen=True)
class Fleet:
    """The result of a fleet."""

    volumes: pl.DataFrame
    curves: pl.DataFrame
    files: int
    known: int
    wall_s: float
    #: The requested backing store of the plans.
    backing: str | None = None
    #: The errors of plans that ended without an exit status in this run.
    killed_plans: list[str] = dataclasses.field(default_factory=list)

    def text(self, directory: Path) -> str:
        bad = self.volumes.filter(pl.col("status") != "ok")
        failed = bad.height
        names = f" ({', '.join(bad['trace'].head(3))}, ...)" if failed > 3 else ""
        names = names or (f" ({', '.join(bad['trace'])})" if failed else "")
        return (
            f"{counted(self.files, 'file')}, {self.known} of them from earlier runs, {failed} failed{names}; "
            f"{counted(self.volumes.height - failed, 'volume')}; {duration(self.wall_s)}\n"
            f"{self._planned()}{self._without_features()}"
            f"rows: {directory / 'volumes.parquet'}, curves: {directory / 'curves.parquet'}, "
            f"report: {directory / 'report.html'}"
        )

    def raise_for_failures(self, directory: Path) -> None:
        """Raises a ForebayError with the most frequent errors if a file, a curve, features, or all
        plans failed.

        A budget can be too small for some volumes only, which is a result; if all plans failed, the
        options are wrong. A plan that was killed has no result.
        """
        files, curves = self._errors("error"), self._errors("curve.error")
        features = self._errors("features.error")
        plans, which = self._errors("plan.error"), "all "
        if len(plans) < self.volumes.height - len(files):
            plans, which = self.killed_plans, ""
        errors = files + curves + features + plans
        if not errors:
            return
        counts = [f"{len(files)} of {self.files} files"] if files else []
        counts += [f"{len(curves)} curves"] if curves else []
        counts += [f"the features of {len(features)} volumes"] if features else []
        counts += [f"{which}{len(plans)} plans"] if plans else []
        again = "repeat the command with --retry-failed to rerun what failed"
        glob = "; use --glob to exclude files" if files else ""
        raise failure(
            f"{' and '.join(counts)} failed",
            errors,
            kept=f"all results, with their errors, in {directory / 'volumes.parquet'}",
            next_=again + glob,
        )

    def _errors(self, column: str) -> list[str]:
        """The errors in a column; none if there is no such column."""
        if column not in self.volumes.columns:
            return []
        return self.volumes[column].drop_nulls().to_list()

    def _without_features(self) -> str:
        count = len(self._errors("features.error"))
        return (
            f"volumes without features: {count} (see features.error)\n" if count else ""
        )

    def _planned(self) -> str:
        """The backing stores of the plans, in words; empty without plans."""
        if "plan.backing" not in self.volumes.columns:
            return ""
        stores = self.volumes["plan.backing"].drop_nulls().unique().sort().to_list()
        if not stores:
            return ""
        assumed = ", chosen because it is the fastest: select another with --backing"
        count = len(self._errors("plan.error"))
        without = f"volumes without a plan: {count} (see plan.error)\n"
        return (
            f"plans for caches in front of {', '.join(stores)}{'' if self.backing else assumed}\n"
            f"{without if count else ''}"
        )


def fleet(
    source: str | Path,
    output: str | Path,
    *,
    pattern: str = "**/*",
    max_blocks: int = 65_536,
    points: int = 50,
    budget: str | None = None,
    backing: str | None = None,
    features: bool = True,
    consolidate: str | None = None,
    partition: str | None = None,
    slices: int | None = None,
    slice_above: int = SLICE_ABOVE_BYTES,
    workers: int | None = None,
    scheduler: str | None = None,
    retry_failed: bool = False,
    quiet: bool = True,
) -> Fleet:
    """Features, curves and plans of all traces below a directory.

    Args:
        source: The directory of the traces.
        output: The directory for the tables and the report. A stopped fleet resumes from this directory.
        pattern: Glob of the files to read below the directory.
        max_blocks: Maximum number of blocks to sample for a curve.
        points: Maximum number of points of a curve.
        budget: Budget for each volume: dollars, or a percentage, as in `forebay plan`.
        backing: Backing store of the plans, as in `forebay plan`; if None, each plan is in front of the store of the
            catalogue that makes it fastest.
        features: Whether to compute the features of each volume if a file has several volumes; this takes
            another pass over the file for each volume.
        consolidate: Size of a cache for all volumes; the report then says whether they fit together in it.
        partition: Amount of flash to divide among all volumes.
        slices: Number of slices in which all blocks of large files are measured, each slice on a worker.
        slice_above: Files with more bytes than this are measured in slices.
        workers: Number of files to process at a time on this machine.
        scheduler: The address of a Dask scheduler; its workers then do the work instead of this machine.
        retry_failed: Whether to rerun what failed before. Commands that were killed are rerun in any case.
        quiet: Whether to suppress progress output.

    Raises:
        ForebayError: There is no directory `source` or no matching file in it, or there is no worker.
    """
    begin = time.monotonic()
    source, output = Path(source), Path(output)
    binary = Binary.found()
    inside = output.resolve()
    files = _files(source, pattern, output)
    study = hashlib.sha256(f"{inside} {time.time_ns()}".encode()).hexdigest()[:16]
    scans = {
        scan.task.cell: scan
        for path in files
        for scan in [
            _scan_of(
                path,
                study,
                binary,
                max_blocks,
                points,
                budget,
                backing,
                features,
                slices if os.stat(path).st_size > slice_above else None,
            )
        ]
    }
    killed_plans: list[str] = []
    with Journal(output) as journal:
        journal.forget(n for n, a in journal.items() if _again(a, retry_failed))
        left = [scan for cell, scan in scans.items() if cell not in journal]
        known = len(scans) - len(left)
        wanted = {"consolidate": ("--size", consolidate)}
        wanted["partition"] = ("--flash", partition)

        def together() -> dict[str, Task]:
            """The tasks that need all readable files at once."""
            good = [
                scan.path
                for cell, scan in scans.items()
                if cell in journal and journal[cell].status == "ok"
            ]
            return {
                name: _together(name, [option, value], good, study, binary)
                for name, (option, value) in wanted.items()
                if value is not None and good
            }

        def sliced() -> list[SlicedCurve]:
            """The curves of the readable files that are measured in slices."""
            return [
                curve
                for cell, scan in scans.items()
                if scan.slices and cell in journal and journal[cell].status == "ok"
                for curve in _sliced(scan, journal[cell], inside / "slices").values()
            ]

        def settled() -> bool:
            return all(curve.settled(journal) for curve in sliced()) and all(
                task.cell in journal for task in together().values()
            )

        try:
            if left or not settled():
                with interruptible(), Cluster(workers, scheduler) as cluster:
                    killed_plans = _run(
                        cluster, left, sliced, together, journal, study, quiet
                    )
        except KeyboardInterrupt:
            kept = (
                f"{sum(cell in journal for cell in scans)} files are kept in {output}"
            )
            what = f"stopped by a signal before the fleet was done; {kept}"
            raise ForebayError(f"{what}; the same command resumes", 1) from None
        volumes, curves = _tables(scans, journal, binary, inside / "slices")
        answers = {name: journal[task.cell] for name, task in together().items()}
        from forebay.lab import report

        rows_of.write(volumes, output / "volumes.parquet")
        rows_of.replace(curves, output / "curves.parquet")
        report.write_fleet(str(source), output, volumes, curves)
        for name, answer in answers.items():
            if answer.document is None:
                what = f"{name} failed, but volumes and curves are in {output}"
                raise ForebayError(f"{what}: {answer.error}", 1)
            (output / f"{name}.json").write_text(answer.document, encoding="utf-8")
    wall_s = time.monotonic() - begin
    return Fleet(volumes, curves, len(scans), known, wall_s, backing, killed_plans)


def _again(answer: Answer, retry_failed: bool) -> bool:
    """Whether an answer of an earlier run no longer counts."""
    if answer.status != "ok":
        return retry_failed or answer.exit_status is None
    return retry_failed and _failed_in_part(answer)


def _failed_in_part(answer: Answer) -> bool:
    """Whether features or a plan failed in a file that could be read."""
    rows = json.loads(answer.document or "null")
    # Other answers are curves, and results of all files together.
    if not isinstance(rows, list):
        return False
    errors = ("plan.error", "features.error")
    return any(one["row"].get(error) for one in rows for error in errors)


def _files(source: Path, pattern: str, output: Path) -> list[str]:
    """The files to read: those that match the pattern, except the results."""
    if not source.exists():
        raise ForebayError(f"the directory {source} does not exist", 1)
    if not source.is_dir():
        what = f"{source} is a file, but a fleet reads a directory"
        next_ = "pass the directory of the file, and select the file with --glob"
        raise ForebayError(f"{what}\n  next: {next_}", 2)
    inside = output.resolve()
    try:
        found = sorted(path for path in source.glob(pattern) if path.is_file())
    except (ValueError, NotImplementedError) as error:
        raise ForebayError(f"the pattern `{pattern}`: {error}", 2) from error
    if not found:
        raise ForebayError(f"{source} has no file that matches {pattern}", 1)
    files = [str(path) for path in found if inside not in path.resolve().parents]
    if not files:
        what = f"all {len(found)} files in {source} that match {pattern} are in {output}, the results directory"
        next_ = "write the results to a directory that contains no traces"
        raise ForebayError(f"{what}\n  next: {next_}", 2)
    return files


def scan(wanted: Scan) -> Scanned:
    """Processes one file on a worker; returns the rows of its volumes."""
    info = _ask(wanted, "trace", "info", wanted.path)
    if info.document is None:
        return _scanned(info)
    used = [info]
    document = json.loads(info.document)
    volumes = [v["volume"] for v in document["per_volume"]]
    drawn: dict[str, Any] = {}
    if wanted.slices is None:
        line = ["mrc", wanted.path, "--max-blocks", str(wanted.max_blocks)]
        line += ["--points", str(wanted.points)]
        line += ["--per-volume"] if len(volumes) > 1 else []
        used.append(curve := _ask(wanted, *line))
        if curve.document is None:
            return _scanned(curve)
        drawn = json.loads(curve.document)
    curves = {v["volume"]: v for v in drawn.get("volumes") or []}
    made, killed_plans = [], []
    for known in document["per_volume"]:
        name = known["volume"]
        only = running.only_volumes([name]) if len(volumes) > 1 else []
        row: dict[str, Any] = {"volume": name, **rows_of.flat(known)}
        if not only:
            row |= rows_of.flat(document["features"], "feature.")
        elif wanted.features:
            used.append(own := _ask(wanted, "trace", "info", wanted.path, *only))
            if own.document is not None:
                own_features = json.loads(own.document)["features"]
                row |= rows_of.flat(own_features, "feature.")
            row["features.error"] = own.error
        if wanted.budget is not None:
            line = ["plan", wanted.path, *only, "--budget", wanted.budget]
            line += [] if wanted.backing is None else ["--backing", wanted.backing]
            used.append(plan := _ask(wanted, *line))
            if plan.document is not None:
                row |= _choice(json.loads(plan.document))
            row["plan.error"] = plan.error
            if _killed(plan):
                killed_plans.append(plan.error or "")
        own_curve = curves.get(name, drawn)
        made.append({"row": row | _known(own_curve), "points": _points(own_curve)})
    answer = dataclasses.replace(
        info,
        document=json.dumps(made),
        wall_s=sum(answer.wall_s for answer in used),
        cpu_s=sum(answer.cpu_s for answer in used),
    )
    return Scanned(answer, not any(map(_killed, used)), killed_plans)


def _scanned(failed: Answer) -> Scanned:
    """The result of a file that failed."""
    return Scanned(failed, not _killed(failed), [])


def _killed(answer: Answer) -> bool:
    """Whether a command ended without an exit status."""
    return answer.status != "ok" and answer.exit_status is None


def _ask(wanted: Scan, *words: str) -> Answer:
    return running.run(dataclasses.replace(wanted.task, words=words))


def _known(curve: dict[str, Any]) -> dict[str, Any]:
    return {key: curve.get(key) for key in ("distinct_blocks", "sampled_rate")}


def _points(curve: dict[str, Any]) -> list[dict[str, Any]]:
    return [rows_of.flat(point) for point in curve.get("points", ())]


def _sliced(wanted: Scan, answer: Answer, directory: Path) -> dict[str, SlicedCurve]:
    """The curves of a file that is measured in slices, by volume."""
    assert wanted.slices is not None and answer.document is not None
    names = [one["row"]["volume"] for one in json.loads(answer.document)]
    return {
        name: SlicedCurve(
            wanted.task,
            wanted.path,
            name if len(names) > 1 else None,
            wanted.slices,
            wanted.points,
            directory,
        )
        for name in names
    }


def _choice(document: dict[str, Any]) -> dict[str, Any]:
    if not document["choices"]:
        return {"plan.class": None}
    choice = document["choices"][0]
    tiers = ", ".join(f"{t['device']} {t['bytes'] >> 20} MiB" for t in choice["tiers"])
    return {
        "plan.tiers": tiers,
        "plan.backing": choice["backing"],
        "plan.class": choice["class"],
        "plan.cost_usd": choice["cost_usd"],
        "plan.mean_latency_us": choice["mean_latency_us"],
        "plan.latency_reduction": choice["latency_reduction"],
    }


def _scan_of(
    path: str,
    study: str,
    binary: Binary,
    max_blocks: int,
    points: int,
    budget: str | None,
    backing: str | None,
    features: bool,
    slices: int | None,
) -> Scan:
    status = os.stat(path)
    # Do not read terabytes for a hash: path, size and modification time identify a file.
    curve = [max_blocks, points] if slices is None else None
    text = json.dumps(
        [
            path,
            status.st_size,
            status.st_mtime_ns,
            curve,
            budget,
            backing,
            features,
            binary.hash,
        ]
    )
    cell = hashlib.sha256(text.encode()).hexdigest()[:20]
    task = Task(cell, study, binary.path, binary.hash, (), None, False)
    path = os.path.abspath(path)
    return Scan(task, path, max_blocks, points, budget, backing, features, slices)


def _together(
    name: str, option: list[str], paths: list[str], study: str, binary: Binary
) -> Task:
    changed = [[p, os.stat(p).st_size, os.stat(p).st_mtime_ns] for p in paths]
    text = json.dumps([name, option, changed, binary.hash])
    cell = hashlib.sha256(text.encode()).hexdigest()[:20]
    words = (name, *paths, *option)
    return Task(cell, study, binary.path, binary.hash, words, None, False)


def _run(
    cluster: Cluster,
    left: list[Scan],
    sliced: Callable[[], list[SlicedCurve]],
    together: Callable[[], dict[str, Task]],
    journal: Journal,
    study: str,
    quiet: bool,
) -> list[str]:
    """Runs the remaining work; returns the errors of plans that were killed."""
    killed_plans: list[str] = []

    def add(answer: Answer) -> bool:
        return journal.add(answer, keep=not _killed(answer))

    try:
        with Progress(len(left), "files", quiet) as progress:
            # The largest files come first, so that none of them runs alone at the end.
            left = sorted(left, key=lambda s: -os.stat(s.path).st_size)
            for wanted, found in cluster.map(scan, left):
                if isinstance(found, BaseException):
                    found = _scanned(_lost(wanted.task, found))
                if journal.add(found.answer, keep=found.complete):
                    killed_plans += found.killed_plans
                    progress.add(found.answer.status != "ok")
        for what, tasks in slices_of.measure(sliced(), journal):
            with Progress(len(tasks), what, quiet or not tasks) as progress:
                for answer in cluster.run(tasks):
                    if add(answer):
                        progress.add(answer.status != "ok")
        for curve in sliced():
            if curve.answer(journal).status == "ok":
                curve.remove_slices()
        tasks = [task for task in together().values() if task.cell not in journal]
        for answer in cluster.run(tasks):
            add(answer)
        return killed_plans
    except KeyboardInterrupt:
        cluster.kill(study)
        raise


def _lost(task: Task, error: BaseException) -> Answer:
    text = f"{type(error).__name__}: {error}"
    return Answer(task.cell, "failed", text, None, time.time(), 0.0, 0.0, "", "")


def _tables(
    scans: dict[str, Scan], journal: Journal, binary: Binary, slices: Path
) -> tuple[pl.DataFrame, pl.DataFrame]:
    volumes, points = [], []
    provenance = rows_of.provenance(binary.hash, binary.version)
    for cell, wanted in scans.items():
        answer = journal[cell]
        own = {"cell": cell, "trace": wanted.path}
        state = {"status": answer.status, "error": answer.error}
        late = {
            "cell.wall_s": answer.wall_s,
            "cell.cpu_s": answer.cpu_s,
            "cell.machine": answer.machine,
            **provenance,
        }
        if answer.document is None:
            volumes.append({**own, "volume": None, **state, **late})
            continue
        sliced = _sliced(wanted, answer, slices) if wanted.slices else {}
        for one in json.loads(answer.document):
            name = one["row"].pop("volume")
            if name in sliced:
                merged = sliced[name].answer(journal)
                curve = json.loads(merged.document) if merged.document else {}
                own_curve = {**_known(curve), "curve.slices": wanted.slices}
                one["row"] |= {**own_curve, "curve.error": merged.error}
                one["points"] = _points(curve)
            volumes.append({**own, "volume": name, **state, **one["row"], **late})
            points += [{**own, "volume": name, **point} for point in one["points"]]
    return rows_of.table(volumes), rows_of.table(points)
