"""The tours in the documentation run exactly as printed."""

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forebay._run import binary

ROOT = Path(__file__).parents[2]


def test_the_tour_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    tour = str(ROOT / "docs" / "python.md")
    done = doctest.testfile(tour, module_relative=False, optionflags=doctest.ELLIPSIS)
    assert done.failed == 0 and done.attempted > 10


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The page on studies, and a directory in which its commands can be pasted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "forebay").symlink_to(binary())
    for name in ("study", "fleet", "advise"):
        program = programs / f"forebay-{name}"
        text = f"#!/bin/sh\nexec {sys.executable} -m forebay.lab {name} "
        program.write_text(f'{text}"$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return (ROOT / "docs" / "studies.md").read_text()


def test_the_page_of_studies_is_true(page, tmp_path):
    file = page.split("```toml\n# sizes.toml\n", 1)[1].split("```", 1)[0]
    (tmp_path / "sizes.toml").write_text(file)
    own = page.split("<!-- tested:", 1)[1].splitlines()
    commands = [line.strip() for line in own if line.startswith("    forebay ")]
    # Training takes minutes, and there is no cluster here.
    beyond = ("model.json", "SCHEDULER")
    commands = [line for line in commands if not any(word in line for word in beyond)]
    assert len(commands) == 4
    for line in commands:
        done = subprocess.run(line, shell=True, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for made in ("sizes/report.html", "sizes/rows.parquet", "fleet/volumes.parquet"):
        assert (tmp_path / made).stat().st_size > 0
    done = doctest.testfile(
        str(ROOT / "docs" / "studies.md"), module_relative=False, globs={}
    )
    assert done.failed == 0 and done.attempted > 4


def test_the_page_of_studies_lists_every_key(page):
    from forebay.lab import spec

    for key in (*spec._KEYS, *spec._TRACE_KINDS, *spec._FIGURE_KINDS):
        assert f"`{key}`" in page or f"[{key}]" in page, key
