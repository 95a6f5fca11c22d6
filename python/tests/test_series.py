"""Pictures over time, and the spread over repeats: each number on the page comes from its rows."""

import json

import polars as pl
import pytest
from forebay import ForebayError
from forebay.lab import pictures, spec
from forebay.lab.series import Series, intervals, joined
from forebay.lab.study import Study

STUDY = """
title = "Over time"
traces = [{{ path = "{trace}", name = "zipf" }}]
series = {series}
repeats = {repeats}
target = {target}
[base]
"cache.write_policy" = "write-back"
"flash.size" = "8MiB"
volume = [{{ name = "v", backing = "{{scratch}}/disk", size = "64MiB" }}]
{base}
[sweep]
"cache.dram" = ["1MiB", "4MiB"]
{figures}
"""


@pytest.fixture
def run(synthetic, tmp_path, scheduler):
    def run_(
        target="simulate", series="true", repeats=1, base="", figures="", folder="out"
    ):
        text = STUDY.format(
            trace=synthetic["zipf", 1],
            series=series,
            repeats=repeats,
            target=json.dumps(target),
            base=base,
            figures=figures,
        )
        made = Study(spec.parse(text, tmp_path), tmp_path / folder, quiet=True)
        return made.run(scheduler=scheduler), tmp_path / folder

    return run_


def headed(outcome, directory, title):
    """The figure below a heading of the report."""
    tables = pictures.Tables(outcome.rows, pl.DataFrame(), Series(directory / "series"))
    made = pictures.figures(spec.read(directory / "study.toml"), tables)
    assert f"<h2>{title}</h2>" in (directory / "report.html").read_text()
    (figure,) = [picture.figure for picture in made if picture.title == title]
    return figure


def points(figure):
    """The values of each line, by cell."""
    return {
        trace.customdata[0][0]: [round(float(y), 9) for y in trace.y]
        for trace in figure.data
    }


def test_the_pictures_over_time_show_the_intervals_of_their_cells(run):
    outcome, out = run()
    assert outcome.rows["error"].to_list() == [None] * 2
    drawn = points(headed(outcome, out, "requests_per_s over time"))
    assert set(drawn) == set(outcome.rows["cell"])
    dirty = points(headed(outcome, out, "dirty_blocks over time"))
    misses = points(headed(outcome, out, "miss_ratio over time"))
    for row in outcome.rows.to_dicts():
        own = pl.read_parquet(out / "series" / f"{row['cell']}.parquet")
        assert own.height > 2 and own["requests"].sum() == row["requests"]
        rates = own["requests"] / (own["end_s"] - own["start_s"])
        assert drawn[row["cell"]] == [round(rate, 9) for rate in rates]
        assert dirty[row["cell"]] == own["dirty_blocks"].to_list() and max(
            own["dirty_blocks"]
        )
        # The ratios of the intervals, weighted by their accesses, give the ratio of the run.
        made = intervals(own)
        accesses = made["hits"] + made["misses"]
        whole = (made["miss_ratio"] * accesses).sum() / accesses.sum()
        assert whole == pytest.approx(1 - row["hit_ratio"])
        assert misses[row["cell"]] == [round(m, 9) for m in made["miss_ratio"]]
    page = (out / "report.html").read_text()
    assert "intervals of 2 of 2 cells, series/CELL.parquet" in page


def test_a_replay_has_a_series_of_requests_and_none_of_dirty_blocks(run):
    base = '"options.as_fast_as_possible" = true\n"options.write" = true\n'
    base += '"options.interval" = "1ms"'
    outcome, out = run("replay", base=base)
    assert outcome.rows["error"].to_list() == [None] * 2
    drawn = points(headed(outcome, out, "requests_per_s over time"))
    for row in outcome.rows.to_dicts():
        own = pl.read_parquet(out / "series" / f"{row['cell']}.parquet")
        assert own["requests"].sum() == row["requests"] and own.height > 1
        assert len(drawn[row["cell"]]) == own.height
    assert "dirty_blocks over time" not in (out / "report.html").read_text()
    series = Series(out / "series")
    tables = pictures.Tables(outcome.rows, pl.DataFrame(), series)
    with pytest.raises(ForebayError, match="no series has dirty_blocks"):
        pictures.draw({"kind": "series", "y": "dirty_blocks"}, tables)


def test_a_series_that_is_asked_for_later_is_made(run):
    first, out = run(series="false")
    assert first.cells == 2 and not (out / "series").exists()
    second, _ = run()
    assert second.rows["cell"].to_list() == first.rows["cell"].to_list()
    assert len(list((out / "series").iterdir())) == 2
    third, _ = run()
    names = [
        json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()
    ]
    assert third.known == 2 and len(names) == 6, "two, two forgotten, two again"


def test_intervals_are_joined_by_the_hour():
    rows = pl.DataFrame(
        {
            "start_s": [0.0, 1800.0, 3600.0, 9000.0],
            "end_s": [1800.0, 3600.0, 5400.0, 10800.0],
            "requests": [10, 30, 0, 8],
            "hits": [5, 5, None, 4],
            "misses": [5, 25, None, 4],
            "dirty_blocks": [7, 3, 2, 9],
            "latency_us.mean": [100.0, 200.0, None, 50.0],
            "latency_us.p99": [1.0, 2.0, 3.0, 4.0],
        }
    )
    hours = joined(rows, 3600)
    assert hours["start_s"].to_list() == [0, 3600, 9000]
    assert hours["miss_ratio"].to_list() == [30 / 40, None, 0.5]
    assert hours["dirty_blocks"].to_list() == [3, 2, 9]
    assert hours["requests_per_s"].to_list() == [40 / 3600, 0, 8 / 1800]
    assert hours["latency_us.mean"][0] == pytest.approx(175)
    assert hours["latency_us.p99"].null_count() == 3


def test_repeats_are_drawn_with_their_deviation_and_listed_with_their_spread(run):
    figure = '[[figure]]\nkind = "line"\nx = "cache.dram"\ny = "latency_us.all.mean"\n'
    outcome, out = run(repeats=3, series="false", figures=figure)
    rows, spread = outcome.rows, pl.read_parquet(out / "repeats.parquet")
    assert rows.height == 6 and spread["repeats"].to_list() == [3, 3]
    for one in spread.to_dicts():
        own = rows.filter(pl.col("cache.dram") == one["cache.dram"])
        latency = own["latency_us.all.mean"]
        assert latency.n_unique() == 3, "each repeat has a seed of its own"
        assert one["latency_us.all.mean.mean"] == pytest.approx(latency.mean())
        assert one["latency_us.all.mean.std"] == pytest.approx(latency.std())
        assert one["latency_us.all.mean.min"] == latency.min()
        assert one["latency_us.all.mean.max"] == latency.max()
    (line,) = headed(outcome, out, "latency_us.all.mean by cache.dram").data
    assert list(line.y) == pytest.approx(spread["latency_us.all.mean.mean"].to_list())
    deviation = spread["latency_us.all.mean.std"].to_list()
    assert list(line.error_y.array) == pytest.approx(deviation)
    named = {name for point in line.customdata for name in point[0].split(", ")}
    assert named == set(rows["cell"])
    page = (out / "report.html").read_text()
    one = spread.row(0, named=True)
    least, most = one["latency_us.all.mean.min"], one["latency_us.all.mean.max"]
    assert f"({least:.5g} to {most:.5g})" in page and "repeats.parquet" in page
