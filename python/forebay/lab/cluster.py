"""Workers: a Dask cluster, on this machine unless a scheduler's address is given.

Each task runs a command in a separate process, so that workers stay small, and so that a command that is
killed for using too much memory does not take its worker with it. Tasks that need a machine to themselves
go to workers that have the resource ``machine``; there is one such worker on each machine. Meanwhile, the lock
of the machine (:func:`forebay.lab.running.machine_lock`) keeps the other workers from running tasks on it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from forebay._run import ForebayError
from forebay.lab import running
from forebay.lab.running import Answer, Task

T = TypeVar("T")

#: Number of workers that a task can lose before it counts as failed.
WORKER_DEATHS_MAX = 20
#: How long to wait for a scheduler that has gone away.
RECONNECT_S = 300.0
#: Short cells go to a worker in batches: about this long, with at most this many cells.
BATCH_S, BATCH_MAX = 0.5, 32


class SchedulerLost(Exception):
    """The scheduler went away; tasks without an answer must be submitted again."""


class WorkerLost(Exception):
    """A worker died with a result that nobody had fetched; its task must be submitted again."""


class Batches:
    """Tasks in batches, whose sizes follow from the durations of the answers so far.

    A message to a worker and back takes longer than many cells do. The last batches are small, so
    that no worker still has many cells when the others have none.

    >>> [len(batch) for batch in Batches(range(4), workers=2)]
    [1, 1, 1, 1]
    """

    def __init__(
        self, tasks: Iterable[Task], workers: int, most: int = BATCH_MAX
    ) -> None:
        self._left = list(tasks)[::-1]
        self._workers, self._most = workers, most
        self._answers, self._wall_s = 0, 0.0

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> tuple[Task, ...]:
        if not self._left:
            raise StopIteration
        mean_s = self._wall_s / self._answers if self._answers else BATCH_S
        long = BATCH_S / max(mean_s, 1e-6)
        size = min(long, self._most, len(self._left) / (8 * self._workers))
        return tuple(self._left.pop() for _ in range(max(1, int(size))))

    def add(self, answers: Sequence[Answer]) -> None:
        """Updates the mean duration of a cell with these answers."""
        self._answers += len(answers)
        self._wall_s += sum(answer.wall_s for answer in answers)


class Cluster:
    """A connection to workers, and the tasks submitted to them."""

    def __init__(self, workers: int | None = None, scheduler: str | None = None):
        self._workers, self._address = workers, scheduler
        self._cluster: Any = None
        self._client: Any = None
        self._asked = 0

    def __enter__(self) -> Cluster:
        _quieten()
        self._connect(30.0)
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        with contextlib.suppress(Exception):
            self._client.close(timeout=2 if kind else 10)
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                self._cluster.close(timeout=5)

    @property
    def slots(self) -> int:
        """Number of tasks that run at a time."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return max(1, sum(worker["nthreads"] for worker in workers))

    def map(
        self,
        function: Callable[[T], Any],
        tasks: Iterable[T],
        *,
        exclusive: bool = False,
    ) -> Iterator[tuple[T, Any]]:
        """Runs a function on each task, and yields pairs of task and result as they arrive, once
        per task.

        Takes tasks from the iterable as there is room for them. If a worker dies, its task goes to
        another worker. If the scheduler dies, all tasks without a result are submitted again to the
        scheduler that is started at the same address. An exception of the function is returned as
        the result.
        """
        source = iter(tasks)
        waiting: dict[int, T] = {}
        deaths: dict[int, int] = {}
        again: list[int] = []
        numbers = itertools.count()
        while True:
            try:
                for key, result in self._pass(
                    function, source, waiting, again, numbers, exclusive
                ):
                    if _worker_died(result) and deaths.get(key, 0) < WORKER_DEATHS_MAX:
                        deaths[key] = deaths.get(key, 0) + 1
                        again.append(key)
                        continue
                    yield waiting.pop(key), result
                return
            except SchedulerLost:
                again = list(waiting)
                self._reconnect()

    def run(self, tasks: Iterable[Task]) -> Iterator[Answer]:
        """Runs cells, and yields their answers as they arrive."""
        tasks = list(tasks)
        for exclusive in (False, True):
            own = [task for task in tasks if task.exclusive == exclusive]
            if own and exclusive:
                self._check_exclusive()
            batches = Batches(own, self.slots, 1 if exclusive else BATCH_MAX)
            for batch, result in self.map(
                running.run_batch, batches, exclusive=exclusive
            ):
                if isinstance(result, BaseException):
                    yield from (_failed(task, result) for task in batch)
                    continue
                batches.add(result)
                yield from result

    def kill(self, study: str) -> None:
        """Ends the commands of a study on all workers."""
        with contextlib.suppress(Exception):
            self._client.run(running.kill, study, on_error="ignore")

    def _pass(
        self,
        function: Callable[[T], Any],
        source: Iterator[T],
        waiting: dict[int, T],
        again: list[int],
        numbers: Iterator[int],
        exclusive: bool,
    ) -> Iterator[tuple[int, Any]]:
        from distributed import as_completed

        room = 3 * self.slots + 4
        futures: dict[Any, int] = {}
        done = as_completed(raise_errors=False, loop=self._client.loop)
        resources = {"machine": 1} if exclusive else None

        def submit(key: int) -> None:
            self._asked += 1
            future = self._client.submit(
                function,
                waiting[key],
                key=f"forebay-{os.getpid()}-{self._asked}",
                resources=resources,
                pure=False,
            )
            futures[future] = key
            done.add(future)

        def fill() -> None:
            while again:
                submit(again.pop())
            while len(futures) < room:
                try:
                    task = next(source)
                except StopIteration:
                    return
                key = next(numbers)
                waiting[key] = task
                submit(key)

        fill()
        while futures:
            future = next(done)
            key = futures.pop(future)
            if future.status in ("cancelled", "lost"):
                yield key, self._cancelled()
                fill()
                continue
            try:
                result = future.result() if future.status == "finished" else None
                if future.status == "error":
                    result = future.exception()
            except Exception as error:
                cancelled = type(error).__name__.startswith(
                    ("FutureCancelled", "Cancelled")
                )
                result = self._cancelled() if cancelled else error
            future.release()
            yield key, result
            fill()

    def _cancelled(self) -> WorkerLost:
        """The meaning of a cancelled task. The scheduler in this process ends only together with
        the process.
        """
        if self._cluster is None or self._cluster.status.name != "running":
            raise SchedulerLost
        return WorkerLost("a worker that held the result died")

    def _check_exclusive(self) -> None:
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        if not any(worker.get("resources", {}).get("machine") for worker in workers):
            what = (
                "no worker is set up to measure time: start one on each machine with "
            )
            what += '`dask worker ADDRESS --nthreads 1 --resources "machine=1"`'
            raise ForebayError(what, 1)

    def _connect(self, timeout_s: float) -> None:
        import dask
        from distributed import Client, LocalCluster

        dask.config.set(
            {
                # A worker that is killed is no reason to give up its task.
                "distributed.scheduler.allowed-failures": WORKER_DEATHS_MAX,
                # Workers only wait for commands, so profiling them is useless.
                "distributed.worker.profile.enabled": False,
                "distributed.admin.tick.interval": "500ms",
                "distributed.admin.system-monitor.interval": "2s",
            }
        )
        if self._address is None:
            self._cluster = LocalCluster(
                n_workers=self._workers or os.cpu_count() or 1,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",
                resources={"machine": 1},
                silence_logs=logging.CRITICAL,
                preload=["forebay.lab.worker_signals"],
            )
            self._client = Client(self._cluster)
            return
        try:
            self._client = Client(self._address, timeout=timeout_s)
            self._client.wait_for_workers(1, timeout=timeout_s)
        except (OSError, TimeoutError) as error:
            if self._client is not None:
                self._client.close(timeout=1)
            what = f"no scheduler with a worker at {self._address}: {error}"
            raise ForebayError(what, 1) from error

    def _reconnect(self) -> None:
        if self._cluster is not None:
            raise ForebayError("the scheduler on this machine has ended", 1)
        end = time.monotonic() + RECONNECT_S
        print(
            f"forebay: lost the scheduler at {self._address}; waiting for it",
            file=sys.stderr,
        )
        with contextlib.suppress(Exception):
            self._client.close(timeout=1)
        while True:
            self._client = None
            try:
                self._connect(10.0)
                return
            except ForebayError:
                if time.monotonic() > end:
                    raise
                time.sleep(1)


def _worker_died(result: Any) -> bool:
    return type(result).__name__ in ("KilledWorker", "WorkerLost")


def _failed(task: Task, error: BaseException) -> Answer:
    return Answer(
        task.cell,
        "failed",
        f"{type(error).__name__}: {error}",
        None,
        time.time(),
        0.0,
        0.0,
        "",
        "",
    )


def _quieten() -> None:
    # The study reports the death of a worker; the loggers would repeat it.
    for name in ("distributed", "distributed.nanny", "distributed.scheduler"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
