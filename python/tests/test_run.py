"""How the command is run, and how its failures are reported."""

import json

import forebay
import polars as pl
import pytest


def test_failures_of_the_command_carry_its_message_and_status(example, tmp_path):
    with pytest.raises(forebay.ForebayError, match="missing.csv") as failed:
        forebay.mrc(tmp_path / "missing.csv")
    assert failed.value.status == 1
    with pytest.raises(forebay.ForebayError, match="--no-such-option") as failed:
        forebay.mrc(example, no_such_option=3)
    assert failed.value.status == 2


def test_a_missing_command_is_named(monkeypatch):
    monkeypatch.setenv("FOREBAY", "/nonexistent/forebay")
    with pytest.raises(forebay.ForebayError, match="/nonexistent/forebay"):
        forebay.mrc("x.csv")


def test_options_whose_value_can_be_omitted_take_it(example):
    study = forebay.run("plan", example, study=3, rows=False).document
    assert len(study["scaled_budgets"]) == 3
    # A value can look like an option.
    with pytest.raises(forebay.ForebayError, match="-1"):
        forebay.run("mrc", example, sample=-1)


def test_rows_and_document_agree(example):
    answer = forebay.run("mrc", example, at=["1MiB", "8MiB"])
    row, point = answer.rows.row(-1, named=True), answer.document["points"][-1]
    assert {name: row[name] for name in point} == point


def test_figures_hold_the_data_of_the_page(example):
    answer = forebay.run("mrc", example, pictures=True)
    (figure,) = answer.figures
    assert max(len(trace.x) for trace in figure.data) > 10


def test_files_that_options_name_are_written_and_read(example, tmp_path):
    files = {name: tmp_path / name for name in ("output", "parquet", "html")}
    answer = forebay.run("mrc", example, pictures=True, at="1MiB", **files)
    assert json.loads(files["output"].read_text()) == answer.document
    assert pl.read_parquet(files["parquet"]).equals(answer.rows)
    assert len(forebay.figures(files["html"])) == len(answer.figures) == 1
    assert forebay.mrc(example, at="1MiB", output="-").equals(answer.rows)


def test_commands_without_rows_return_their_document(tmp_path):
    answer = forebay.run("policies", "arc")
    assert answer.rows is None and answer.figures == []
    assert answer.document["policies"][0]["name"] == "arc"
    # The options are valid, but there is no server.
    with pytest.raises(forebay.ForebayError, match="no server answers") as failed:
        forebay.run("ctl status", control=f"unix:{tmp_path / 'none'}")
    assert failed.value.status == 1
    with pytest.raises(forebay.ForebayError, match="no server answers"):
        forebay.run("ctl destage", control=f"unix:{tmp_path / 'none'}")
    (tmp_path / "flash.img").write_bytes(bytes(1 << 20))
    with pytest.raises(forebay.ForebayError, match="flash.img") as failed:
        forebay.run("flash info", tmp_path / "flash.img")
    assert failed.value.status == 1


def test_slices_have_a_document_each_and_merge_to_rows(example, tmp_path):
    files = [tmp_path / f"{n}.json" for n in (1, 2)]
    for number, file in enumerate(files, 1):
        slice_ = {"slices": 2, "slice": number, "output": file}
        assert forebay.run("mrc", example, **slice_).document["slice"] == number
    assert forebay.mrc(*files, merge=True).height > 100


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda s: forebay.mrc(s, json=True), "json: forebay.run always requests"),
        (lambda s: forebay.mrc(s, slices=4, slice=1), "slice: a slice has no rows"),
        (lambda s: forebay.plan(print_devices=True), "print_devices: the catalogue"),
        (lambda s: forebay.mrc(help=True), "help: the help is text"),
        (lambda s: forebay.run("policies", rows=True), "rows: `forebay policies` has"),
        (lambda s: forebay.run("policies", pictures=True), "pictures: `forebay pol"),
        (lambda s: forebay.run("serve", config="c"), "`forebay serve` prints no JSON"),
        (lambda s: forebay.run("ctl top"), 'use forebay.run("ctl status")'),
        (lambda s: forebay.run("study", "s.toml"), "use forebay.study"),
        (
            lambda s: forebay.sample(s, rate=0.5, output="-"),
            "output: forebay.run itself reads standard output",
        ),
        (lambda s: forebay.features(s, output="x"), "output: `features` runs"),
    ],
)
def test_arguments_that_cannot_work_are_named_as_in_python(call, says, example):
    with pytest.raises(forebay.ForebayError) as failed:
        call(example)
    assert says in str(failed.value) and failed.value.status == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#!/bin/sh\n", "did not write the results of `forebay mrc`"),
        ("#!/bin/sh\necho '{}'\n", "did not write the results of `forebay mrc`"),
        ("no program", "cannot be run: Exec format error"),
    ],
)
def test_a_program_that_is_not_forebay_is_named(text, says, tmp_path, monkeypatch):
    program = tmp_path / "other"
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("FOREBAY", str(program))
    with pytest.raises(forebay.ForebayError) as failed:
        forebay.mrc("x.csv")
    assert f"{program} {says}" in str(failed.value)
