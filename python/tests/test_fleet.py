"""Fleets: a row for each volume of all files, even if there are other files."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import forebay
import polars as pl
import pytest
from forebay._run import binary
from forebay.lab.commands import fleet as command
from forebay.lab.fleet import fleet


@pytest.fixture
def traces(synthetic, tmp_path):
    """Two files with one volume each, one with two volumes, and one that is not a trace."""
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
        "--backing",
        "SlowHDD",
        "--scheduler",
        scheduler,
        "-q",
    ]
    assert command([*line, "--consolidate", "64MiB", "--partition", "64MiB"]) == 1
    said, errors = capsys.readouterr()
    assert "4 files, 0 of them from earlier runs, 1 failed (" in said
    assert "README); 4 volumes" in said, "the one that failed is named"
    assert errors.startswith("forebay: 1 of 4 files failed\n  1 x ")
    assert "README: not a known trace format" in errors
    # A budget that is too small for a volume is not a failure.
    assert "plans for caches in front of SlowHDD\nvolumes without a plan: 2 (see" in said
    assert "buys no tier" not in errors
    rows = pl.read_parquet(out / "volumes.parquet")
    good = rows.filter(pl.col("status") == "ok")
    assert good.sort("volume")["volume"].to_list()[:2] == ["a", "b"]
    assert good["requests"].sum() == 4000 + 4000 + 200
    assert good["plan.backing"].drop_nulls().unique().to_list() == ["SlowHDD"]
    # Traces without writes have no sizes of writes.
    assert good["feature.write_size_avg"].null_count() >= 2
    assert good["feature.block_req_count"].sum() == 4000 + 4000 + 200
    (failed,) = rows.filter(pl.col("status") != "ok").rows(named=True)
    assert failed["trace"].endswith("README") and "trace format" in failed["error"]
    curves = pl.read_parquet(out / "curves.parquet")
    assert curves.group_by("trace", "volume").len().height == 4
    # The curve of a volume covers that volume alone.
    alone = curves.filter(pl.col("volume") == "a")["miss_ratio"].min()
    assert alone == pytest.approx(7 / 100)
    assert "workloads" in json.loads((out / "consolidate.json").read_text())
    assert "volumes" in json.loads((out / "partition.json").read_text())
    assert (
        "4 volumes, 8200 requests, 1 failed files" in (out / "report.html").read_text()
    )
    plans = {"budget": "20%", "backing": "SlowHDD", "scheduler": scheduler}
    again = fleet(traces, out, **plans)
    assert (again.files, again.known) == (4, 4) and again.volumes.equals(rows)
    # A file that has changed is read again.
    with (traces / "two.csv").open("a") as file:
        file.write("300,r,0,4096,a\n")
    again = fleet(traces, out, **plans)
    assert (again.files, again.known) == (4, 3)
    # If no store is given, the fastest plan over all stores is used, and its store is named.
    again = fleet(traces, out, budget="20%", scheduler=scheduler)
    (store,) = again.volumes["plan.backing"].drop_nulls().unique()
    assert f"plans for caches in front of {store}, chosen because" in again.text(out)
    assert command([str(traces), "-o", str(out), "--backing", "SlowHDD"]) == 2


def test_names_of_volumes_may_have_commas_and_leading_dashes(tmp_path, scheduler):
    home = tmp_path / "odd"
    home.mkdir()
    lines = ["fio version 2 iolog"]
    lines += [
        f"{name} {action}" for name in ("a,b", "-c") for action in ("add", "open")
    ]
    lines += [f"{'-c' if n % 3 else 'a,b'} read {n % 7 * 4096} 4096" for n in range(90)]
    (home / "odd.log").write_text("\n".join(lines) + "\n")
    found = fleet(home, tmp_path / "out", scheduler=scheduler, budget="20%")
    rows = found.volumes.sort("volume")
    assert rows["volume"].to_list() == ["-c", "a,b"]
    assert rows["requests"].to_list() == [60, 30]
    assert rows["features.error"].null_count() == 2
    how = {"slices": 2, "slice_above": 0, "scheduler": scheduler}
    sliced = fleet(home, tmp_path / "slices", **how)
    assert sliced.volumes["curve.error"].null_count() == 2


def test_slices_on_workers_merge_to_the_curve_of_one_process(
    traces, tmp_path, scheduler
):
    (traces / "README").unlink()
    two = traces / "two.csv"
    out = tmp_path / "out"
    how = {"slices": 4, "slice_above": 0, "points": 1000, "scheduler": scheduler}
    whole = fleet(traces, out, **how)
    assert set(whole.volumes["curve.slices"]) == {4}
    assert whole.volumes["curve.error"].to_list() == [None] * 4
    assert list((out / "slices").iterdir()) == [], "merged slices are removed"
    for path, volume in (
        (traces / "zipf.parquet", None),
        (traces / "deep" / "uniform.parquet", None),
        (two, "a"),
        (two, "b"),
    ):
        own = pl.col("trace") == str(path)
        own = own if volume is None else own & (pl.col("volume") == volume)
        row = whole.volumes.row(by_predicate=own, named=True)
        points = whole.curves.filter(own).to_dicts()
        options = {"rows": False, "points": 1000, "volumes": volume}
        sliced = forebay.run("mrc", path, slices=4, **options).document
        assert row["distinct_blocks"] == sliced["distinct_blocks"]
        assert [
            (p["size_blocks"], p["miss_ratio"], p["miss_ratio_bounds.high"])
            for p in points
        ] == [
            (p["size_blocks"], p["miss_ratio"], p["miss_ratio_bounds"]["high"])
            for p in sliced["points"]
        ]
        # Compared with no slices: the same blocks, the same misses of an unbounded cache, and
        # nearly the same curve.
        exact = forebay.run("mrc", path, **options).document
        assert row["distinct_blocks"] == exact["distinct_blocks"]
        assert points[-1]["miss_ratio"] == exact["points"][-1]["miss_ratio"]
    again = fleet(traces, out, **how)
    assert again.known == 3 and again.curves.equals(whole.curves)


def test_a_sliced_curve_is_near_the_exact_one(tmp_path, scheduler):
    home = tmp_path / "traces"
    home.mkdir()
    path = home / "zipf.parquet"
    text = "zipf:blocks=20k,theta=0.8,requests=60k,seed=3"
    words = [binary(), "-q", "trace", "synth", text, "-o", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    out = tmp_path / "out"
    found = fleet(home, out, slices=8, slice_above=0, scheduler=scheduler)
    sizes = [2000, 5000, 10_000, 15_000]
    at = ",".join(str(4096 * size) for size in sizes)
    exact = forebay.run("mrc", path, rows=False, at=at).document
    by_size = {p["size_blocks"]: p["miss_ratio"] for p in exact["points"]}
    for size in sizes:
        near = found.curves.filter(pl.col("size_blocks") <= size).row(-1, named=True)
        assert near["miss_ratio"] == pytest.approx(by_size[size], abs=0.02)


def test_a_slice_that_fails_is_named_and_the_others_are_kept(
    traces, tmp_path, scheduler, monkeypatch
):
    script = tmp_path / "failing-forebay"
    script.write_text(
        f"""#!/bin/sh
        case "$*" in *"zipf.parquet"*"--slice 3 "*) echo 'forebay: too little memory' >&2; exit 1;; esac
        exec {binary()} "$@"
        """
    )
    script.chmod(0o755)
    monkeypatch.setenv("FOREBAY", str(script))
    out = tmp_path / "out"
    found = fleet(traces, out, slices=4, slice_above=0, scheduler=scheduler)
    rows = {Path(row["trace"]).name: row for row in found.volumes.to_dicts()}
    assert rows["zipf.parquet"]["curve.error"] == "too little memory"
    assert rows["zipf.parquet"]["requests"] == 4000
    assert rows["uniform.parquet"]["curve.error"] is None
    drawn = set(found.curves["trace"].unique())
    assert {Path(trace).name for trace in drawn} == {"uniform.parquet", "two.csv"}
    again = fleet(traces, out, slices=4, slice_above=0, scheduler=scheduler)
    assert again.volumes.equals(found.volumes)


def test_an_error_of_all_plans_is_printed_and_ends_the_command_with_status_1(
    traces, tmp_path, capsys, scheduler
):
    line = [str(traces), "-o", str(tmp_path / "out"), "--glob", "**/*.parquet", "-q"]
    line += ["--scheduler", scheduler]
    assert command(line) == 0
    assert capsys.readouterr().err == ""
    assert command([*line, "--budget", "20%", "--backing", "NoSuchDevice"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("forebay: all 2 plans failed\n  2 x "), errors
    assert "no device `NoSuchDevice`" in errors


def test_without_files_to_read_a_fleet_says_why(traces, tmp_path, capsys):
    def said(source, out):
        status = command([str(source), "-o", str(out)])
        return status, capsys.readouterr().err

    out, empty, file = tmp_path / "out", tmp_path / "empty", traces / "two.csv"
    empty.mkdir()
    status, error = said(empty, out)
    assert status == 1 and f"{empty} has no file that matches **/*" in error
    status, error = said(tmp_path / "none", out)
    assert status == 1 and f"the directory {tmp_path / 'none'} does not exist" in error
    status, error = said(file, out)
    assert status == 2 and f"{file} is a file" in error and "--glob" in error
    status, error = said(traces, traces)
    assert status == 2 and f"all 4 files in {traces} that match **/* are in" in error
    assert not out.exists() and len([*traces.iterdir()]) == 4
    assert command([str(traces), "-o", str(out), "--glob", "/*"]) == 2
    assert "the pattern `/*`" in capsys.readouterr().err
    status, error = said(traces, file)
    assert status == 1 and f"{file}: it is a file, not a directory" in error


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """The command, with a function that makes it fail: killed, or with an exit status, until
    reset.
    """
    script, how = tmp_path / "broken-forebay", tmp_path / "how"
    script.write_text(f'#!/bin/sh\n[ ! -e {how} ] || . {how}\nexec {binary()} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("FOREBAY", str(script))

    def fail(pattern, what):
        if what is None:
            how.unlink()
        else:
            how.write_text(f'case "$*" in {pattern}) {what};; esac\n')

    return fail


KILL = "kill -KILL $$"
FAIL = "echo 'forebay: out of luck' >&2; exit 1"


@pytest.mark.parametrize("pattern", ["*mrc*zipf*", "*info*zipf*"])
def test_a_file_whose_command_was_killed_is_read_again(
    pattern, traces, tmp_path, scheduler, broken
):
    (traces / "README").unlink()
    out = tmp_path / "out"
    broken(pattern, KILL)
    first = fleet(traces, out, scheduler=scheduler)
    with pytest.raises(forebay.ForebayError, match="1 of 3 files failed\n.*SIGKILL"):
        first.raise_for_failures(out)
    broken(pattern, None)
    again = fleet(traces, out, scheduler=scheduler)
    assert (again.files, again.known) == (3, 2)
    again.raise_for_failures(out)


def test_a_plan_that_was_killed_is_an_error_and_made_again(
    traces, tmp_path, scheduler, broken
):
    (traces / "README").unlink()
    out = tmp_path / "out"
    how = {"budget": "20%", "backing": "SlowHDD", "scheduler": scheduler}
    whole = fleet(traces, tmp_path / "whole", **how)
    whole.raise_for_failures(out)
    broken('*" plan "*zipf*', KILL)
    first = fleet(traces, out, **how)
    with pytest.raises(forebay.ForebayError, match="1 plans failed\n.*SIGKILL"):
        first.raise_for_failures(out)
    broken("", None)
    again = fleet(traces, out, **how)
    assert again.known == 2
    same = ["trace", "volume", "plan.tiers", "plan.error"]
    assert again.volumes.select(same).equals(whole.volumes.select(same))


def test_failed_features_are_an_error_and_computed_again(
    traces, tmp_path, scheduler, broken, capsys
):
    (traces / "README").unlink()
    out = tmp_path / "out"
    line = [str(traces), "-o", str(out), "--scheduler", scheduler, "-q"]
    broken("*info*two.csv*--volumes*", FAIL)
    assert command(line) == 1
    said, errors = capsys.readouterr()
    assert "volumes without features: 2 (see features.error)" in said
    assert "the features of 2 volumes failed\n  2 x out of luck" in errors
    assert "--retry-failed" in errors
    broken("", None)
    # An error that a command reports itself stays until a retry is requested.
    assert command(line) == 1
    assert command([*line, "--retry-failed"]) == 0
    assert "3 files, 2 of them from earlier runs, 0 failed" in capsys.readouterr().out


def test_a_file_that_failed_is_read_again_with_retry_failed(
    traces, tmp_path, scheduler, broken, capsys
):
    (traces / "README").unlink()
    line = [str(traces), "-o", str(tmp_path / "out"), "--scheduler", scheduler, "-q"]
    broken("*mrc*zipf*", FAIL)
    assert command(line) == 1
    broken("", None)
    assert command(line) == 1
    assert "out of luck" in capsys.readouterr().err
    assert command([*line, "--retry-failed"]) == 0


def test_a_slice_that_was_killed_is_measured_again(traces, tmp_path, scheduler, broken):
    (traces / "README").unlink()
    out = tmp_path / "out"
    how = {"slices": 4, "slice_above": 0, "scheduler": scheduler}
    broken('*zipf*"--slice 3 "*', KILL)
    errors = fleet(traces, out, **how).volumes["curve.error"].drop_nulls()
    assert errors.len() == 1 and "SIGKILL" in errors[0]
    broken("", None)
    again = fleet(traces, out, **how)
    assert again.known == 3 and again.volumes["curve.error"].null_count() == 4


def test_files_of_the_same_name_have_a_curve_each(synthetic, tmp_path, scheduler):
    home, out = tmp_path / "traces", tmp_path / "out"
    for month, kind in (("jan", "zipf"), ("feb", "uniform")):
        (home / month).mkdir(parents=True)
        shutil.copy(synthetic[kind, 1], home / month / "vol0.parquet")
    fleet(home, out, scheduler=scheduler)
    page = (out / "report.html").read_text()
    names = re.findall(r'"name":"([^"]*vol0[^"]*)"', page.replace("\\u002f", "/"))
    assert set(names) == {f"{month}/vol0.parquet#synthetic" for month in ("jan", "feb")}
