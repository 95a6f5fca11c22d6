"""Groups of traces."""

import json
import pathlib

import forebay
import polars as pl
import pytest
from forebay.commands import representatives as command


def kinds(cluster):
    return {member.rsplit("/", 1)[-1].split("-")[0] for member in cluster.members}


def test_traces_of_a_kind_are_together(synthetic):
    found = forebay.representatives(*synthetic.values())
    assert [len(kinds(cluster)) for cluster in found.clusters] == [1, 1, 1]
    assert all(cluster.trace in cluster.members for cluster in found.clusters)
    assert found.points.height == found.features.height == 6
    within = found.elbow["within"].to_list()
    assert within == sorted(within, reverse=True) and within[0] == 1


def test_the_number_of_groups_can_be_given(synthetic):
    for count in (1, 2, 6):
        found = forebay.representatives(*synthetic.values(), clusters=count)
        assert len(found.clusters) == count


def test_alike_traces_are_one_group(synthetic):
    same = synthetic["zipf", 1]
    found = forebay.representatives(same, same)
    assert [len(cluster.members) for cluster in found.clusters] == [2]


def test_the_command_writes_what_it_is_asked_for(synthetic, tmp_path, capsys):
    traces = [str(path) for path in synthetic.values()]
    page, table = tmp_path / "x.html", tmp_path / "x.parquet"
    assert (
        command([*traces, "--json", "--html", str(page), "--parquet", str(table)]) == 0
    )
    document = json.loads(capsys.readouterr().out)
    # `forebay report` draws these.
    assert sorted(document["clusters"][0]) == ["members", "trace"]
    assert sorted(document["elbow"][0]) == ["clusters", "within"]
    assert [point["trace"] for point in document["points"]] == traces
    assert {"trace", "cluster", "d1", "d2"} <= document["points"][0].keys()
    assert "plotly" in page.read_text().lower() and table.exists()
    assert command(traces) == 0
    assert "represents " in capsys.readouterr().out


def test_a_table_of_features_is_clustered_as_its_traces_are(
    synthetic, tmp_path, capsys
):
    traces = [str(path) for path in synthetic.values()]
    by_traces = forebay.representatives(*traces)
    for name, write in [("t.csv", "write_csv"), ("t.parquet", "write_parquet")]:
        getattr(by_traces.features, write)(tmp_path / name)
        found = forebay.representatives(table=tmp_path / name)
        assert found.clusters == by_traces.clusters
        assert command(["--features", str(tmp_path / name), "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["clusters"]) == 3
    assert command([*traces, "--features", str(tmp_path / "t.csv")]) == 2
    assert command(["--features", str(tmp_path / "missing.csv")]) == 1


def test_the_features_of_a_hundred_published_traces_are_clustered():
    # Relative to the repository's root; the public traces are not part of the repository.
    root = pathlib.Path(__file__).parents[2]
    tables = root / "../shared/traces/cloudphysics"
    table = tables / "cloudphysics_block_features_w01-w106.csv"
    if not table.exists():
        pytest.skip("the table of features is not there")
    found = forebay.representatives(table=table)
    members = [member for cluster in found.clusters for member in cluster.members]
    assert len(members) == len(set(members)) == 106
    assert 2 <= len(found.clusters) <= 30


@pytest.mark.parametrize(
    "words", [["only-one.csv"], ["a.csv", "b.csv", "--clusters", "9"]]
)
def test_what_makes_no_sense_is_bad_usage(words, capsys):
    assert command(words) == 2
    assert capsys.readouterr().err.startswith("forebay: ")


def test_it_can_be_told_to_be_quiet(synthetic, capsys):
    """`forebay -q NAME` passes the option on to each command of the package."""
    first, second = list(synthetic.values())[:2]
    assert command(["--quiet", str(first), str(second)]) == 0
    assert capsys.readouterr().err == ""


def test_no_dimensions_are_refused():
    table = pl.DataFrame({"trace": ["a", "b"], "wss": [1, 2]})
    with pytest.raises(forebay.ForebayError, match="cannot keep 0 dimensions"):
        forebay.representatives(table=table, dimensions=0)


def test_a_trace_is_not_written_over(synthetic, capsys):
    first, second = list(synthetic.values())[:2]
    before = first.read_bytes()
    assert command([str(first), str(second), "-o", str(first)]) == 2
    assert (
        first.read_bytes() == before
        and "both read and written" in capsys.readouterr().err
    )
