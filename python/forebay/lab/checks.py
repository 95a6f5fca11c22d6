"""The kinds of values that the keys of a study file can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from forebay._run import ForebayError
from forebay.lab.values import number


@dataclass(frozen=True)
class Kind:
    """A kind of value: its name in errors, and the test for whether a value is of this kind."""

    name: str
    holds: Callable[[Any], bool]


def whole(value: Any) -> int | None:
    """A value as a whole number; ``None`` if it is not one.

    >>> whole(3), whole("3"), whole(0.5), whole(True), whole("abc")
    (3, 3, None, None, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = number(value)
    return int(found) if found is not None and found.is_integer() else None


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _text_or_whole(value: Any) -> bool:
    return isinstance(value, str) or whole(value) is not None


def _list_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(holds, value))


TEXT = Kind("text", _text)
TEXTS = Kind("a list of strings", _list_of(_text))
TEXT_OR_TEXTS = Kind(
    "a string or a list of strings", lambda v: _text(v) or TEXTS.holds(v)
)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
WHOLE = Kind("a whole number", lambda value: whole(value) is not None)
COUNT = Kind("a whole number above 0", lambda value: (whole(value) or 0) > 0)
TIME = Kind('a time such as "1h"', lambda value: (number(value) or 0) > 0)
LIMIT = Kind("a number of requests", _text_or_whole)
NAMES = Kind(
    "a list of volumes", lambda value: bool(value) and _list_of(_text_or_whole)(value)
)
AXES = Kind('"x", "y" or "xy"', lambda value: value in ("x", "y", "xy"))


def check(table: Mapping[str, Any], kinds: Mapping[str, Kind], where: str = "") -> None:
    """Checks the values of a table.

    Raises:
        ForebayError: A value is of another kind; the error names its key.

    >>> check({"series": "no"}, {"series": FLAG})
    Traceback (most recent call last):
        ...
    forebay._run.ForebayError: series must be true or false, not 'no'
    """
    for key, kind in kinds.items():
        if key in table and not kind.holds(table[key]):
            what = f"{where}{key} must be {kind.name}, not {table[key]!r}"
            raise ForebayError(what, 2)
