"""What each command can return, and which arguments of a call cannot work.

A test compares the names in this module with the help of the commands.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

#: Commands that consist of two words, such as `trace info`.
GROUPS = ("backing", "ctl", "flash", "trace")
#: Commands with figures (`--html`) and raw rows (`--parquet`).
FIGURES = {
    "consolidate",
    "load",
    "mrc",
    "partition",
    "plan",
    "replay",
    "sample",
    "simulate",
    "trace info",
}
#: Commands with raw rows.
ROWS = FIGURES | {"representatives"}
#: Commands that print no JSON document, and what to use instead.
TEXTS = {
    "completions": "run it in a shell",
    "ctl top": 'use forebay.run("ctl status")',
    "fleet": "use forebay.fleet",
    "help": "run it in a shell",
    "man": "run it in a shell",
    "report": "run it in a shell",
    "serve": "run it in a shell",
    "study": "use forebay.study",
    "version": "run it in a shell",
}
#: Commands whose option `--output` names the trace to write; these print their document.
TRACE_WRITERS = {"sample", "trace convert", "trace synth"}
#: Options that a call cannot use, and why.
_REFUSED = {
    "help": "the help is text: run `forebay {name} --help` in a shell",
    "json": "forebay.run always requests the JSON document and returns it",
    "print_devices": "the catalogue is TOML: run `forebay plan --print-devices` in a shell",
    "version": "the version is text: run `forebay --version` in a shell",
}


def name_of(command: str) -> str:
    """The name of a command in a command line that can include options.

    >>> name_of("trace info --limit 3"), name_of("mrc --per-volume")
    ('trace info', 'mrc')
    """
    words = command.split()
    return " ".join(words[: 2 if words[:1] and words[0] in GROUPS else 1])


def given(options: Mapping[str, Any], name: str) -> bool:
    """Whether an option is given. `None` and `False` leave it out."""
    value = options.get(name)
    return value is not None and value is not False


def has_rows(name: str, options: Mapping[str, Any]) -> bool:
    """Whether a command has rows with these options."""
    return name in ROWS and not given(options, "slice")


def refusal(
    name: str, rows: bool | None, pictures: bool, options: Mapping[str, Any]
) -> str | None:
    """Why a call cannot work, with the argument's name in Python; `None` if the call can work.

    >>> refusal("plan", None, False, {"json": True})
    'json: forebay.run always requests the JSON document and returns it'
    """
    if name in TEXTS:
        what = f"`forebay {name}` prints no JSON document to return"
        return f"{what}: {TEXTS[name]}"
    for option, why in _REFUSED.items():
        if given(options, option):
            return f"{option}: {why.format(name=name)}"
    if (rows or pictures) and given(options, "slice"):
        how = f'forebay.run("{name}", ..., slice={options["slice"]}).document'
        return f"slice: a slice has no rows and no figures, only counts: use {how}"
    if rows and not has_rows(name, options):
        return f"rows: `forebay {name}` has no rows"
    if pictures and name not in FIGURES:
        return f"pictures: `forebay {name}` has no figures"
    if name in TRACE_WRITERS and _is_standard_output(options.get("output")):
        return "output: forebay.run itself reads standard output: use a file"
    return None


def document_file(name: str, options: Mapping[str, Any]) -> Any:
    """The file to which a command writes its document; `None` if it prints the document."""
    output = options.get("output")
    if name in TRACE_WRITERS or not given(options, "output"):
        return None
    return None if _is_standard_output(output) else output


def _is_standard_output(output: Any) -> bool:
    return isinstance(output, (str, os.PathLike)) and os.fspath(output) == "-"
