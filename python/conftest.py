"""Fixtures for the examples in docstrings and in the tour."""

import subprocess
from pathlib import Path

import pytest

from forebay._run import binary

# This file runs only where the package is built.
collect_ignore = ["hatch_build.py"]


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory):
    """Traces of three kinds, keyed by the name of the kind and a number."""
    directory = tmp_path_factory.mktemp("traces")
    specs = {
        "zipf": "zipf:blocks=2k,requests=4k,write=0.3",
        "sequential": "sequential:blocks=8k,requests=4k,write=0",
        "uniform": "uniform:blocks=50k,requests=4k,write=1",
    }
    made = {}
    for kind, spec in specs.items():
        for number in (1, 2):
            path = directory / f"{kind}-{number}.parquet"
            words = ["-q", "trace", "synth", f"{spec},seed={number}", "-o", str(path)]
            subprocess.run([binary(), *words], check=True, capture_output=True)
            made[kind, number] = path
    return made


@pytest.fixture(scope="session")
def example():
    """The trace that the documentation uses."""
    return Path(__file__).parent.parent / "docs" / "traces" / "sqlite-shop.parquet"


@pytest.fixture(scope="session")
def scheduler():
    """The address of a cluster of two workers, so that a study need not start its own."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        memory_limit=0,
        dashboard_address="127.0.0.1:0",
        resources={"machine": 1},
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(autouse=True)
def examples(doctest_namespace, example, synthetic):
    doctest_namespace["EXAMPLE"] = example
    doctest_namespace["SECOND"] = synthetic["zipf", 1]
    doctest_namespace["TRACES"] = sorted(map(str, synthetic.values()))
