"""Search: it comes near the best of the sweep at a part of its cost, with the same result for any
number of workers.
"""

import forebay
import pytest
from forebay.lab import spec
from forebay.lab.study import Study

STUDY = """
traces = ["{trace}"]
{search}
constraints = ["cache.dram < flash.size"]
[base]
"options.untimed" = true
[sweep]
"cache.dram" = ["512KiB", "1MiB", "2MiB", "4MiB"]
"cache.write_policy" = ["write-through", "read-only"]
"flash.size" = ["4MiB", "8MiB", "16MiB"]
"replacement.policy" = ["lru", "arc", "fifo"]
"""


@pytest.fixture
def run(scheduler):
    return lambda *given: _run(scheduler, *given)


def _run(scheduler, trace, directory, search=""):
    text = STUDY.format(trace=trace, search=search)
    study = Study(spec.parse(text, directory), directory / "out", quiet=True)
    return study.run(scheduler=scheduler)


def test_a_search_says_how_near_the_full_sweep_it_came(run, synthetic, tmp_path):
    trace = synthetic["zipf", 1]
    full = run(trace, tmp_path)
    best = full.rows["hit_ratio"].max()
    for search in ('"random"', '"optuna"'):
        text = f'search = {search}\nobjective = "max hit_ratio"\ntrials = 0.25'
        (found,) = run(trace, tmp_path, text).search.rows(named=True)
        assert found["full_best"] == best >= found["best"]
        assert found["gap"] == pytest.approx((best - found["best"]) / best)
        assert found["cells_full"] == found["combinations"] // 4
        assert 0 < found["cost_share"] < 1
    assert found["gap"] < 0.1


def test_halving_tries_more_combinations_on_samples(run, synthetic, tmp_path):
    text = 'search = "optuna"\nobjective = "max hit_ratio"\ntrials = 0.25\n'
    text += "fidelity = [0.25, 1]"
    outcome = run(synthetic["zipf", 1], tmp_path, text)
    (found,) = outcome.search.rows(named=True)
    assert found["cells_sampled"] > found["cells_full"] > 0
    assert outcome.rows.height == found["cells_full"]
    assert found["full_best"] is None and found["best"] > 0
    again = run(synthetic["zipf", 1], tmp_path, text)
    same = ["best", "combination", "cells_full", "cells_sampled"]
    assert again.search.select(same).equals(outcome.search.select(same))
    assert again.known == again.cells


def test_an_objective_that_rows_lack_is_named(run, synthetic, tmp_path):
    text = 'search = "random"\nobjective = "max hit_rate"'
    with pytest.raises(forebay.ForebayError, match="hit_ratio"):
        run(synthetic["zipf", 1], tmp_path, text)


def test_trials_above_one_are_a_number_of_cells(run, synthetic, tmp_path):
    text = 'search = "random"\nobjective = "min hit_ratio"\ntrials = 3'
    assert run(synthetic["uniform", 1], tmp_path, text).cells == 3
