"""The study files of the repository: each is read, and some of its cells run on a short trace."""

import dataclasses
from pathlib import Path

import pytest
from forebay.lab import cells, running, spec
from forebay.lab.study import Study

FILES = sorted((Path(__file__).parents[2] / "studies").glob("*.toml"))


def test_there_are_study_files():
    assert len(FILES) >= 6


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_study_file_runs(file, tmp_path, example):
    whole = spec.read(file)
    short = dataclasses.replace(
        whole, traces=[{"path": str(example), "limit": 20000, "name": "short"}]
    )
    study = Study(short, tmp_path, quiet=True)
    every = study.cells()
    assert len(every) == len(cells.combinations(whole))
    # Start with the last budgets and sizes, which are the largest: the smallest may buy nothing for
    # a short trace.
    for cell in every[-1 :: -max(1, len(every) // 3)][:3]:
        answer = running.run(study.task(cell))
        assert answer.error is None, answer.error


def test_the_page_of_the_papers_names_every_study():
    page = (Path(__file__).parents[2] / "docs" / "papers.md").read_text()
    assert all(f"`{file.stem}`" in page for file in FILES)
