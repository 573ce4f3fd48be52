"""Python text of calls with literal arguments: whatever a value holds, it stays data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

WIDTH = 88
"""Columns of a line before its arguments get lines of their own."""


@dataclass(frozen=True, slots=True)
class Code:
    """Text that stands as it is: a name, or an expression of ours."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call by name."""

    function: str
    named: Mapping[str, Expression] = field(default_factory=dict)
    first: tuple[Expression, ...] = ()
    """Arguments without a name."""


Expression = Code | Call | str | int | float | bool | Sequence["Expression"] | None


def written(expression: Expression, indent: int = 0, taken: int = 0) -> str:
    """The expression, on one line if it fits behind `taken` columns, or on several."""
    line = in_line(expression)
    if len(line) + indent + taken <= WIDTH:
        return line
    if isinstance(expression, Call):
        items = [(_before(name), value) for name, value in _arguments(expression)]
        return _on_lines(f"{expression.function}(", items, ")", indent)
    if _is_list(expression) and not all(isinstance(item, str) for item in expression):
        return _on_lines("[", [("", value) for value in expression], "]", indent)
    return line


def _is_list(expression: Expression) -> TypeGuard[Sequence[Expression]]:
    return isinstance(expression, Sequence) and not isinstance(expression, str)


def _on_lines(head: str, items: Sequence[tuple[str, Expression]], tail: str, indent: int) -> str:
    deeper = indent + 4
    lines = (
        f"{' ' * deeper}{name}{written(value, deeper, len(name) + 1)},\n" for name, value in items
    )
    return f"{head}\n{''.join(lines)}{' ' * indent}{tail}"


def _before(name: str | None) -> str:
    return "" if name is None else f"{name}="


def _arguments(call: Call) -> list[tuple[str | None, Expression]]:
    return [*((None, value) for value in call.first), *call.named.items()]


def in_line(expression: Expression) -> str:
    """The expression on one line."""
    if isinstance(expression, Code):
        return expression.text
    if isinstance(expression, Call):
        inner = (f"{_before(name)}{in_line(value)}" for name, value in _arguments(expression))
        return f"{expression.function}({', '.join(inner)})"
    if _is_list(expression):
        return f"[{', '.join(in_line(item) for item in expression)}]"
    return repr(expression)
