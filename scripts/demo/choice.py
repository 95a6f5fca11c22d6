#!/usr/bin/env python3
"""Prints the choices of a plan (forebay plan --json) as shell assignments.

These are the first choice with a flash tier, and the single tier of memory of the same cost.
"""

import json
import shlex
import sys


def bought(tiers):
    return " + ".join(
        f"{tier['bytes'] / 2**20:.0f} MiB {tier['device']}" for tier in tiers
    )


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    for choice in plan["choices"]:
        if len(choice["tiers"]) == 2 and choice["tiers"][1]["device"].endswith("SSD"):
            break
    else:
        print(
            "the plan has no choice with a flash tier: raise the budget",
            file=sys.stderr,
        )
        return 1
    memory, flash = choice["tiers"]
    single = choice["baseline"]["tiers"]
    values = {
        "BUDGET": f"${plan['budget_usd']:.2g}",
        "TWO": bought(choice["tiers"]),
        "TWO_DRAM": memory["bytes"],
        "TWO_FLASH": flash["bytes"],
        "TWO_FLASH_DEVICE": flash["device"],
        "TWO_LATENCY_US": f"{choice['mean_latency_us']:.0f}",
        "ONE": bought(single),
        "ONE_DRAM": single[0]["bytes"],
        "ONE_LATENCY_US": f"{choice['baseline']['mean_latency_us']:.0f}",
    }
    for name, value in values.items():
        print(f"{name}={shlex.quote(str(value))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
