"""Values of a study: sizes and times with units, shares of a trace, constraints, and TOML."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Mapping
from typing import Any

from forebay._run import ForebayError

_UNITS = {
    **{unit: 1024**n for n, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))},
    **{unit: 1000**n for n, unit in enumerate(("kB", "MB", "GB", "TB"), 1)},
    **{"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0},
}
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def number(value: Any) -> float | None:
    """A value as a number: sizes in bytes, times in seconds; ``None`` if it is not a number.

    >>> number("16MiB"), number("1.5ms"), number(4), number("arc"), number(True)
    (16777216.0, 0.0015, 4.0, None, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[2] and found[2] not in _UNITS):
        return None
    return float(found[1]) * _UNITS.get(found[2], 1)


def share(value: Any) -> float | None:
    """The fraction that a text such as ``"10%"`` stands for; ``None`` for anything else.

    >>> share("10%"), share("10")
    (0.1, None)
    """
    if isinstance(value, str) and (found := re.fullmatch(r"(\d+(?:\.\d+)?)%", value)):
        return float(found[1]) / 100
    return None


def toml(value: Any) -> str:
    """A value in TOML.

    >>> toml({"a": [1, "x"], "b": True})
    '{"a" = [1, "x"], "b" = true}'
    """
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, (bool, int, float, str)):
        return json.dumps(value, ensure_ascii=False)
    raise ForebayError(f"a study cannot contain the value {value!r}", 2)


_COMPARE = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Constraint:
    """A condition on the values of a cell, such as ``cache.dram <= flash.size / 8``.

    Sizes and times are compared by value. A key that a cell does not have is ``None``; a comparison
    with it by ``<``, ``<=``, ``>`` or ``>=`` holds.

    >>> small = Constraint("cache.dram <= flash.size / 8")
    >>> small.holds({"cache.dram": "2MiB", "flash.size": "16MiB"})
    True
    >>> Constraint("policy in ['arc', 'lru'] and not 1MiB < 2").holds({"policy": "arc"})
    Traceback (most recent call last):
        ...
    forebay._run.ForebayError: constraint `policy in ['arc', 'lru'] and not 1MiB < 2`: invalid decimal literal
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError) as error:
            what = getattr(error, "msg", str(error))
            raise ForebayError(f"constraint `{text}`: {what}", 2) from error

    def keys(self) -> set[str]:
        """The keys that the constraint uses."""
        found: set[str] = set()

        def visit(node: ast.AST) -> None:
            if isinstance(node, (ast.Name, ast.Attribute)):
                found.add(self._name(node))
                return
            for child in ast.iter_child_nodes(node):
                visit(child)

        visit(self._tree)
        return found

    def holds(self, values: Mapping[str, Any]) -> bool:
        return bool(self._value(self._tree, values))

    def _name(self, node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self._name(node.value)}.{node.attr}"
        raise self._refused()

    def _refused(self) -> ForebayError:
        what = (
            "compares keys with values: and, or, not, in, <, ==, +, -, *, / are allowed"
        )
        return ForebayError(f"constraint `{self.text}`: a constraint {what}", 2)

    def _value(self, node: ast.AST, values: Mapping[str, Any]) -> Any:
        match node:
            case ast.Constant():
                return _comparable(node.value)
            case ast.Name() | ast.Attribute():
                return _comparable(values.get(self._name(node)))
            case ast.List() | ast.Tuple():
                return [self._value(item, values) for item in node.elts]
            case ast.UnaryOp(op=ast.Not()):
                return not self._value(node.operand, values)
            case ast.UnaryOp(op=ast.USub()):
                value = self._value(node.operand, values)
                return None if value is None else self._apply(operator.neg, value)
            case ast.BoolOp():
                every = all if isinstance(node.op, ast.And) else any
                return every(self._value(part, values) for part in node.values)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                sides = self._value(node.left, values), self._value(node.right, values)
                if None in sides:
                    return None
                return self._apply(_ARITHMETIC[type(node.op)], *sides)
            case ast.Compare():
                left = self._value(node.left, values)
                for kind, right in zip(node.ops, node.comparators, strict=True):
                    right = self._value(right, values)
                    ordered = isinstance(kind, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
                    unknown = ordered and (left is None or right is None)
                    if not unknown and not self._apply(
                        _COMPARE[type(kind)], left, right
                    ):
                        return False
                    left = right
                return True
        raise self._refused()

    def _apply(self, operation: Any, *operands: Any) -> Any:
        try:
            return operation(*operands)
        except (TypeError, ZeroDivisionError) as error:
            raise ForebayError(f"constraint `{self.text}`: {error}", 2) from error


def _comparable(value: Any) -> Any:
    as_number = number(value)
    return value if as_number is None else as_number
