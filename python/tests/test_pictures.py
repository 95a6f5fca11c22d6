"""Pictures of studies: each kind shows the values of the rows that it was given."""

import polars as pl
import pytest
from forebay._run import ForebayError
from forebay.lab import pictures
from forebay.lab.series import Series


@pytest.fixture
def tables(tmp_path):
    """Two sizes of memory for each of two traces, with two repeats."""
    rows = [
        {
            "cell": f"c{number}",
            "trace": trace,
            "target": "simulate",
            "repeat": repeat,
            "cache.dram": dram,
            "status": "ok",
            "hits.tier1": tier1 + 2 * repeat,
            "hits.tier2": 10,
            "cost_usd": tier1 / 10,
        }
        for number, (trace, dram, tier1, repeat) in enumerate(
            (trace, dram, tier1, repeat)
            for trace in ("a", "b")
            for dram, tier1 in (("10MiB", 40), ("9MiB", 20))
            for repeat in (0, 1)
        )
    ]
    return pictures.Tables(pl.DataFrame(rows), pl.DataFrame(), Series(tmp_path))


def drawn(tables, **figure):
    return pictures.draw(figure, tables).figure.data


def test_a_scatter_has_a_point_for_each_row_where_sizes_count_by_their_values(tables):
    (points,) = drawn(
        tables, kind="scatter", x="cache.dram", y="hits.tier1", color="cost_usd"
    )
    assert sorted(set(points.x)) == [9 << 20, 10 << 20]
    assert sorted(points.y) == [20, 20, 22, 22, 40, 40, 42, 42]
    assert sorted(set(points.marker.color)) == [2.0, 4.0]
    assert {cell for (cell, *_) in points.customdata} == {f"c{n}" for n in range(8)}


def test_a_box_and_a_histogram_have_every_row(tables):
    boxes = drawn(tables, kind="box", x="cache.dram", y="hits.tier1", color="trace")
    assert {box.name: sorted(box.y) for box in boxes} == {
        trace: [20, 22, 40, 42] for trace in ("a", "b")
    }
    counts = drawn(tables, kind="histogram", x="hits.tier1", color="trace")
    assert [sorted(count.x) for count in counts] == [[20, 22, 40, 42]] * 2


def test_a_stack_has_the_mean_of_each_column_or_its_share_of_their_sum(tables):
    figure = {"kind": "stack", "x": "cache.dram", "y": ["hits.tier1", "hits.tier2"]}
    bars = {bar.name: dict(zip(bar.x, bar.y)) for bar in drawn(tables, **figure)}
    assert bars == {
        "hits.tier1": {"9MiB": 21, "10MiB": 41},
        "hits.tier2": {"9MiB": 10, "10MiB": 10},
    }
    made = pictures.draw({**figure, "share": True, "facet": "trace"}, tables)
    for bar in made.figure.data:
        shares = dict(zip(bar.x, bar.y))
        own = {"hits.tier1": (21 / 31, 41 / 51), "hits.tier2": (10 / 31, 10 / 51)}
        assert (shares["9MiB"], shares["10MiB"]) == pytest.approx(own[bar.name])
    # In the order of the values, with the names of the columns.
    assert list(made.figure.layout.xaxis.categoryarray) == ["9MiB", "10MiB"]
    assert made.source.endswith("columns cache.dram, hits.tier1, hits.tier2, trace")
    assert made.title == "hits.tier1, hits.tier2 by cache.dram"


def test_a_figure_without_what_its_kind_needs_is_refused(tables):
    for figure, what in (
        ({"kind": "scatter", "x": "cache.dram"}, "a scatter requires y"),
        ({"kind": "histogram"}, "a histogram requires x"),
        ({"kind": "heatmap", "x": "trace", "y": "repeat"}, "a heatmap requires z"),
        (
            {"kind": "stack", "x": "trace", "y": ["hits.tier9"]},
            "no column `hits.tier9`",
        ),
        ({"kind": "pie", "x": "trace"}, "'pie' is not one of line"),
    ):
        with pytest.raises(ForebayError, match=what):
            pictures.draw(figure, tables)
