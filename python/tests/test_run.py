"""How the command is run, and how its failures are reported."""

import forebay
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


def test_rows_and_document_agree(example):
    answer = forebay.run("mrc", example, at=["1MiB", "8MiB"])
    row, point = answer.rows.row(-1, named=True), answer.document["points"][-1]
    assert {name: row[name] for name in point} == point


def test_figures_hold_the_data_of_the_page(example):
    answer = forebay.run("mrc", example, pictures=True)
    (figure,) = answer.figures
    assert max(len(trace.x) for trace in figure.data) > 10
