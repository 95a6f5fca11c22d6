"""The tables of docs/sampling.md about single samples; see tables.py."""

from common import ask, name_of, row

TENTH = ["--rate", "0.1", "-o", "tenth.parquet"]


def percent(share):
    return f"{100 * share:.1f} %"


def region(bits):
    kib = 4 << bits
    return f"{kib} KiB" if kib < 1024 else f"{kib >> 10} MiB"


def regions(trace):
    """Errors of a sample of a tenth, by region size."""
    row("regions of", "requests kept", "mean error of features", "hit-ratio error")
    row("---", *["---:"] * 3)
    for one in ask("sample", trace, *TENTH, "--bits", "4", "--compare")["comparison"]:
        errors = one["request_ratio"], one["mean_error"], one["hit_ratio_error"]["all"]
        row(region(one["bits"]), *map(percent, errors))


def reduced(trace):
    """The regions that `--target-rate` removes from a sample of a tenth, and the errors before
    and after.
    """
    row(
        "regions of",
        "regions removed",
        "mean error before",
        "mean error after",
        "hit-ratio error",
    )
    row("---", *["---:"] * 4)
    for bits in (4, 5, 6):
        words = [*TENTH, "--bits", str(bits), "--target-rate", "0.05"]
        found = ask("sample", trace, *words)
        less = found["reduction"]
        row(
            region(bits),
            f"{less['removed']:,} of {less['regions']:,}",
            percent(less["mean_error_before"]),
            percent(found["mean_error"]),
            percent(found["hit_ratio_error"]["all"]),
        )


def by_default(*traces):
    """Errors of a sample of a tenth with the default options, and with the plain method."""
    row(
        "",
        "requests",
        "regions of",
        "features",
        "hit ratios of reads, of writes, of all",
        "plain: features",
        "plain: hit ratios of all",
    )
    row("---", *["---:"] * 6)
    for trace in traces:
        found = ask("sample", trace, *TENTH)
        off, plain = found["hit_ratio_error"], found["plain"]
        row(
            name_of(trace),
            f"{found['trace_requests']:,}",
            region(found["bits"]),
            f"{found['mean_error']:.1%}",
            ", ".join(f"{off[kind]:.1%}" for kind in ("read", "write", "all")),
            f"{plain['mean_error']:.1%}",
            f"{plain['hit_ratio_error']['all']:.1%}",
        )
