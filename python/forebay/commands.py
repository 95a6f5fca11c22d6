"""Commands that the package brings: `forebay representatives`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from forebay._run import ForebayError
from forebay.representatives import Representatives
from forebay.representatives import representatives as find


def representatives(words: Sequence[str] | None = None) -> int:
    """Runs `forebay representatives`; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="forebay representatives",
        description="Group traces by their features, and name the one that stands for each group.",
        epilog="Example:  forebay representatives traces/*.csv --html groups.html",
    )
    parser.add_argument(
        "traces", nargs="*", metavar="TRACE", help="a file of any format"
    )
    parser.add_argument(
        "--features",
        type=Path,
        metavar="FILE",
        help="a table of features, CSV or Parquet, instead of traces",
    )
    parser.add_argument(
        "--clusters", type=int, metavar="N", help="groups; else the elbow"
    )
    parser.add_argument(
        "--dimensions", type=int, default=10, metavar="N", help="most to keep (10)"
    )
    parser.add_argument("--format", metavar="NAME", help="the files' format")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="only the first N requests"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write it to FILE"
    )
    parser.add_argument(
        "--parquet", type=Path, metavar="FILE", help="write the feature table to FILE"
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write the picture to FILE"
    )
    args = parser.parse_args(words)
    try:
        sources = [*args.traces, *([args.features] if args.features else [])]
        read = {Path(source).resolve() for source in sources}
        for path in (args.output, args.parquet, args.html):
            if path is not None and path.resolve() in read:
                raise ForebayError(f"{path} is both read and written", 2)
        given = {"format": args.format, "limit": args.limit}
        options = {name: value for name, value in given.items() if value is not None}
        found = find(
            *args.traces,
            table=args.features,
            clusters=args.clusters,
            dimensions=max(1, args.dimensions),
            **options,
        )
        _write(found, args)
    except (ForebayError, OSError) as error:
        print(f"forebay: {error}", file=sys.stderr)
        return getattr(error, "status", 1)
    except KeyboardInterrupt:
        print("forebay: stopped by a signal before the work was done", file=sys.stderr)
        return 1
    return 0


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


def _text(found: Representatives) -> str:
    lines = [f"{len(found.features)} traces in {len(found.clusters)} groups"]
    for number, cluster in enumerate(found.clusters, 1):
        lines.append(f"\n{number}. {cluster.trace}  stands for {len(cluster.members)}")
        lines += [f"     {member}" for member in cluster.members[1:]]
    return "\n".join(lines) + "\n"
