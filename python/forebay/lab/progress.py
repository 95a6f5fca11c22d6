"""Progress on standard error: on a terminal one line that is rewritten, elsewhere plain lines."""

from __future__ import annotations

import sys
import threading
import time


class Progress:
    """Counts finished work, and shows the rate and the time left."""

    def __init__(self, total: int, what: str = "cells", quiet: bool = False) -> None:
        self.total, self.done, self.failed = total, 0, 0
        self._what = what
        self._quiet = quiet
        self._tty = sys.stderr.isatty()
        self._begin = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if not self._quiet:
            self._thread.join()
            self._print()
            if self._tty:
                sys.stderr.write("\n")

    def add(self, failed: bool = False) -> None:
        self.done += 1
        self.failed += failed

    def line(self) -> str:
        elapsed = time.monotonic() - self._begin
        rate = self.done / elapsed if elapsed else 0
        text = f"{self.done} of {self.total} {self._what}"
        if self.failed:
            text += f", {self.failed} failed"
        if self.done:
            left = (self.total - self.done) / rate
            text += f", {rate:.3g}/s, {duration(left)} left"
        return text

    def _tick(self) -> None:
        while not self._stop.wait(0.5 if self._tty else 10):
            self._print()

    def _print(self) -> None:
        if self._tty:
            sys.stderr.write(f"\r\x1b[K{self.line()}")
        else:
            sys.stderr.write(self.line() + "\n")
        sys.stderr.flush()


def counted(number: int, one: str) -> str:
    """A number of things, where `one` is the singular.

    >>> counted(1, "file"), counted(2, "file")
    ('1 file', '2 files')
    """
    return f"{number} {one}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time in a suitable unit.

    >>> duration(4.2), duration(150), duration(9000)
    ('4.2 s', '2.5 min', '2.5 h')
    """
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
