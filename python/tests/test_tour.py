"""The tour in the documentation runs as it stands."""

import doctest
from pathlib import Path


def test_the_tour_runs(monkeypatch):
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    tour = str(root / "docs" / "python.md")
    done = doctest.testfile(tour, module_relative=False, optionflags=doctest.ELLIPSIS)
    assert done.failed == 0 and done.attempted > 10
