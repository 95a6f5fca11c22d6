"""Fleets: a row for each volume of all files, whatever else lies there."""

import json
import shutil

import polars as pl
import pytest
from forebay.lab.commands import fleet as command
from forebay.lab.fleet import fleet


@pytest.fixture
def traces(synthetic, tmp_path):
    """Two files of one volume, one of two, and one that is no trace."""
    home = tmp_path / "traces"
    (home / "deep").mkdir(parents=True)
    shutil.copy(synthetic["zipf", 1], home / "zipf.parquet")
    shutil.copy(synthetic["uniform", 1], home / "deep" / "uniform.parquet")
    (home / "two.csv").write_text(
        "time_us,op,offset,length,volume\n"
        + "".join(f"{n},r,{n % 7 * 4096},4096,{'ab'[n % 2]}\n" for n in range(200))
    )
    (home / "README").write_text("no trace\n")
    return home


def test_a_fleet_has_a_row_for_each_volume_and_goes_on(
    traces, tmp_path, capsys, scheduler
):
    out = tmp_path / "fleet"
    line = [
        str(traces),
        "-o",
        str(out),
        "--budget",
        "20%",
        "--scheduler",
        scheduler,
        "-q",
    ]
    assert command([*line, "--consolidate", "64MiB", "--partition", "64MiB"]) == 0
    said = capsys.readouterr().out
    assert "4 files, 0 of them known before, 1 failed; 4 volumes" in said
    rows = pl.read_parquet(out / "volumes.parquet")
    good = rows.filter(pl.col("status") == "ok")
    assert good.sort("volume")["volume"].to_list()[:2] == ["a", "b"]
    assert good["requests"].sum() == 4000 + 4000 + 200
    assert good["feature.block_req_count"].sum() == 4000 + 4000 + 200
    (failed,) = rows.filter(pl.col("status") != "ok").rows(named=True)
    assert failed["trace"].endswith("README") and "trace format" in failed["error"]
    curves = pl.read_parquet(out / "curves.parquet")
    assert curves.group_by("trace", "volume").len().height == 4
    # The curve of a volume is that of the volume alone.
    alone = curves.filter(pl.col("volume") == "a")["miss_ratio"].min()
    assert alone == pytest.approx(7 / 100)
    assert "workloads" in json.loads((out / "consolidate.json").read_text())
    assert "volumes" in json.loads((out / "partition.json").read_text())
    assert (
        "4 volumes, 8200 requests, 1 failed files" in (out / "report.html").read_text()
    )
    again = fleet(traces, out, budget="20%", scheduler=scheduler)
    assert (again.files, again.known) == (4, 4) and again.volumes.equals(rows)
    # A file that has changed is looked at again.
    with (traces / "two.csv").open("a") as file:
        file.write("300,r,0,4096,a\n")
    again = fleet(traces, out, budget="20%", scheduler=scheduler)
    assert (again.files, again.known) == (4, 3)


def test_a_directory_without_traces_is_said_so(tmp_path, capsys):
    assert command([str(tmp_path), "-o", str(tmp_path / "out")]) == 1
    assert "has no file that matches" in capsys.readouterr().err
