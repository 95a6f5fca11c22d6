"""Runs one cell on a worker. Both success and failure produce an answer.

This module needs only the standard library. It works in the same way in the process of a study, on a
worker on this machine and on a worker on another machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

#: Running commands by study, for :func:`kill`.
_running: dict[str, set[subprocess.Popen[bytes]]] = {}
_killed: set[str] = set()
_lock = threading.Lock()


@dataclass(frozen=True)
class Task:
    """Everything that a worker needs to run a cell."""

    cell: str
    study: str
    binary: str
    binary_hash: str
    #: The words of the command, with placeholders `{config}` and `{scratch}`.
    words: tuple[str, ...]
    #: The text of the configuration file, if the command needs one.
    config: str | None
    #: Whether nothing else may run on the machine.
    exclusive: bool
    timeout_s: float | None = None
    #: The file for the rows of the intervals, and the option that writes them.
    series: str | None = None
    series_option: str = "--parquet"
    #: Files other than the trace that the command reads, with the hashes that are part of the
    #: cell's name.
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Answer:
    """The result of a cell."""

    cell: str
    #: `"ok"` or `"failed"`.
    status: str
    error: str | None
    #: The output of the command: one JSON document.
    document: str | None
    started: float
    wall_s: float
    #: Processor time of the command.
    cpu_s: float
    machine: str
    worker: str
    #: The exit status of a command that failed: 2 if it rejected the configuration or an option.
    exit_status: int | None = None


@dataclass(frozen=True)
class _Ended:
    """How a command ended."""

    document: str | None
    error: str | None
    cpu_s: float
    exit_status: int | None = None


def only_volumes(names: Iterable[str]) -> list[str]:
    """The option that selects these volumes, whatever their names are."""
    escaped = (name.replace(",", "\\,") for name in names)
    return [f"--volumes={','.join(escaped)}"]


def run(task: Task) -> Answer:
    """Runs a cell. A failure is returned as an answer, never raised."""
    started = time.time()
    wall_s = 0.0
    ended = _Ended(None, None, 0.0)
    try:
        if content_hash(task.binary) != task.binary_hash:
            raise OSError(f"{task.binary} is a different version on {platform.node()}")
        for path, known in task.files:
            if content_hash(path) != known:
                where = f"since the study began, or is a different file on {platform.node()}"
                raise OSError(f"{path} has changed {where}")
        with machine_lock(task.exclusive):
            started, begin = time.time(), time.monotonic()
            ended = _command(task)
            # Measured within the lock, so that the times of exclusive cells do not overlap in the
            # rows.
            wall_s = time.monotonic() - begin
    except OSError as failure:
        ended = dataclasses.replace(ended, error=str(failure))
    return Answer(
        cell=task.cell,
        status="failed" if ended.error is not None else "ok",
        error=ended.error,
        document=ended.document if ended.error is None else None,
        started=started,
        wall_s=wall_s,
        cpu_s=ended.cpu_s,
        machine=machine(),
        worker=f"{platform.node()}:{os.getpid()}",
        exit_status=ended.exit_status,
    )


def run_batch(tasks: Iterable[Task]) -> list[Answer]:
    """Runs cells one after another."""
    return [run(task) for task in tasks]


def kill(study: str) -> None:
    """Kills the commands of a study on this worker, and starts no more of them."""
    with _lock:
        _killed.add(study)
        for child in _running.get(study, ()):
            _end(child)


def _command(task: Task) -> _Ended:
    with tempfile.TemporaryDirectory(prefix="forebay-cell-") as scratch:
        config = Path(scratch, "cell.toml")
        if task.config is not None:
            text = task.config.replace("{scratch}", scratch)
            config.write_text(text, encoding="utf-8")
        line = [
            word.replace("{config}", str(config)).replace("{scratch}", scratch)
            for word in task.words
        ]
        partial = Path(scratch, "series.parquet")
        if task.series is not None:
            line += [task.series_option, str(partial)]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = _start(task, line, out, err)
            late = threading.Event()
            timer = None
            if task.timeout_s is not None:
                timer = threading.Timer(task.timeout_s, _expire, (child, late))
                timer.start()
            try:
                # Unlike `wait`, this returns the resource usage of exactly this child.
                _, status, usage = os.wait4(child.pid, 0)
            finally:
                if timer is not None:
                    timer.cancel()
                with _lock:
                    _running[task.study].discard(child)
            child.returncode = os.waitstatus_to_exitcode(status)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        cpu = usage.ru_utime + usage.ru_stime
        if late.is_set():
            what = f"ended after its time limit of {task.timeout_s:g} s"
            return _Ended(None, what, cpu)
        if child.returncode < 0:
            name = signal.Signals(-child.returncode).name
            what = f"killed by {name}; the machine may have run out of memory"
            return _Ended(None, what, cpu)
        if child.returncode > 0:
            message = texts[1].strip().removeprefix("forebay: ")
            message = message.replace(f"{scratch}/", "")
            message = message or f"exit status {child.returncode}"
            return _Ended(None, message, cpu, child.returncode)
        if task.series is not None:
            target = Path(task.series)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(partial, target)
        return _Ended(texts[0], None, cpu)


def _start(task: Task, line: list[str], out, err) -> subprocess.Popen[bytes]:  # noqa: ANN001
    # A new session keeps Ctrl-C from ending a cell that would have to run again later. If a worker
    # is killed, its command must not survive, because it may write to a device.
    guard = shutil.which("setpriv")
    prefix = [guard, "--pdeathsig", "KILL", "--"] if guard else []
    with _lock:
        if task.study in _killed:
            raise OSError("the study was stopped")
        child = subprocess.Popen(
            [*prefix, task.binary, "--quiet", *line, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        _running.setdefault(task.study, set()).add(child)
    return child


def _expire(child: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)


@contextlib.contextmanager
def machine_lock(exclusive: bool, directory: str | None = None) -> Iterator[None]:
    """Holds the lock of this machine: exclusively, or shared with other cells that are not
    exclusive.

    An exclusive cell that waits holds the gate, so that later cells wait behind it.
    """
    base = Path(directory or tempfile.gettempdir(), f"forebay-lab-{os.getuid()}")
    base.mkdir(mode=0o700, exist_ok=True)
    with open(base / "gate", "w") as gate, open(base / "machine", "w") as lock:
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        fcntl.flock(gate, kind)
        fcntl.flock(lock, kind)
        if not exclusive:
            fcntl.flock(gate, fcntl.LOCK_UN)
        yield


@functools.cache
def machine() -> str:
    """A description of this machine."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                model = text.split(":", 1)[1].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{platform.node()}: {os.cpu_count()} x {model}, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}"
    )


def binary_hash(path: str) -> str:
    """A hash of the command's file, which is part of the names of its cells."""
    with open(path, "rb") as file:
        return hashlib.blake2b(file.read(), digest_size=16).hexdigest()


def version_of(path: str) -> tuple[int, ...]:
    """A key that changes whenever the contents of a file change, without reading the file.

    A program can set the modification time, as `cp -p` and `rsync -t` do, but not the change time.
    """
    status = os.stat(path)
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def content_hash(path: str) -> str:
    """A hash of a file. The file is read again only after it has changed."""
    return _known_hash(path, version_of(path))


@functools.cache
def _known_hash(path: str, _version: tuple[int, ...]) -> str:
    return binary_hash(path)
