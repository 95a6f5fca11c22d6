#!/usr/bin/env python3
"""Prints the [[volume]] sections that a trace needs, from `forebay trace info --json`.

    volumes.py INFO.json DIRECTORY SHAPE

Each volume is a file in DIRECTORY with the speed of the device SHAPE; the files are sparse, so they
use space only for written data.
"""

import json
import sys

MIB = 1 << 20


def main():
    info, directory, shape = sys.argv[1:]
    with open(info, encoding="utf-8") as file:
        volumes = json.load(file)["per_volume"]
    for number, volume in enumerate(volumes):
        size = (volume["end_bytes"] + MIB - 1) // MIB * MIB
        print("[[volume]]")
        print(f"name = {json.dumps(volume['volume'])}")
        print(f"backing = {json.dumps(f'{directory}/disk{number}.img')}")
        print(f"size = {max(size, MIB)}")
        print(f"shape = {json.dumps(shape)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
