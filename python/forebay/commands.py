"""Commands that are part of the package: `forebay representatives`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from forebay import arguments
from forebay._run import ForebayError
from forebay.representatives import Representatives
from forebay.representatives import representatives as find


def representatives(words: Sequence[str] | None = None) -> int:
    """Runs `forebay representatives`; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="forebay representatives",
        description="Group traces by their features, and name a representative of each group.",
        epilog="Example:  forebay representatives traces/*.csv --html groups.html",
    )
    parser.add_argument(
        "traces",
        nargs="*",
        metavar="TRACE",
        help="a trace file in any supported format",
    )
    parser.add_argument(
        "--features",
        type=Path,
        metavar="FILE",
        help="a table of features (CSV or Parquet), instead of traces",
    )
    parser.add_argument(
        "--clusters",
        type=int,
        metavar="N",
        help="number of groups (default: chosen at the elbow of the variance within groups)",
    )
    parser.add_argument(
        "--dimensions",
        type=int,
        default=10,
        metavar="N",
        help="maximum number of dimensions to keep (default: 10)",
    )
    arguments.add_trace_reading(parser)
    arguments.add_answer(parser)
    parser.add_argument(
        "--parquet", type=Path, metavar="FILE", help="write the feature table to FILE"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the picture to FILE"
    )
    arguments.add_quiet(parser)
    args = parser.parse_args(words)
    return arguments.guarded(lambda: _representatives(args))


def _representatives(args: argparse.Namespace) -> None:
    sources = [*args.traces, *([args.features] if args.features else [])]
    read = {Path(source).resolve() for source in sources}
    outputs = (args.output, args.parquet, args.html)
    for path in outputs:
        if path is not None and path.resolve() in read:
            raise ForebayError(f"{path} is both read and written", 2)
    arguments.check_outputs(*outputs)
    found = find(
        *args.traces,
        table=args.features,
        clusters=args.clusters,
        dimensions=max(1, args.dimensions),
        **arguments.trace_reading(args),
    )
    _write(found, args)


def _write(found: Representatives, args: argparse.Namespace) -> None:
    if args.parquet is not None:
        found.features.write_parquet(args.parquet)
    if args.html is not None:
        found.figure().write_html(args.html, include_plotlyjs=True)
    document = json.dumps(found.document(), indent=2) + "\n"
    text = document if args.json else _text(found)
    if args.output is None or str(args.output) == "-":
        sys.stdout.write(text)
    else:
        args.output.write_text(text)


def _traces(count: int) -> str:
    return "1 trace" if count == 1 else f"{count} traces"


def _text(found: Representatives) -> str:
    lines = [f"{len(found.features)} traces in {len(found.clusters)} groups"]
    for number, cluster in enumerate(found.clusters, 1):
        lines.append(
            f"\n{number}. {cluster.trace}  represents {_traces(len(cluster.members))}"
        )
        lines += [f"     {member}" for member in cluster.members[1:]]
    return "\n".join(lines) + "\n"
