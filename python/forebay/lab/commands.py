"""`forebay study` and `forebay fleet`, which the binary runs as programs of the package."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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


def fleet(words: Sequence[str] | None = None) -> int:
    """Runs `forebay fleet`; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="forebay fleet",
        description="Features, curves and plans of all traces below a directory, a row a volume.",
        epilog="Example:  forebay fleet traces -o fleet --budget 5%%",
    )
    parser.add_argument("source", type=Path, metavar="DIR", help="where the traces are")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        required=True,
        help="where tables and report go",
    )
    parser.add_argument(
        "--glob", default="**/*", metavar="PATTERN", help="which files (**/*)"
    )
    parser.add_argument(
        "--max-blocks",
        type=_count,
        default=65_536,
        metavar="N",
        help="blocks that a curve looks at, at most (65536)",
    )
    parser.add_argument(
        "--points", type=_count, default=50, metavar="N", help="points of a curve (50)"
    )
    parser.add_argument(
        "--budget", metavar="USD", help="plan each volume: dollars, or a percentage"
    )
    parser.add_argument(
        "--no-features",
        action="store_true",
        help="no features of volumes that share a file; they take a reading of it each",
    )
    parser.add_argument(
        "--consolidate", metavar="SIZE", help="whether all fit together in such a cache"
    )
    parser.add_argument(
        "--partition", metavar="FLASH", help="divide so much flash among all volumes"
    )
    _workers(parser)
    args = parser.parse_args(words)
    return _guarded(lambda: _fleet(args))


def _fleet(args: argparse.Namespace) -> str:
    from forebay.lab.fleet import fleet as scan

    found = scan(
        args.source,
        args.output,
        pattern=args.glob,
        max_blocks=args.max_blocks,
        points=args.points,
        budget=args.budget,
        features=not args.no_features,
        consolidate=args.consolidate,
        partition=args.partition,
        workers=args.workers,
        scheduler=args.scheduler,
        quiet=args.quiet,
    )
    return found.text(args.output)


def advise(words: Sequence[str] | None = None) -> int:
    """Runs `forebay advise`; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="forebay advise",
        description="Whether a second tier pays for a trace, and which policy and block size, "
        "by decision trees trained on simulations.",
        epilog="Example:  forebay advise trace.csv --dram 1GiB --flash 16GiB",
    )
    parser.add_argument("traces", nargs="*", metavar="TRACE", help="the trace")
    parser.add_argument(
        "--dram",
        default="10%",
        metavar="SIZE",
        help="memory: a size, or a share (10%%)",
    )
    parser.add_argument(
        "--flash",
        default="50%",
        metavar="SIZE",
        help="the second tier, likewise (50%%)",
    )
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="a model trained here"
    )
    parser.add_argument(
        "--train",
        type=Path,
        metavar="DIR",
        help="train a model on synthetic workloads and the traces, in DIR; write it to -o",
    )
    parser.add_argument("--format", metavar="NAME", help="the file's format")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="only the first N requests"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write it to FILE"
    )
    _workers(parser)
    args = parser.parse_args(words)
    return _guarded(lambda: _advise(args))


def _advise(args: argparse.Namespace) -> str:
    from forebay.lab import advise as advisor

    if args.train is not None:
        model = advisor.train(
            args.train,
            args.traces,
            workers=args.workers,
            scheduler=args.scheduler,
            quiet=args.quiet,
        )
        path = args.output or args.train / "advice.json"
        path.write_text(json.dumps(model, indent=1) + "\n", encoding="utf-8")
        return _trained(model, path)
    if len(args.traces) != 1:
        raise ForebayError("advice is about one trace", 2)
    given = {"format": args.format, "limit": args.limit}
    options = {name: value for name, value in given.items() if value is not None}
    document = advisor.advise(
        args.traces[0], dram=args.dram, flash=args.flash, model=args.model, **options
    )
    said = json.dumps(document, indent=2) if args.json else advisor.text(document)
    if args.output is not None:
        args.output.write_text(said + "\n", encoding="utf-8")
        return f"written to {args.output}"
    return said


def _trained(model: dict[str, Any], path: Path) -> str:
    lines = [f"{model['workloads']} workloads, model in {path}"]
    for name, tree in model["questions"].items():
        checked = tree["cross_validated"]
        lines.append(
            f"{name}: {checked['by_workload']['accuracy']:.1%} right on workloads not seen, "
            f"{checked['by_family']['accuracy']:.1%} on families not seen; always "
            f"`{tree['baseline']['answer']}`: {tree['baseline']['accuracy']:.1%}; {tree['rows']} rows"
        )
    return "\n".join(lines)


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
