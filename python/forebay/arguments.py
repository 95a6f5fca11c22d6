"""Shared parts of the package's commands: arguments, and how a command ends."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay._run import ForebayError, reason


def add_trace_reading(parser: argparse.ArgumentParser) -> None:
    """Adds the options for reading traces: `--format` and `--limit`."""
    parser.add_argument("--format", metavar="NAME", help="the format of the traces")
    limit = "use only the first N requests of a trace"
    parser.add_argument("--limit", type=count, metavar="N", help=limit)


def trace_reading(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_trace_reading` that were given."""
    values = {"format": args.format, "limit": args.limit}
    return {name: value for name, value in values.items() if value is not None}


def add_answer(parser: argparse.ArgumentParser) -> None:
    """Adds the options for printing the answer: `--json` and `-o`."""
    add_flag(parser, "--json", "print one JSON document")
    what = "write the answer to FILE"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=what)


def add_directory(
    parser: argparse.ArgumentParser, what: str, required: bool = False
) -> None:
    """Adds `-o DIR`, the directory of a command that writes several files."""
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", required=required, help=what
    )


def add_flag(parser: argparse.ArgumentParser, name: str, what: str) -> None:
    """Adds an option without a value."""
    parser.add_argument(name, action="store_true", help=what)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Adds `-q`. Every command of the package has it, because `forebay -q NAME` passes it on."""
    what = "print no progress"
    parser.add_argument("-q", "--quiet", action="store_true", help=what)


def count(text: str) -> int:
    """A whole number above 0.

    >>> count("12")
    12
    """
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)


def check_outputs(*paths: Path | None) -> None:
    """Checks, before any work, that each file can be created in its directory.

    Raises:
        ForebayError: A path is a directory, or its directory does not exist.
    """
    for path in paths:
        if path is None:
            continue
        kept = "\n  kept: nothing was started"
        if path.is_dir():
            raise ForebayError(f"cannot write {path}: it is a directory{kept}", 1)
        if not path.parent.is_dir():
            what = f"the directory {path.parent} does not exist"
            raise ForebayError(f"cannot write {path}: {what}{kept}", 1)


def guarded(work: Callable[[], None]) -> int:
    """Does the work of a command and returns the exit status. Prints a failure to standard
    error.
    """
    try:
        work()
    except (ForebayError, OSError) as error:
        print(f"forebay: {_sentence(error)}", file=sys.stderr)
        return getattr(error, "status", 1)
    except KeyboardInterrupt:
        print("forebay: stopped by a signal before the work was done", file=sys.stderr)
        return 1
    return 0


def _sentence(error: Exception) -> str:
    """An error in one sentence, with the name of the file if there is one.

    >>> _sentence(FileNotFoundError(2, "No such file or directory", "a/b"))
    'a/b: No such file or directory'
    """
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fspath(error.filename)}: {reason(error)}"
    return reason(error)
