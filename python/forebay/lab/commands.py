"""`forebay study`, `forebay fleet` and `forebay advise`, which the binary runs as programs of the
package.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forebay import arguments
from forebay._run import ForebayError
from forebay.arguments import count, guarded
from forebay.lab.slices import SLICE_ABOVE_BYTES
from forebay.lab.values import number


def study(words: Sequence[str] | None = None) -> int:
    """Runs `forebay study`; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="forebay study",
        description="Run every combination of traces and configurations in a study file.",
        epilog="Example:  forebay study sizes.toml -o sizes",
    )
    parser.add_argument("file", metavar="FILE", help="the study file, TOML")
    arguments.add_directory(parser, "the directory for the rows and the report")
    _workers(parser)
    dry = "count the cells, and run a few to estimate the time for all"
    arguments.add_flag(parser, "--dry-run", dry)
    arguments.add_flag(parser, "--retry-failed", "rerun failed cells")
    args = parser.parse_args(words)
    return guarded(lambda: _study(args))


def _study(args: argparse.Namespace) -> None:
    from forebay.lab.spec import read
    from forebay.lab.study import Study

    spec = read(args.file)
    if args.dry_run:
        with tempfile.TemporaryDirectory(prefix="forebay-dry-") as scratch:
            made = Study(spec, args.output or Path(scratch), args.quiet)
            found = made.dry_run(args.workers or os.cpu_count() or 1)
        print(found.text, flush=True)
        found.raise_for_failures()
        return
    if args.output is None:
        raise ForebayError(
            "-o DIR is missing: it sets the directory for the rows and the report", 2
        )
    outcome = Study(spec, args.output, args.quiet).run(
        args.workers, args.scheduler, args.retry_failed
    )
    print(outcome.text(args.output), flush=True)
    outcome.raise_for_failures(args.output)


def fleet(words: Sequence[str] | None = None) -> int:
    """Runs `forebay fleet`; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="forebay fleet",
        description="Write tables of features, curves and plans of all traces below a directory, with one row per volume.",
        epilog="Example:  forebay fleet traces -o fleet --budget 5% --backing SlowHDD",
    )
    parser.add_argument(
        "source", type=Path, metavar="DIR", help="the directory of the traces"
    )
    arguments.add_directory(
        parser, "the directory for the tables and the report", required=True
    )
    parser.add_argument(
        "--glob",
        default="**/*",
        metavar="PATTERN",
        help="glob of the files to read (default: **/*)",
    )
    parser.add_argument(
        "--max-blocks",
        type=count,
        default=65_536,
        metavar="N",
        help="maximum number of blocks to sample for a curve (default: 65536)",
    )
    parser.add_argument(
        "--points",
        type=count,
        default=50,
        metavar="N",
        help="maximum number of points of a curve (default: 50)",
    )
    parser.add_argument(
        "--budget",
        metavar="USD",
        help="plan each volume for this budget: dollars, or a percentage",
    )
    parser.add_argument(
        "--backing",
        metavar="DEVICE",
        help="with --budget: the backing store of the volumes, a device in the catalogue of `forebay plan` "
        "(default: the store of the fastest plan)",
    )
    plain = "omit the features of volumes that share a file: each volume requires another pass over the file"
    arguments.add_flag(parser, "--no-features", plain)
    parser.add_argument(
        "--consolidate",
        metavar="SIZE",
        help="report whether all volumes fit together in a cache of SIZE",
    )
    parser.add_argument(
        "--partition", metavar="FLASH", help="divide this much flash among all volumes"
    )
    parser.add_argument(
        "--slices",
        type=_slices,
        metavar="N",
        help="measure all blocks of large files in N slices, each slice on a separate worker",
    )
    parser.add_argument(
        "--slice-above",
        type=_size,
        default=SLICE_ABOVE_BYTES,
        metavar="SIZE",
        help="with --slices: files of more than SIZE are large (default: 4GiB)",
    )
    _workers(parser)
    again = "rerun what failed; commands that were killed are rerun in any case"
    arguments.add_flag(parser, "--retry-failed", again)
    args = parser.parse_args(words)
    return guarded(lambda: _fleet(args))


def _fleet(args: argparse.Namespace) -> None:
    from forebay.lab.fleet import fleet as scan

    if args.backing is not None and args.budget is None:
        raise ForebayError("--backing is for plans, so it requires --budget", 2)
    found = scan(
        args.source,
        args.output,
        pattern=args.glob,
        max_blocks=args.max_blocks,
        points=args.points,
        budget=args.budget,
        backing=args.backing,
        features=not args.no_features,
        consolidate=args.consolidate,
        partition=args.partition,
        slices=args.slices,
        slice_above=args.slice_above,
        workers=args.workers,
        scheduler=args.scheduler,
        retry_failed=args.retry_failed,
        quiet=args.quiet,
    )
    print(found.text(args.output), flush=True)
    found.raise_for_failures(args.output)


def advise(words: Sequence[str] | None = None) -> int:
    """Runs `forebay advise`; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="forebay advise",
        description="Advise whether a second tier pays off for a trace, which policy and block size to use, and what to "
        "admit to flash. The answers come from decision trees trained on simulations.",
        epilog="Example:  forebay advise trace.csv --dram 1GiB --flash 16GiB",
    )
    parser.add_argument("traces", nargs="*", metavar="TRACE", help="the trace")
    parser.add_argument(
        "--dram",
        default="10%",
        metavar="SIZE",
        help="memory: a size, or a share of the distinct data (default: 10%%)",
    )
    parser.add_argument(
        "--flash",
        default="50%",
        metavar="SIZE",
        help="the second tier: a size, or a share of the distinct data (default: 50%%)",
    )
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="a model written by --train"
    )
    parser.add_argument(
        "--train",
        type=Path,
        metavar="DIR",
        help="train a model in DIR on synthetic workloads and the traces; write the model to the file given with -o",
    )
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write pictures of the trees to FILE"
    )
    arguments.add_trace_reading(parser)
    arguments.add_answer(parser)
    _workers(parser)
    args = parser.parse_args(words)
    return guarded(lambda: print(_advise(args)))


