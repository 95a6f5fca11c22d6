#!/usr/bin/env python3
"""Prints in words what two tiers gain over one.

Arguments: the documents of one and of two tiers, first replayed, then simulated.
"""

import json
import sys


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def rate(run):
    return run["throughput"]["requests_per_s"]


def mean_ms(run):
    return run["latency_us"]["all"]["mean"] / 1e3


def words(one, two, one_simulated, two_simulated):
    ratio = rate(two) / rate(one)
    predicted = rate(two_simulated) / rate(one_simulated)
    depth = two["options"]["queue_depth"]
    verdict = "Flash paid" if ratio > 1.02 else "Flash did not pay on this trace"
    return [
        f"{verdict}: for the same money, memory and flash served {ratio:.2f} times as many requests a",
        f"second as memory alone ({rate(two):,.0f} and {rate(one):,.0f}; the simulation predicted {predicted:.2f} times).",
        f"With {depth} requests in flight, the mean latency is {mean_ms(two):.2f} ms instead of {mean_ms(one):.2f} ms.",
    ]


def main():
    for line in words(*(load(path) for path in sys.argv[1:5])):
        print(f"    {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
