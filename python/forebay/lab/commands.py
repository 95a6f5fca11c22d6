"""`forebay study` and `forebay fleet`, which the binary runs as programs of the package."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from forebay._run import ForebayError


def study(words: Sequence[str] | None = None) -> int:
    """Runs `forebay study`; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="forebay study",
        description="Run every combination of traces and configurations of a study file.",
        epilog="Example:  forebay study sizes.toml -o sizes",
    )
    parser.add_argument("file", metavar="FILE", help="the study file, TOML")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="where rows and report go"
    )
    _workers(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="count the cells, and estimate their time from a few",
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="run failed cells again"
    )
    args = parser.parse_args(words)
    return _guarded(lambda: _study(args))


def _study(args: argparse.Namespace) -> str:
    from forebay.lab.spec import read
    from forebay.lab.study import Study

    spec = read(args.file)
    if args.dry_run:
        with tempfile.TemporaryDirectory(prefix="forebay-dry-") as scratch:
            made = Study(spec, args.output or Path(scratch), args.quiet)
            return made.dry_run(args.workers or os.cpu_count() or 1)
    if args.output is None:
        raise ForebayError("-o DIR says where rows and report go; it is missing", 2)
    outcome = Study(spec, args.output, args.quiet).run(
        args.workers, args.scheduler, args.retry_failed
    )
    return outcome.text(args.output)


def _workers(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--workers",
        type=_count,
        metavar="N",
        help="cells at a time; else one a processor",
    )
    where.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="a Dask scheduler, such as tcp://host:8786",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return int(text)


def _guarded(work: Callable[[], str]) -> int:
    try:
        print(work())
    except (ForebayError, OSError) as error:
        print(f"forebay: {error}", file=sys.stderr)
        return getattr(error, "status", 1)
    except KeyboardInterrupt:
        print("forebay: stopped by a signal before the work was done", file=sys.stderr)
        return 1
    return 0
