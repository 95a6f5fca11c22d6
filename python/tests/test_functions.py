"""The functions of the package match the commands, and the tables of `_calls` match their
options.
"""

import re
import subprocess
from pathlib import Path

import forebay
import pytest
from forebay import _calls
from forebay._run import binary
from forebay.commands import representatives
from forebay.lab import commands as lab

#: Commands of the package, whose options the binary cannot print.
OF_THE_PACKAGE = {
    "advise": lab.advise,
    "fleet": lab.fleet,
    "representatives": representatives,
    "study": lab.study,
}
#: Commands without a function, because they return no data.
WITHOUT = {"completions", "man", "report", "serve"}
#: Functions that are not commands.
HELPERS = {"features", "figures", "run"}


def help_of(*words):
    line = [binary(), *words, "--help"]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def listed(text):
    """The commands that a help page lists."""
    section = text.split("\nCommands:\n", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^  (\S+)", section, re.MULTILINE)


@pytest.fixture(scope="module")
def pages():
    """The help of every command of the binary, by name."""
    found = {}
    for name in set(listed(help_of())) - {"help", *OF_THE_PACKAGE}:
        page = help_of(name)
        if "\nCommands:\n" not in page:
            found[name] = page
            continue
        for second in set(listed(page)) - {"help"}:
            found[f"{name} {second}"] = help_of(name, second)
    return found


def test_each_command_that_returns_data_has_a_function(pages):
    functions = {
        name for name in forebay.__all__ if name.islower() and name not in HELPERS
    }
    named = {name.replace(" ", "_") for name in pages}
    groups = tuple(f"{group}_" for group in ("backing", "ctl", "flash"))
    named = {name for name in named if not name.startswith(groups)} - WITHOUT
    assert functions == named | set(OF_THE_PACKAGE)
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    for name in functions | HELPERS:
        assert f"`{name}`" in page or f"`forebay.{name}`" in page, name
    for name in WITHOUT | {"backing", "ctl", "flash"}:
        assert f"`{name}`" in page, name


def test_what_commands_can_return_is_known(pages, capsys):
    pages = dict(pages)
    groups = {name.split()[0] for name in pages if " " in name}
    assert groups == set(_calls.GROUPS)

    def having(option):
        line = re.compile(rf"^ +(-\w, )?{option}\b", re.MULTILINE)
        return {name for name, page in pages.items() if line.search(page)}

    assert having("--html") == having("--parquet") == _calls.FIGURES
    for name, command in OF_THE_PACKAGE.items():
        with pytest.raises(SystemExit):
            command(["--help"])
        pages[name] = capsys.readouterr().out
    assert having("--parquet") == _calls.ROWS
    # `ctl` prints JSON without an option.
    texts = {n for n in set(pages) - having("--json") if not n.startswith("ctl ")}
    assert texts | {"ctl top", "help", "version"} == set(_calls.TEXTS)
    assert _calls.TRACE_WRITERS <= having("--output")
