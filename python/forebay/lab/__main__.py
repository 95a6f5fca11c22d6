"""`python -m forebay.lab study ...` runs the programs of the package by name."""

import sys

from forebay.lab import commands

if __name__ == "__main__":
    sys.exit(getattr(commands, sys.argv[1])(sys.argv[2:]))
