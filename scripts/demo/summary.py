#!/usr/bin/env python3
"""Prints a line for each run (forebay simulate or replay --json)."""

import json
import sys


def line(run):
    hits, misses = run["hits"], run["misses"]
    accesses = sum(
        sum(part.values()) for part in (hits["tier1"], hits["tier2"], misses)
    )
    # Only a replay has a target.
    how = "replayed " if "target" in run else "simulated"
    per_s = run["throughput"]["requests_per_s"]
    latency = run["latency_us"]["all"]
    return (
        f"    {how}  {per_s:6.0f} requests a second, {sum(hits['tier1'].values()) / accesses:5.1%} hits in memory, "
        f"{sum(hits['tier2'].values()) / accesses:5.1%} on flash, mean latency "
        f"{latency['mean'] / 1e3:.2f} ms, 99 % within {latency['p99'] / 1e3:.1f} ms"
    )


def main():
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            print(line(json.load(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