def _advise(args: argparse.Namespace) -> str:
    from forebay.lab import advise as advisor

    arguments.check_outputs(args.output, args.html)
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
        raise ForebayError("give exactly one trace", 2)
    document = advisor.advise(
        args.traces[0],
        dram=args.dram,
        flash=args.flash,
        model=args.model,
        **arguments.trace_reading(args),
    )
    if args.html is not None:
        advisor.page(document, advisor.load(args.model), args.html)
    said = json.dumps(document, indent=2) if args.json else advisor.text(document)
    if args.output is not None:
        args.output.write_text(said + "\n", encoding="utf-8")
        return f"written to {args.output}"
    return said


def _slices(text: str) -> int:
    if not 2 <= count(text) <= 256:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 2 to 256")
    return int(text)


def _size(text: str) -> int:
    size = number(text)
    if size is None or size < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 4GiB")
    return int(size)


def _trained(model: dict[str, Any], path: Path) -> str:
    lines = [f"{model['workloads']} workloads, model in {path}"]
    for name, tree in model["questions"].items():
        baseline = tree["baseline"]
        lines.append(
            f"{name}, {tree['rows']} rows; always `{baseline['answer']}`: {baseline['accuracy']:.1%}"
        )
        checked = tree["cross_validated"]
        figures = {
            "unseen workloads": checked["by_workload"],
            "unseen families": checked["by_family"],
            "workloads held out": tree["held_out"],
        }
        for on, one in figures.items():
            lines.append(
                f"  {on}: {one['accuracy']:.1%} right (weighted precision {one['precision']:.1%}, "
                f"recall {one['recall']:.1%}), {one['near']:.1%} right or within 0.01 of it"
            )
        each = (
            f"{name} {one['accuracy']:.1%}" for name, one in tree["families"].items()
        )
        lines.append(f"  each family when held out: {', '.join(each)}")
    return "\n".join(lines)


def _workers(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--workers",
        type=count,
        metavar="N",
        help="number of cells to run at a time (default: one for each processor)",
    )
    where.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="a Dask scheduler, such as tcp://host:8786",
    )
    arguments.add_quiet(parser)
