"""Turns the failed cells of a study, or the failed files of a fleet, into the error with which the
command ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from forebay._run import ForebayError
from forebay.lab.running import Answer

#: Number of different errors to print; tables and reports contain all of them.
ERRORS_MAX = 3
#: Number of lines to print of an error.
LINES_MAX = 5


def failure(
    what: str,
    errors: Iterable[str | None],
    kept: str | None = None,
    next_: str | None = None,
    status: int = 1,
) -> ForebayError:
    """The error of a command that failed in part: the most frequent errors, each with its count.

    >>> print(failure("3 of 9 cells failed", ["no key\\n\\n  tip: read", "late", "late"], "all results"))
    3 of 9 cells failed
      2 x late
      1 x no key
            tip: read
      kept: all results
    """
    counts = Counter(error or "unknown error" for error in errors)
    lines = [what]
    for error, count in counts.most_common(ERRORS_MAX):
        mark = f"  {count} x "
        first, *rest = _shown(error)
        lines.append(mark + first)
        lines += [" " * len(mark) + line for line in rest]
    left = counts.most_common()[ERRORS_MAX:]
    if left:
        more = sum(count for _, count in left)
        lines.append(f"  {more} x other errors ({len(left)} distinct)")
    lines += [f"  kept: {kept}"] if kept else []
    lines += [f"  next: {next_}"] if next_ else []
    return ForebayError("\n".join(lines), status)


def exit_status(failed: Sequence[Answer]) -> int:
    """2 if the command rejected the configuration or the options of every failed cell, else 1."""
    return 2 if failed and all(answer.exit_status == 2 for answer in failed) else 1


def _shown(error: str) -> list[str]:
    """The lines of an error to print. The line about what was kept is omitted, because it is
    printed once for all cells.
    """
    lines = error.removeprefix("error: ").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("  kept: ")]
    return lines[:LINES_MAX] or ["unknown error"]
